"""The broker's time, which only goes forward."""

from __future__ import annotations


class BrokerTime:
    """Makes of a clock that may jump a time that never runs backwards and never stands still for long.

    When the clock is set back, the broker's time goes on from where it was, ahead of the clock from then on. When the
    clock is set forward, the broker's time follows: delays and leases that ended meanwhile have ended.
    """

    __slots__ = ("_ahead_ms", "_clock_ms")

    def __init__(self, clock_ms: int, *, not_before_ms: int = 0) -> None:
        self._clock_ms = clock_ms
        self._ahead_ms = max(0, not_before_ms - clock_ms)

    def at(self, clock_ms: int) -> int:
        """Return the broker's time when the clock says so, without taking note of it."""
        return max(clock_ms, self._clock_ms) + self._ahead_ms

    def advance(self, clock_ms: int) -> int:
        """Return the broker's time when the clock says so."""
        if clock_ms < self._clock_ms:
            self._ahead_ms += self._clock_ms - clock_ms
        self._clock_ms = clock_ms
        return clock_ms + self._ahead_ms
