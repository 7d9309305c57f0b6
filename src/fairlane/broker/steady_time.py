"""The broker's time: durations by the monotonic clock, dates close to the wall clock.

Theory of operation. Leases, delays, deadlines, throttles, dedup windows and the expiry of API keys are instants of one
timeline, the broker's time, and so are the times in the journal. It has to be three things at once:

* *It never runs backwards.* The journal is ordered by it, and the data pipeline closes days by it.
* *It measures durations.* A lease of 30 s lasts 30 s, whatever an operator or NTP does to the wall clock meanwhile.
* *It is a date.* Operators read it, and an API key expires at a date.

So it starts at the wall clock and then moves with the monotonic clock. Every ``LOOK_MS`` it looks at the wall clock:

* A gap without a jump is drift of the hardware. Time is *slewed*: it runs up to a tenth faster or slower until the gap
  is closed.
* When the wall clock has moved by ``JUMP_MS`` more or less than the monotonic clock between two looks, it has jumped.
  That is logged, and time goes on as if nothing had happened for ``HOLD_MS``. A clock that is right again by then
  leaves no trace at all.
* A jump that persists counts as the truth. Time is slewed towards it, again by at most a tenth, which is logged. So no
  jump ever ends anything by itself: a lease of 30 s lasts at least 27 s and at most 34 s even then. A clock that was an
  hour wrong for ten minutes leaves the broker 54 s off, which the same rule repairs within nine minutes.

Between two looks the slewed time is a function of the monotonic clock alone, ``at``: it is continuous and never
decreases, so callers may read it at any moment, and a look never takes back what was read before.

A restart can't ask a monotonic clock how long the process was down; only the wall clock knows. So time starts at the
wall clock again, but never before the end of the journal. If the journal ends in the future, because an earlier process
was started under a wrong clock, time starts at that end and is slewed back. Nothing expires early or is lost meanwhile,
every duration is right to a tenth, and only dates are ahead for as long as that takes.

Nothing here is random, and both clocks are handed in, so a simulation jumps them as it likes and stays exact.
"""

from __future__ import annotations

import logging
from typing import Final

from fairlane.ports.clock import Clock

LOOK_MS: Final = 100
"""How often the wall clock is read, at most."""
JUMP_MS: Final = 1_000
"""How far the wall clock moves between two looks, beyond the time that passed, before that is a jump."""
HOLD_MS: Final = 60_000
"""How long a jump is ignored, in case the clock is set right again."""
SLEW: Final = 10
"""Time is slewed by at most one millisecond in this many."""
_DRIFT: Final = 1_000  # a clock that drifts by more than one in this many is a clock that jumps
_ROUNDING_MS: Final = 5  # two clocks that are read one after the other differ by as much

_log = logging.getLogger("fairlane.broker")


class BrokerTime:
    """Time that never runs backwards and that no jump of the wall clock disturbs; see the module."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._looked_ms = clock.monotonic_ms()
        self._wall_ms = clock.now_ms()
        self._offset_ms = self._wall_ms - self._looked_ms
        """The broker's time minus the monotonic clock, at the last look."""
        self._gap_ms = 0
        """How much time is to be slewed by from the last look on; positive if it runs behind the wall clock."""
        self._held_until_ms: int | None = None
        """Until when on the monotonic clock a jump is ignored; None while none is."""

    def now_ms(self) -> int:
        """Return the broker's time, without looking at the wall clock."""
        return self._at(self._clock.monotonic_ms())

    def _at(self, monotonic_ms: int) -> int:
        gap_ms = self._gap_ms
        if not gap_ms:
            return monotonic_ms + self._offset_ms
        most_ms = (monotonic_ms - self._looked_ms) // SLEW
        return monotonic_ms + self._offset_ms + (min(gap_ms, most_ms) if gap_ms > 0 else max(gap_ms, -most_ms))

    def advance(self) -> int:
        """Return the broker's time, and look at the wall clock if that is due."""
        monotonic_ms = self._clock.monotonic_ms()
        if monotonic_ms - self._looked_ms >= LOOK_MS:
            self._look(monotonic_ms)
        if not self._gap_ms:  # as in _at, without the call: every cycle passes here
            return monotonic_ms + self._offset_ms
        return self._at(monotonic_ms)

    def reach(self, journal_ms: int) -> None:
        """Go on from the end of a journal, if that is later."""
        monotonic_ms = self._clock.monotonic_ms()
        ahead_ms = journal_ms - self._at(monotonic_ms)
        if ahead_ms > 0:
            self._offset_ms = journal_ms - monotonic_ms  # and nothing of the slew since the last look, which is over
            self._gap_ms = 0
        if ahead_ms > JUMP_MS:
            _log.warning(
                "The journal ends %.1f s after the time of the wall clock. The broker's time starts there, and runs a "
                "tenth slower until the wall clock has caught up.",
                ahead_ms / 1000,
            )

    def _look(self, monotonic_ms: int) -> None:
        """Compare with the wall clock, and decide by how much time is slewed until the next look."""
        now_ms, wall_ms = self._at(monotonic_ms), self._clock.now_ms()
        elapsed_ms = monotonic_ms - self._looked_ms
        jump_ms = wall_ms - self._wall_ms - elapsed_ms
        self._offset_ms = now_ms - monotonic_ms
        self._looked_ms, self._wall_ms = monotonic_ms, wall_ms
        gap_ms = wall_ms - now_ms
        if abs(jump_ms) > max(JUMP_MS, elapsed_ms // _DRIFT):
            self._note_jump(jump_ms, gap_ms)
        if self._held_until_ms is not None:
            if abs(gap_ms) <= JUMP_MS:
                self._held_until_ms = None
            elif monotonic_ms < self._held_until_ms:
                gap_ms = 0
            else:
                self._held_until_ms = None
                _log.warning(
                    "The wall clock has stayed %+.1f s away for %d s. The broker's time follows it, by at most one "
                    "second in %d.",
                    *(gap_ms / 1000, HOLD_MS // 1000, SLEW),
                )
        self._gap_ms = gap_ms if abs(gap_ms) > _ROUNDING_MS else 0

    def _note_jump(self, jump_ms: int, gap_ms: int) -> None:
        self._held_until_ms = self._looked_ms + HOLD_MS
        _log.warning(
            "The wall clock jumped by %+.1f s and is %+.1f s away from the broker's time, which goes on as before: no "
            "lease, delay, deadline or API key expires by it.",
            *(jump_ms / 1000, gap_ms / 1000),
        )
