"""The order of hand-outs once more: the broker's own ledger and schedule follow the journal, and pick when it did.

Every ``leased`` record is one pick at its instant, of as many messages as were asked for. What the schedule picks is
compared with what the journal says was leased. Where they differ it is told, and the journal is believed, so that one
difference does not make all that follows look wrong.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa

from fairlane.core.apply import apply
from fairlane.core.ledger import Ledger, Message
from fairlane.core.schedule import Schedule
from fairlane.journal.records import AnyRecord, Dead, Leased, Opened, QueueSet, Removed
from fairlane.model.names import dlq_of, id_of
from fairlane.spark.whatif.files import chosen, groups, journal_files, read_events, survey
from fairlane.spark.whatif.records import records_of


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
    replay = _Replay()
    for at_ms, record in replay.with_moves(records_of(events)):
        replay.follow(record, at_ms)
    return Reproduction(
        hand_outs=replay.hand_outs, messages=replay.messages, differences=replay.differences, skipped=replay.skipped
    )


class _Replay:
    """A ledger and a schedule that follow the journal."""

    def __init__(self) -> None:
        self._ledger = Ledger()
        self._schedule = Schedule(self._ledger, 0)
        self._moves: deque[tuple[int, int, int, str]] = deque()
        self.hand_outs = 0
        self.messages = 0
        self.skipped = 0
        self.differences: list[Difference] = []

    def with_moves(self, records: Iterable[tuple[int, AnyRecord]]) -> list[tuple[int, AnyRecord]]:
        """Return records, having taken note of what later ones tell of the time before them."""
        found = list(records)
        moves = [
            # Who asks in vain ends a hand-out; before one, at the same instant, there would have been something.
            (sequence + (sequence == record.sequence and at_ms == now_ms and asked > 0), at_ms, asked, record.queue)
            for now_ms, record in found
            if isinstance(record, Leased) and record.picking is not None
            for sequence, at_ms, asked in record.picking.moves or ()
        ]
        self._moves = deque(sorted(moves, key=lambda move: move[:2]))
        return found

    def follow(self, record: AnyRecord, at_ms: int) -> None:
        """Do what the broker did."""
        while self._moves and self._moves[0][0] <= record.sequence:
            self._move(*self._moves.popleft())
        if isinstance(record, Opened):
            self._reopen(record.built_ms or at_ms)
        elif not self._is_known(record):
            return
        elif isinstance(record, Leased):
            self._lease(record, at_ms)
        else:
            if isinstance(record, (Removed, Dead)) and record.reason == "deadline":
                self._schedule.kernel(record.queue).reap(at_ms)
            self._schedule.prepare(record)
        messages = apply(self._ledger, record, at_ms)
        self._schedule.follow(record, messages, at_ms)

    def _is_known(self, record: AnyRecord) -> bool:
        """Tell whether the queue of a record was made since the journal begins."""
        queue = getattr(record, "queue", None)
        return queue is None or isinstance(record, QueueSet) or queue in self._ledger.queues

    def _move(self, _sequence: int, at_ms: int, asked: int, queue: str) -> None:
        """Ask in vain, or let only time pass."""
        if queue not in self._ledger.queues:
            return
        if asked:
            self._give_back(queue, self._schedule.pick(queue, asked, at_ms), at_ms)
        self._schedule.kernel(queue).reap(at_ms)

    def _give_back(self, queue: str, picked: list[Message], at_ms: int) -> None:
        kernel = self._schedule.kernel(queue)
        for message in picked:
            kernel.release(message.key)
            kernel.offer(message, at_ms)

    def _reopen(self, built_ms: int) -> None:
        """Begin anew with what the ledger knows."""
        for queue in self._ledger.queues.values():
            for message in queue.messages.values():
                message.lane = message.next = message.previous = message.held = None
                message.sequence = 0
        self._schedule = Schedule(self._ledger, built_ms)

    def _lease(self, record: Leased, at_ms: int) -> None:
        known = self._ledger.queues[record.queue].messages
        picked = self._pick(record, at_ms)
        numbers = [message.number for message in picked]
        self._schedule.kernel(record.queue).reap()
        if any(number not in known for number in record.numbers):
            self.skipped += 1
        else:
            self.hand_outs += 1
            self.messages += len(numbers)
            if numbers != record.numbers:
                journalled, replayed = [id_of(n) for n in record.numbers], [id_of(n) for n in numbers]
                self.differences.append(
                    Difference(sequence=record.sequence, queue=record.queue, journalled=journalled, replayed=replayed)
                )
        if numbers != record.numbers:
            self._believe(record, picked, at_ms)

    def _pick(self, record: Leased, at_ms: int) -> list[Message]:
        """Pick as often as was picked: a claim that is bounded by bytes asks for one message after the other."""
        count = len(record.numbers)
        asked = record.picking.asked if record.picking is not None else count
        picked: list[Message] = []
        for _ in range(-(-count // asked)):
            picked += self._schedule.pick(record.queue, asked, at_ms)
        return picked

    def _believe(self, record: Leased, picked: list[Message], at_ms: int) -> None:
        """Let those be leased that the journal says, and those wait that it does not."""
        kernel = self._schedule.kernel(record.queue)
        leased = set(record.numbers)
        self._give_back(record.queue, [message for message in picked if message.number not in leased], at_ms)
        right = {message.number for message in picked}
        known = self._ledger.queues[record.queue].messages
        for message in (known[number] for number in record.numbers if number in known and number not in right):
            kernel.cancel(message)
            kernel.occupy(message.key)
