"""The circuit breaker of a queue's scripts: it bypasses them for a while after faults, or if they take too much time.

*Faults.* After a number of faults in a row the breaker opens.

*Time.* Scripts run on the broker's only writer, so what one queue's scripts use, all others wait for. A queue has an
account of script time: what its scripts use is added, and its share of the time that passes is taken off. The breaker
opens when the account exceeds the share of a window: with 20 % of 10 s, after 2 s of scripts without a pause, or later
if they run less than all the time. Over any long span a queue can't use more than its share and one window's worth.

The account survives a closing of the breaker: a queue that is updated, which closes it, gains no script time.

Both open it for the same cooldown, and what happens to messages meanwhile is the same: the queue's declared keys apply.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from fairlane.model.views import BreakerCause

_NS_PER_MS: Final = 1_000_000


class BreakerState(Enum):
    """Whether scripts run."""

    CLOSED = "Scripts run."
    OPEN_BY_FAULTS = "Scripts are bypassed, because they failed several times in a row."
    OPEN_BY_TIME = "Scripts are bypassed, because they used more than their share of the time."


class BreakerEvent(Enum):
    """What happens to a breaker."""

    FAULTS = "the last fault in a row that is tolerated"
    TIME = "the account of script time is overdrawn"
    COOLED_DOWN = "the cooldown has passed"
    SET = "the queue was updated"


TRANSITIONS: Final[dict[tuple[BreakerState, BreakerEvent], BreakerState]] = {
    (BreakerState.CLOSED, BreakerEvent.FAULTS): BreakerState.OPEN_BY_FAULTS,
    (BreakerState.CLOSED, BreakerEvent.TIME): BreakerState.OPEN_BY_TIME,
    (BreakerState.CLOSED, BreakerEvent.SET): BreakerState.CLOSED,
    (BreakerState.OPEN_BY_FAULTS, BreakerEvent.TIME): BreakerState.OPEN_BY_FAULTS,
    (BreakerState.OPEN_BY_FAULTS, BreakerEvent.COOLED_DOWN): BreakerState.CLOSED,
    (BreakerState.OPEN_BY_FAULTS, BreakerEvent.SET): BreakerState.CLOSED,
    (BreakerState.OPEN_BY_TIME, BreakerEvent.TIME): BreakerState.OPEN_BY_TIME,
    (BreakerState.OPEN_BY_TIME, BreakerEvent.COOLED_DOWN): BreakerState.CLOSED,
    (BreakerState.OPEN_BY_TIME, BreakerEvent.SET): BreakerState.CLOSED,
}
"""Every event that can happen in a state; no script runs in an open state, so none can fail there."""

_CAUSES: Final[dict[BreakerState, BreakerCause]] = {
    BreakerState.OPEN_BY_FAULTS: "faults",
    BreakerState.OPEN_BY_TIME: "time",
}


class Breaker:
    """The breaker of one queue. See the module's theory of operation.

    Attributes:
        trips: how often it has opened.
    """

    def __init__(self, *, threshold: int, cooldown_ms: int, share_percent: int, window_ms: int) -> None:
        self._threshold = threshold
        self._cooldown_ms = cooldown_ms
        self._share_percent = share_percent
        self._owed_ns_max = window_ms * share_percent * _NS_PER_MS // 100
        self._state = BreakerState.CLOSED
        self._faults_in_row = 0
        self._open_until_ms = 0
        self._owed_ns = 0
        self._now_ms = 0
        self.trips = 0

    @property
    def is_open(self) -> bool:
        """Whether scripts were bypassed at the last call."""
        return self._state is not BreakerState.CLOSED

    def cause(self, now_ms: int) -> BreakerCause | None:
        """Return why it is open now; None if it is closed, or the cooldown has passed."""
        return _CAUSES.get(self._state) if now_ms < self._open_until_ms else None

    def set_limits(self, *, threshold: int, cooldown_ms: int) -> None:
        """Change how many faults in a row open it, and for how long it opens from now on."""
        self._threshold = threshold
        self._cooldown_ms = cooldown_ms

    def lets_through(self, now_ms: int) -> bool:
        """Return whether scripts run now. After the cooldown the count of faults starts from zero."""
        if self._state is not BreakerState.CLOSED and now_ms >= self._open_until_ms:
            self._follow(BreakerEvent.COOLED_DOWN, now_ms)
        return self._state is BreakerState.CLOSED

    def close(self) -> None:
        """Run scripts again, regardless of earlier faults."""
        self._follow(BreakerEvent.SET, self._now_ms)

    def note_answer(self) -> None:
        """Record that a script has answered."""
        self._faults_in_row = 0

    def note_fault(self, now_ms: int) -> None:
        """Record that a script has failed, and open the breaker at the threshold."""
        self._faults_in_row += 1
        if self._faults_in_row >= self._threshold and self._state is BreakerState.CLOSED:
            self._follow(BreakerEvent.FAULTS, now_ms)

    def note_time(self, spent_ns: int, now_ms: int) -> None:
        """Record how much time scripts have used, and open the breaker if the account is overdrawn."""
        passed_ms = max(0, now_ms - self._now_ms)
        self._now_ms = max(now_ms, self._now_ms)
        paid_ns = passed_ms * self._share_percent * _NS_PER_MS // 100
        self._owed_ns = max(0, self._owed_ns - paid_ns) + spent_ns
        if self._owed_ns > self._owed_ns_max:
            self._follow(BreakerEvent.TIME, now_ms)

    def _follow(self, event: BreakerEvent, now_ms: int) -> None:
        was_open = self.is_open
        self._state = TRANSITIONS[self._state, event]
        if not self.is_open:
            self._faults_in_row = 0
        elif not was_open:
            self._open_until_ms = now_ms + self._cooldown_ms
            self.trips += 1
