"""How fast requests have been finishing lately, and so when coming back is likely to help."""

from __future__ import annotations

from collections import deque

_COMPLETIONS_KEPT = 64
RETRY_AFTER_LEAST_MS = 1_000
RETRY_AFTER_MAX_MS = 60_000


class CompletionRate:
    """An estimate of how long what waits now will take.

    It counts from when the present backlog began, so that a quiet hour before says nothing about the rate, and looks at
    the latest completions only. If none has finished since, the backlog has proved to last at least as long as it has
    lasted: that is the estimate.
    """

    __slots__ = ("_instants",)

    def __init__(self) -> None:
        # The first entry is where counting starts, each later one a completion.
        self._instants: deque[int] = deque(maxlen=_COMPLETIONS_KEPT + 1)

    def begin(self, now_ms: int) -> None:
        """Note that requests have begun to wait."""
        self._instants.clear()
        self._instants.append(now_ms)

    def note_completion(self, now_ms: int) -> None:
        """Note that a request has finished."""
        if self._instants:
            self._instants.append(now_ms)

    def estimate_ms(self, ahead: int, now_ms: int) -> int:
        """Return how long it should take until ``ahead`` requests have had their turns, within fixed bounds."""
        if not self._instants:
            return RETRY_AFTER_LEAST_MS
        elapsed_ms = now_ms - self._instants[0]
        completions = len(self._instants) - 1
        estimate_ms = ahead * elapsed_ms // completions if completions else elapsed_ms
        return max(RETRY_AFTER_LEAST_MS, min(estimate_ms, RETRY_AFTER_MAX_MS))
