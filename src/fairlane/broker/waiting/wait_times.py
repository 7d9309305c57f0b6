"""How long messages have recently waited, by queue and fairness key: a sketch of bounded size, for views.

Of many messages handed out in one millisecond a few are looked at, of few all. A wait begins when a message may first
go: when it was enqueued, or is due. Nothing of this is durable.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from fairlane.core.ledger import Message
from fairlane.model.histogram import bucket_of
from fairlane.model.message import Key
from fairlane.scheduler.statistics import STEP_BITS, bound_of

WINDOW_MS: Final = 60_000
"""What is told is of the last one or two of these."""
KEYS_MAX: Final = 4_096
_EVERY: Final = 16
_PER_CENTS: Final = (50, 99)


class Sketch:
    """The waits of one key: counts by step of a scale on which a wait is never more than an eighth too long."""

    __slots__ = ("_before", "_now", "_since_ms")

    def __init__(self, now_ms: int) -> None:
        self._before: dict[int, int] = {}
        self._now: dict[int, int] = {}
        self._since_ms = now_ms

    def add(self, wait_ms: int, now_ms: int) -> None:
        """Count a wait."""
        if now_ms - self._since_ms >= WINDOW_MS:
            self._roll(now_ms)
        step = bucket_of(wait_ms, STEP_BITS)
        self._now[step] = self._now.get(step, 0) + 1

    def p50_and_p99_ms(self, now_ms: int) -> tuple[int, int] | None:
        """Return the waits that 50 and 99 of 100 did not exceed; None if nothing was handed out recently."""
        self._roll(now_ms)
        counts = sorted([*self._before.items(), *self._now.items()])
        if not counts:
            return None
        total, seen = sum(count for _, count in counts), 0
        found: list[int] = []
        for step, count in counts:
            seen += count
            while len(found) < len(_PER_CENTS) and seen * 100 >= total * _PER_CENTS[len(found)]:
                found.append(bound_of(step))
        return found[0], found[1]

    def _roll(self, now_ms: int) -> None:
        age_ms = now_ms - self._since_ms
        if age_ms >= WINDOW_MS:
            self._before = self._now if age_ms < 2 * WINDOW_MS else {}
            self._now = {}
            self._since_ms = now_ms


class KeyWaitTimes:
    """Sketches of the keys that were served last."""

    def __init__(self, *, keys_max: int = KEYS_MAX) -> None:
        self._keys_max = keys_max
        self._sketches: OrderedDict[tuple[str, Key], Sketch] = OrderedDict()
        self._passed = 0
        self._looked_ms = 0

    def __len__(self) -> int:
        return len(self._sketches)

    def note(self, queue: str, picked: Sequence[Message], now_ms: int) -> None:
        """Look at what is handed out, or pass it over if there is much of it."""
        self._passed += len(picked)
        if self._passed < _EVERY and now_ms == self._looked_ms:
            return
        message = picked[self._passed % len(picked)]
        self._passed = 0
        self._looked_ms = now_ms
        begun_ms = message.due_ms
        if begun_ms is None:
            if message.attempts or message.joined != message.number:
                return  # it came back at once, or was redriven, and its wait has no recorded begin
            begun_ms = message.enqueued_ms
        self._of(queue, message.key, now_ms).add(max(0, now_ms - begun_ms), now_ms)

    def p50_and_p99_ms(self, queue: str, key: Key, now_ms: int) -> tuple[int, int] | None:
        """Return how long 50 and 99 of 100 messages of a key waited at most; None if unknown."""
        sketch = self._sketches.get((queue, key))
        return None if sketch is None else sketch.p50_and_p99_ms(now_ms)

    def _of(self, queue: str, key: Key, now_ms: int) -> Sketch:
        place = (queue, key)
        sketch = self._sketches.get(place)
        if sketch is None:
            if len(self._sketches) >= self._keys_max:
                self._sketches.popitem(last=False)
            sketch = self._sketches[place] = Sketch(now_ms)
        else:
            self._sketches.move_to_end(place)
        return sketch
