"""When queues and keys were paused of late, so that a wait can be told from a pause."""

from __future__ import annotations

from collections import deque
from typing import Final

from fairlane.model.message import Key, canonical

_KEPT: Final = 64
_PLACES_MAX: Final = 1_000


class Pauses:
    """The latest pauses of each queue and key since the server was started."""

    def __init__(self) -> None:
        self._spans: dict[tuple[str, Key | None], deque[tuple[int, int | None]]] = {}

    def __len__(self) -> int:
        return len(self._spans)

    def note(self, queue: str, key: Key | None, now_ms: int, *, is_paused: bool) -> None:
        """Note that a queue, or one key of it, is paused or resumed."""
        place = (queue, key)
        spans = self._spans.get(place)
        if spans is None:
            if not is_paused or len(self._spans) >= _PLACES_MAX:
                return
            spans = self._spans[place] = deque(maxlen=_KEPT)
        if is_paused:
            if not spans or spans[-1][1] is not None:
                spans.append((now_ms, None))
        elif spans and spans[-1][1] is None:
            spans[-1] = (spans[-1][0], now_ms)

    def forget(self, queue: str) -> None:
        """Forget a queue that is gone."""
        for place in [place for place in self._spans if place[0] == queue]:
            del self._spans[place]

    def within(self, queue: str, key: Key, since_ms: int, until_ms: int) -> int:
        """Return for how long of a wait the queue was paused, or else the key or one above it."""
        path = (key,) if isinstance(key, str) else key
        above = [canonical(path[:depth]) for depth in range(1, len(path) + 1)]
        places: list[tuple[str, Key | None]] = [(queue, None), *((queue, name) for name in above)]
        return max(self._overlap(place, since_ms, until_ms) for place in places)

    def _overlap(self, place: tuple[str, Key | None], since_ms: int, until_ms: int) -> int:
        total = 0
        for begun_ms, ended_ms in self._spans.get(place, ()):
            end_ms = until_ms if ended_ms is None else min(ended_ms, until_ms)
            total += max(0, end_ms - max(begun_ms, since_ms))
        return total
