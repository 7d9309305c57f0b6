"""Recent pauses of queues and keys, so that metrics can tell a pause from a wait for a turn."""

from __future__ import annotations

from collections import deque
from typing import Final

from fairlane.model.message import Key, canonical

_PAUSES_MAX: Final = 64
"""Pauses that are remembered for one queue or key."""
_SUBJECTS_MAX: Final = 1_000
"""Queues and keys whose pauses are remembered."""


class Pauses:
    """The latest pauses of each queue and key since the server started."""

    def __init__(self) -> None:
        self._spans: dict[tuple[str, Key | None], deque[tuple[int, int | None]]] = {}

    def __len__(self) -> int:
        return len(self._spans)

    def note(self, queue: str, key: Key | None, now_ms: int, *, is_paused: bool) -> None:
        """Record that a queue, or one of its keys, was paused or resumed."""
        subject = (queue, key)
        spans = self._spans.get(subject)
        if spans is None:
            if not is_paused or len(self._spans) >= _SUBJECTS_MAX:
                return
            spans = self._spans[subject] = deque(maxlen=_PAUSES_MAX)
        if is_paused:
            if not spans or spans[-1][1] is not None:
                spans.append((now_ms, None))
        elif spans and spans[-1][1] is None:
            spans[-1] = (spans[-1][0], now_ms)

    def forget(self, queue: str) -> None:
        """Forget a deleted queue."""
        for subject in [subject for subject in self._spans if subject[0] == queue]:
            del self._spans[subject]

    def within(self, queue: str, key: Key, since_ms: int, until_ms: int) -> int:
        """Return how much of a wait the queue was paused, or the key or one above it: the longest of these."""
        path = (key,) if isinstance(key, str) else key
        above = [canonical(path[:depth]) for depth in range(1, len(path) + 1)]
        subjects: list[tuple[str, Key | None]] = [(queue, None), *((queue, name) for name in above)]
        return max(self._overlap(subject, since_ms, until_ms) for subject in subjects)

    def _overlap(self, subject: tuple[str, Key | None], since_ms: int, until_ms: int) -> int:
        total = 0
        for begun_ms, ended_ms in self._spans.get(subject, ()):
            end_ms = until_ms if ended_ms is None else min(ended_ms, until_ms)
            total += max(0, end_ms - max(begun_ms, since_ms))
        return total
