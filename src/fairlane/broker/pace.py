"""Pace: a flood of enqueues waits for consumers that would otherwise fall behind.

A consumer that leases, works and acknowledges has one request under way at a time. Between two of them it decodes,
works and encodes, and a flooding producer has its next enqueue decided meanwhile, again and again. So the backlog grows
although the consumer would take everything, if only it were asked as often as the producer.

So producers keep pace: while consumers take messages, producers may be ``lead_max`` messages ahead of them. Then their
enqueues wait for the next request of a consumer.

A wait is worth it only if consumers use it. A consumer that takes one message in a while must not slow producers down
to its own rate. So each wait is judged when it ends: if consumers took fewer than ``TAKEN_PER_MS`` messages for each
millisecond of it, the next wait begins twenty times as long after. Waits that bring nothing thus take a twentieth of
the time of producers, and no wait is longer than ``WAIT_MS``.
"""

from __future__ import annotations

from typing import Final

from fairlane.broker.cycle import Cycle
from fairlane.journal.records import Enqueued

WAIT_MS: Final = 5
"""How long enqueues wait for consumers at most."""
TAKEN_PER_MS: Final = 20
PAUSE: Final = 20
_ACTIVE_MS: Final = 50
"""How long enqueues may wait for a consumer after it has taken messages."""


class ProducerPace:
    """Decides when enqueues wait for consumers.

    Attributes:
        until_ms: until when enqueues wait; 0 if they don't.
        is_kept: whether consumers have asked lately at the same time as others.
        left: how many requests were in the inbox when they began to wait; with more, there is news.
    """

    def __init__(self) -> None:
        self.until_ms = 0
        self.left = 0
        self.is_kept = False
        self._lead = 0
        self._taken_ms = -_ACTIVE_MS
        self._not_before_ms = 0
        self._began_ms = 0
        self._is_over = False

    def waits(self, now_ms: int, *, lead_max: int) -> bool:
        """Return whether enqueues wait, in a cycle that may enqueue messages otherwise."""
        if self._is_over or self._lead < lead_max:
            return False
        if not self.until_ms:
            if now_ms >= self._taken_ms + _ACTIVE_MS or now_ms < self._not_before_ms:
                return False
            self._began_ms, self.until_ms = now_ms, now_ms + WAIT_MS
        if now_ms >= self.until_ms:
            self._judge(0, now_ms)
            return False
        return True

    def note(self, *, enqueued: int, taken: int, now_ms: int) -> None:
        """Note what a cycle has enqueued, and what consumers have taken in it."""
        if taken:
            if self.until_ms:
                self._judge(taken, now_ms)
            self._taken_ms = now_ms
        elif now_ms >= self._taken_ms + _ACTIVE_MS:
            self._lead, self.is_kept = 0, False
            return
        self._lead = max(0, self._lead + enqueued - taken)

    def release(self) -> None:
        """Make no enqueue wait from now on, because the broker closes."""
        self.until_ms, self._is_over = 0, True

    def _judge(self, taken: int, now_ms: int) -> None:
        """End a wait, and put the next one off if consumers made too little of it."""
        waited_ms = min(max(1, now_ms - self._began_ms), WAIT_MS)
        self.until_ms = 0
        if taken < TAKEN_PER_MS * waited_ms:
            self._not_before_ms = now_ms + PAUSE * waited_ms


def note_pace(pace: ProducerPace, cycle: Cycle) -> None:
    """Note what a cycle has enqueued, and what consumers have taken that are elsewhere: those here can't be waited for.

    They run on the event loop or thread of the broker, which would do nothing while it waited.
    """
    enqueued = sum([record.count for record in cycle.records if type(record) is Enqueued])
    taken = sum([len(hand_out.messages) for hand_out in cycle.hand_outs if hand_out.taker.room is not None])
    pace.note(enqueued=enqueued, taken=taken, now_ms=cycle.now_ms)
