"""Messages of a recording as the kernel sees them, and what became of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fairlane.core.ledger import PRIORITIES, ScheduledItem, TermsRow
from fairlane.core.states.aftermath import Aftermath
from fairlane.spark.whatif.attempts import ACKED, EXPIRED
from fairlane.spark.whatif.recording import Recording

BITS: Final = 26
"""A running attempt is one number: the instant at which it ends, above this many bits for the number of the lease."""
USUAL, OTHERWISE, FORSAKEN = range(3)
"""How an attempt goes: acknowledged at the estimated cost by a plain consumer, in another way, or its lease expires."""
STEP: Final = 1 << 20
"""The distance between the places of two messages that came one after the other: space for those that come back."""


class ReplayedMessage(ScheduledItem):
    """One stay of a message in a queue, from its enqueue or redrive on.

    Attributes:
        queue: the number of its queue.
        at: the attempt that is next, or goes on.
        hold: how long that takes once it has begun, in milliseconds above ``BITS``.
        course: how that goes.
    """

    __slots__ = ("at", "course", "hold", "queue")

    def __init__(
        self, number: int, queue: int, terms: TermsRow, cap: int | None, since_ms: int, order_key: str | None = None
    ) -> None:
        # Not through Item.__init__: the broker checked the terms before it wrote them to the journal.
        self.queue = queue
        self.number = number
        self.joined = number * STEP
        self.since_ms = since_ms
        self.size = self.sequence = 0
        self.lane = self.next = self.previous = self.held = None
        self.at = self.hold = self.course = 0
        self.set_terms(terms, cap, order_key)

    def set_terms(self, terms: TermsRow, cap: int | None, order_key: str | None = None) -> None:
        """Set what the message competes under. It must not be waiting."""
        self.key, self.weight, self.cost, self.priority, self.throttles, self.due_ms, self.deadline_ms = terms
        self.plain = self._is_plain()
        self.after = None
        if cap is not None or order_key is not None:
            self.after = Aftermath(cap=cap, order_key=order_key)

    def begin(self, recording: Recording, at: int) -> None:
        """Make an attempt the next."""
        self.at = at
        end = recording.end[at]
        is_usual = end == ACKED and not recording.settle[at] and recording.is_plain
        self.course = USUAL if is_usual else OTHERWISE if end < EXPIRED else FORSAKEN
        # A lease ends with the work, which a consumer may begin later than the lease; or it expires.
        self.hold = (recording.busy_ms if end < EXPIRED else recording.hold_ms)[at] << BITS


@dataclass(slots=True)
class Played:
    """What became of each message of a recording.

    Attributes:
        leased_ms: when it was first leased; -1 for never.
        throttled_ms, capped_ms, paused_ms: how long it was held up before that, for those that were.
        contended: the messages that were handed out while others had to wait for a consumer.
        missed: the messages whose deadlines passed.
        removed: the messages that were purged, cancelled or dropped, or whose queue was removed.
    """

    leased_ms: Sequence[int]
    throttled_ms: dict[int, int]
    capped_ms: dict[int, int]
    paused_ms: dict[int, int]
    contended: Sequence[int]
    missed: list[int]
    removed: list[int]


def messages_of(recording: Recording) -> list[ReplayedMessage]:
    """Return the messages of a recording, to be used for one run after the other."""
    return [_message(recording, number) for number in range(len(recording.key))]


def _message(recording: Recording, number: int) -> ReplayedMessage:
    terms = (
        recording.key[number],
        recording.weight[number],
        recording.cost[number],
        PRIORITIES[recording.priority[number]],
        recording.throttles[number],
        recording.due_ms[number],
        recording.deadline_ms[number],
    )
    since_ms = recording.at_ms[number]
    queue, cap, order_key = recording.queue[number], recording.cap[number], recording.order_key[number]
    message = ReplayedMessage(number, queue, terms, cap, since_ms, order_key)
    message.begin(recording, recording.first[number])
    return message
