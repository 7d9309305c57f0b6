"""The broker's time, which never runs backwards."""

from __future__ import annotations


class BrokerTime:
    """Time that never runs backwards, from a clock that may jump.

    When the clock is set back, the broker's time goes on from where it was, ahead of the clock from then on. When the
    clock is set forward, the broker's time follows: delays and leases that ended meanwhile have ended.
    """

    __slots__ = ("_ahead_ms", "_clock_ms")

    def __init__(self, clock_ms: int, *, not_before_ms: int = 0) -> None:
        self._clock_ms = clock_ms
        self._ahead_ms = max(0, not_before_ms - clock_ms)

    def at(self, clock_ms: int) -> int:
        """Return the broker's time at an instant of the clock, without remembering that instant."""
        return max(clock_ms, self._clock_ms) + self._ahead_ms

    def advance(self, clock_ms: int) -> int:
        """Return the broker's time at an instant of the clock, and never an earlier one from then on."""
        if clock_ms < self._clock_ms:
            self._ahead_ms += self._clock_ms - clock_ms
        self._clock_ms = clock_ms
        return clock_ms + self._ahead_ms
