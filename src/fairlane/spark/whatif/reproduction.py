"""The order of hand-outs, reproduced: the queues that make forecasts follow the journal, and pick when the broker did.

Every ``leased`` record is one pick at its instant, of as many messages as the consumer requested. What the replayed
queue picks is compared with what the journal says was leased. A difference is reported, and then the journal's version
is taken, so that one difference does not make everything after it look wrong.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from fairlane.core.apply.messages import rows_of
from fairlane.core.ledger import TermsRow
from fairlane.core.states.aftermath import Aftermath
from fairlane.journal import records as journal
from fairlane.journal.records import AnyRecord, OfMessages
from fairlane.model.ids import number_text
from fairlane.model.names import dlq_of
from fairlane.spark.whatif.files import chosen, groups, journal_files, read_events, survey
from fairlane.spark.whatif.messages import ReplayedMessage
from fairlane.spark.whatif.queues import ReplayedQueue, ReplayedQueues
from fairlane.spark.whatif.records import records_of
from fairlane.spark.whatif.scenario import ORIGINAL, Scenario


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A hand-out that came out otherwise than the journal has it.

    Attributes:
        sequence: of the first event of the hand-out.
        journalled: the ids of the messages, in the order in which they were leased.
        replayed: those of the messages that the schedule picked.
    """

    sequence: int
    queue: str
    journalled: list[str]
    replayed: list[str]


class Reproduction(msgspec.Struct, frozen=True, kw_only=True):
    """How well a journal's order of hand-outs was reproduced.

    Attributes:
        hand_outs: how many were compared.
        messages: how many messages were handed out in them.
        differences: those that came out otherwise; the first is the one to look at.
        skipped: hand-outs that were not compared, since they had messages from before the journal begins.
    """

    hand_outs: int
    messages: int
    differences: list[Difference]
    skipped: int

    @property
    def is_exact(self) -> bool:
        """Whether every hand-out came out as the journal has it."""
        return not self.differences


def reproduce(folder: Path | str, *, queues: Sequence[str] = ()) -> Reproduction:
    """Hand out again what an exported journal says was handed out.

    Args:
        folder: where the journal is.
        queues: which queues to look at, with all that share a throttle with them; none for all.

    Raises:
        JournalIncomplete: there is no journal there, or it has a gap.
        QueueNotFound: it does not speak of a queue.
    """
    files = journal_files(folder)
    if not queues:
        return reproduction_of(read_events(files, queues=None))
    found = survey(files)
    members = [name for group in groups(found, chosen(found, queues)) for name in group]
    return reproduction_of(read_events(files, queues=[*members, *map(dlq_of, members)]))


def reproduction_of(events: pa.Table) -> Reproduction:
    """Hand out again what events say was handed out."""
    records = list(records_of(events))
    reproducer = _Reproducer(records)
    for at_ms, record in records:
        reproducer.follow(record, at_ms)
    return Reproduction(
        hand_outs=reproducer.hand_outs,
        messages=reproducer.messages,
        differences=reproducer.differences,
        skipped=reproducer.skipped,
    )


