"""The recent rate of completions, from which ``Retry-After`` is estimated."""

from __future__ import annotations

from collections import deque

_COMPLETIONS_KEPT = 64
RETRY_AFTER_LEAST_MS = 1_000
RETRY_AFTER_MAX_MS = 60_000


class CompletionRate:
    """An estimate of how long the current backlog will take.

    It counts from when the backlog began, so that a quiet hour before does not distort the rate, and only considers the
    latest completions. If no request has finished since then, the backlog is known to last at least as long as it has
    lasted, and that is the estimate.
    """

    __slots__ = ("_instants",)

    def __init__(self) -> None:
        # The first entry is the start of the backlog, each later one a completion.
        self._instants: deque[int] = deque(maxlen=_COMPLETIONS_KEPT + 1)

    def begin(self, now_ms: int) -> None:
        """Record that requests have begun to wait."""
        self._instants.clear()
        self._instants.append(now_ms)

    def note_completion(self, now_ms: int) -> None:
        """Record that a request has finished."""
        if self._instants:
            self._instants.append(now_ms)

    def estimate_ms(self, ahead: int, now_ms: int) -> int:
        """Return the estimated time until ``ahead`` requests have had their turns, within fixed bounds."""
        if not self._instants:
            return RETRY_AFTER_LEAST_MS
        elapsed_ms = now_ms - self._instants[0]
        completions = len(self._instants) - 1
        estimate_ms = ahead * elapsed_ms // completions if completions else elapsed_ms
        return max(RETRY_AFTER_LEAST_MS, min(estimate_ms, RETRY_AFTER_MAX_MS))
