"""How long an item was held up: by throttles without a token, and by keys at their caps.

Items carry no timers. Each lane has a stopwatch that runs while the lane is parked, each key with a cap has one that
runs while the key is at its cap, and each key with a rate one that runs while its rate is used up. What they show when
an item is handed out, minus what they showed when it was offered, is how long that item was held up. An item whose
stopwatches have never run stores nothing.
"""

from __future__ import annotations

from typing import NamedTuple


class Holdup(NamedTuple):
    """How long an item waited because a throttle had no token, and because one of its keys was at its cap.

    Both can be true at once, so the two may add up to more than the item's wait.
    """

    throttled_ms: int
    capped_ms: int


NOT_HELD = Holdup(0, 0)


class StopWatch:
    """Adds up the time during which a condition held."""

    __slots__ = ("_since_ms", "_total_ms")

    def __init__(self) -> None:
        self._total_ms = 0
        self._since_ms: int | None = None

    def note(self, now_ms: int, *, is_so: bool) -> None:
        """Record whether the condition holds from now on."""
        if is_so:
            if self._since_ms is None:
                self._since_ms = now_ms
        elif self._since_ms is not None:
            self._total_ms += now_ms - self._since_ms
            self._since_ms = None

    def read(self, now_ms: int) -> int:
        """Return for how long the condition has held in total."""
        return self._total_ms if self._since_ms is None else self._total_ms + now_ms - self._since_ms