class _Reproducer:
    """Replayed queues that do what the journal says."""

    def __init__(self, records: list[tuple[int, AnyRecord]]) -> None:
        sequence = records[0][1].sequence if records else 1
        self._queues = ReplayedQueues(sequence, Scenario(name=ORIGINAL), self._leased_now)
        self._alive: dict[int, ReplayedMessage] = {}
        self._leased: dict[int, ReplayedMessage] = {}
        self._moves = deque(_moves(records))
        self.hand_outs = 0
        self.messages = 0
        self.skipped = 0
        self.differences: list[Difference] = []

    def _leased_now(self) -> list[ReplayedMessage]:
        return list(self._leased.values())

    def follow(self, record: AnyRecord, at_ms: int) -> None:
        """Do what the broker did."""
        while self._moves and self._moves[0][0] <= record.sequence:
            self._move(*self._moves.popleft())
        if isinstance(record, journal.Opened):
            self._queues.reopen(record.built_ms or at_ms)
        elif isinstance(record, _CHANGES):
            self._change(record, at_ms)
        elif (follow := _FOLLOWERS.get(type(record))) is not None:
            queue = self._queues.get(record.queue)  # type: ignore[union-attr] # all of them have one
            if queue is not None:  # else it was created before the journal begins, and nothing is known of it
                follow(self, queue, record, at_ms)

    def _change(self, record: AnyRecord, at_ms: int) -> None:
        queue = getattr(record, "queue", None)
        known = None if queue is None else self._queues.get(queue)
        if queue is not None and known is None and not isinstance(record, journal.QueueSet):
            return
        if isinstance(record, journal.QueueRemoved) and known is not None:
            for message in [message for message in self._alive.values() if message.queue == known.number]:
                self._forget(message, at_ms)
        self._queues.change(record, at_ms)

    def _forget(self, message: ReplayedMessage, at_ms: int) -> None:
        self._queues.remove(message, at_ms)
        del self._alive[message.number]
        self._leased.pop(message.number, None)

    def _known(self, record: OfMessages) -> list[ReplayedMessage]:
        return [self._alive[number] for number in record.numbers if number in self._alive]

    # ------------------------------------------------------------------------------------------- coming and going

    def enqueued(self, queue: ReplayedQueue, record: journal.Enqueued | journal.Published, at_ms: int) -> None:
        """Add new messages."""
        numbers = (
            record.numbers
            if isinstance(record, journal.Published)
            else range(record.sequence, record.sequence + record.count)
        )
        new = []
        for at, number, terms, cap, order_key in _terms_of(record, numbers):
            message = self._alive[number] = ReplayedMessage(number, queue.number, terms, cap, at_ms, order_key)
            message.joined = at
            new.append(message)
        queue.schedule.offer_new(new, at_ms)

    def acked(self, queue: ReplayedQueue, record: journal.Acked, at_ms: int) -> None:
        """End leases for good, or take out messages that wait since their leases were lost."""
        known = self._known(record)
        if not record.is_late:
            queue.schedule.release(known, at_ms)
        if record.costs is not None:
            costs = dict(zip(record.numbers, record.costs, strict=True))
            queue.schedule.settle(known, [costs[message.number] for message in known])
        for message in known:
            self._forget(message, at_ms)

    def returned(self, queue: ReplayedQueue, record: journal.Returned, at_ms: int) -> None:
        """End leases, and offer the messages again."""
        known = self._known(record)
        due_ms = dict(zip(record.numbers, record.due_ms or [0] * record.count, strict=True))
        self._rejoin(record, known, at_ms, keeps_place=queue.is_strict)
        for message in known:
            message.reschedule(due_ms=due_ms[message.number] or None, deadline_ms=message.deadline_ms)
        queue.schedule.take_back(known, at_ms)

    def dead(self, queue: ReplayedQueue, record: journal.Dead, at_ms: int) -> None:
        """Move messages to the dead-letter queue."""
        known = self._known(record)
        self._expire(queue, record.reason, at_ms)
        if record.ended is not None:
            queue.schedule.release(known, at_ms)
        else:
            queue.schedule.cancel(known, at_ms)
        dlq = self._queues.get(record.dlq)
        self._rejoin(record, known, at_ms)
        for message in known:
            message.reschedule()
            message.after = message.after or Aftermath()
            message.after.origin = record.queue
            if dlq is not None:
                message.queue = dlq.number
        if dlq is not None:
            dlq.schedule.offer(known, at_ms)

    def removed(self, queue: ReplayedQueue, record: journal.Removed, at_ms: int) -> None:
        """Take messages out."""
        self._expire(queue, record.reason, at_ms)
        for message in self._known(record):
            self._forget(message, at_ms)

    def redriven(self, queue: ReplayedQueue, record: journal.Redriven, at_ms: int) -> None:
        """Move dead letters to a queue, on new terms."""
        target = self._queues.get(record.target)
        moved = []
        for at, number, terms, cap, order_key in _terms_of(record, record.numbers):
            message = self._alive.get(number)
            if message is None or target is None:
                continue
            queue.schedule.cancel([message], at_ms)
            message.set_terms(terms, cap, order_key)
            message.queue, message.joined, message.since_ms = target.number, at, at_ms
            moved.append(message)
        if target is not None:
            target.schedule.offer_new(moved, at_ms)

    def _rejoin(
        self, record: OfMessages, known: list[ReplayedMessage], at_ms: int, *, keeps_place: bool = False
    ) -> None:
        places = {number: record.sequence + at for at, number in enumerate(record.numbers)}
        for message in known:
            self._leased.pop(message.number, None)
            message.since_ms = at_ms
            if not keeps_place:
                message.joined = places[message.number]

    def _expire(self, queue: ReplayedQueue, reason: str, at_ms: int) -> None:
        """Move time forward where the broker did: it noticed that deadlines had passed."""
        if reason == "deadline":
            queue.kernel.reap(at_ms)

    # ---------------------------------------------------------------------------------------------------- picking

    def _move(self, _sequence: int, at_ms: int, asked: int, name: str) -> None:
        """Request messages in vain, or only move time forward."""
        queue = self._queues.get(name)
        if queue is None:
            return
        if asked:
            picked, _ = queue.schedule.pick(asked, at_ms)
            self._give_back(queue, picked, at_ms)
        queue.kernel.reap(at_ms)

    def _give_back(self, queue: ReplayedQueue, picked: list[ReplayedMessage], at_ms: int) -> None:
        for message in picked:
            queue.schedule.take_back([message], at_ms)

    def leased(self, queue: ReplayedQueue, record: journal.Leased, at_ms: int) -> None:
        """Pick, and compare."""
        picked = self._pick(queue, record, at_ms)
        numbers = [message.number for message in picked]
        queue.kernel.reap()
        if any(number not in self._alive for number in record.numbers):
            self.skipped += 1
        else:
            self.hand_outs += 1
            self.messages += len(numbers)
            if numbers != record.numbers:
                journalled, replayed = [number_text(n) for n in record.numbers], [number_text(n) for n in numbers]
                self.differences.append(
                    Difference(sequence=record.sequence, queue=record.queue, journalled=journalled, replayed=replayed)
                )
        if numbers != record.numbers:
            self._believe(queue, record, picked, at_ms)
        self._leased |= {message.number: message for message in self._known(record)}

    def _pick(self, queue: ReplayedQueue, record: journal.Leased, at_ms: int) -> list[ReplayedMessage]:
        """Pick as often as the broker did: a claim that is bounded by bytes asks for one message after the other."""
        count = len(record.numbers)
        asked = record.picking.asked if record.picking is not None else count
        picked: list[ReplayedMessage] = []
        is_single = record.picking is not None and record.picking.is_single
        for _ in range(-(-count // asked)):
            picked += queue.schedule.pick(asked, at_ms, is_single=is_single, is_part=True)[0]
        for _, _, vain, _ in _asked_within(record, at_ms):
            self._give_back(queue, queue.schedule.pick(vain, at_ms, is_single=is_single, is_part=True)[0], at_ms)
        queue.kernel.end_take()
        return picked

    def _believe(self, queue: ReplayedQueue, record: journal.Leased, picked: list[ReplayedMessage], at_ms: int) -> None:
        """Lease the messages that the journal names, and offer again those that it does not."""
        leased = set(record.numbers)
        self._give_back(queue, [message for message in picked if message.number not in leased], at_ms)
        right = {message.number for message in picked}
        for message in self._known(record):
            if message.number not in right:
                queue.kernel.cancel(message, at_ms)
                queue.kernel.occupy(message.key)
                queue.kernel.resume_order([message])


_CHANGES = (journal.QueueSet, journal.QueueRemoved, journal.QueuePaused, journal.ConfigSet)
_FOLLOWERS: dict[type[AnyRecord], Callable[[_Reproducer, ReplayedQueue, Any, int], None]] = {
    journal.Enqueued: _Reproducer.enqueued,
    journal.Published: _Reproducer.enqueued,
    journal.Leased: _Reproducer.leased,
    journal.Acked: _Reproducer.acked,
    journal.Returned: _Reproducer.returned,
    journal.Dead: _Reproducer.dead,
    journal.Removed: _Reproducer.removed,
    journal.Redriven: _Reproducer.redriven,
}


def _moves(records: list[tuple[int, AnyRecord]]) -> list[tuple[int, int, int, str]]:
    """Return what leases tell of the time before them: sequence, instant, messages requested in vain, and queue."""
    moves = [
        (sequence, at_ms, asked, queue or record.queue)
        for now_ms, record in records
        if isinstance(record, journal.Leased) and record.picking is not None
        for sequence, at_ms, asked, queue in record.picking.moves or ()
        if (sequence, at_ms, asked, queue) not in _asked_within(record, now_ms)
    ]
    return sorted(moves, key=lambda move: move[:2])


def _asked_within(record: journal.Leased, now_ms: int) -> list[tuple[int, int, int, str]]:
    """Return the requests in vain with which a hand-out of one message after the other ended.

    They have the sequence of the hand-out itself. Before it, at the same instant, they would have found something.
    """
    moves = record.picking.moves if record.picking is not None else None
    return [move for move in moves or () if move[2] and (move[0], move[1], move[3]) == (record.sequence, now_ms, "")]


def _terms_of(
    record: journal.Enqueued | journal.Published | journal.Redriven, numbers: Sequence[int]
) -> Iterator[tuple[int, int, TermsRow, int | None, str | None]]:
    """Yield for each message the sequence of its event, its number, its terms, its cap and its order key."""
    caps = record.terms.caps or [None] * len(numbers)
    order_keys = record.terms.order_keys or [None] * len(numbers)
    sequences = range(record.sequence, record.sequence + len(numbers))
    yield from zip(sequences, numbers, rows_of(record.terms), caps, order_keys, strict=True)
