"""How many messages a reader processes at the same time, measured by what it holds whenever it asks for another."""

from __future__ import annotations

from typing import Final

PERIOD_MS: Final = 10_000
"""A count falls when the reader has needed at most half of it for this long."""


class HandlerCount:
    """A number of handlers that rises at once and falls slowly.

    A reader that works in bursts keeps its count between them, so it does not get each burst one message at a time. One
    that now takes message after message loses handlers that it does not have, and with them the prompt messages that
    would wait in its buffer.

    Attributes:
        count: how many handlers the reader has.
    """

    __slots__ = ("_most", "_until_ms", "count")

    def __init__(self) -> None:
        self.count = 1
        self._most = self._until_ms = 0

    def update(self, needed: int, now_ms: int) -> bool:
        """Note how many handlers the reader needs now, and return whether its count has changed."""
        self._most = max(self._most, needed)
        before = self.count
        if needed > before:
            self.count = needed
        elif now_ms < self._until_ms:
            return False
        elif self._most <= before // 2:
            self.count = self._most
        self._most, self._until_ms = needed, now_ms + PERIOD_MS
        return self.count != before
