"""Checks that time passes as fast as it does, whatever the wall clock says.

The rule is stated over the two clocks of the simulation and the instants of turns, without the broker's code.
Since every lease, delay and deadline ends by the broker's time, it bounds how early or late any of them can end.
"""

from __future__ import annotations

from fairlane.testing.clock import FakeClock
from tests.kit.auditor.books import violated

_SLEW = 10  # time may run a tenth too fast or too slow
_ROUNDING_MS = 5


class ClockRules:
    """The instants of turns against the time that really passed, in each life of the process."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._right_ms = clock.now_ms() - clock.monotonic_ms()
        self._started = self._before = (0, 0)

    def note_start(self, journal_ms: int) -> None:
        """Start a life: time starts at the wall clock, but not before the end of the journal."""
        self._started = self._before = (self._clock.monotonic_ms(), max(self._clock.now_ms(), journal_ms))

    def check_turn(self, at_ms: int) -> None:
        """Check the instant of a turn against the one before, and against the start of the process."""
        passed_ms = self._clock.monotonic_ms()
        for since, what in ((self._started, "the start"), (self._before, "the turn before")):
            elapsed_ms = passed_ms - since[0]
            error_ms = at_ms - since[1] - elapsed_ms
            if abs(error_ms) > elapsed_ms // _SLEW + 1:
                violated(f"{elapsed_ms} ms after {what} the broker's time is {error_ms} ms off: a jump got through")
        self._before = (passed_ms, at_ms)

    def set_right(self) -> None:
        """Set the wall clock to what it would show without any jump."""
        self._clock.jump(self._right_ms + self._clock.monotonic_ms() - self._clock.now_ms())

    def check_right(self, now_ms: int) -> None:
        """Check that the broker's time is the wall clock's again."""
        gap_ms = now_ms - self._clock.now_ms()
        if abs(gap_ms) > _ROUNDING_MS:
            violated(f"the clock is right again, and the broker's time is still {gap_ms} ms off")
