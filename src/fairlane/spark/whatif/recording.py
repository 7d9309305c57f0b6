"""A recording: the messages, attempts, changes and consumers of a group of queues, ready to be replayed.

A *part* is one stay of a message in a queue, from its enqueue or redrive on. Parts are held in columns. Those that the
loop of the simulation reads are lists, or arrays of the standard library where values differ from message to message:
an element of NumPy's arrays is slow to read, and a list of large integers takes five times the memory of an array.
Instants count from the first event, so that they stay small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fairlane.journal.records import AnyRecord
from fairlane.model.message import Key
from fairlane.spark.whatif.attempts import Attempts, Leases, removals
from fairlane.spark.whatif.consumers import ConsumerKind, consumers_of
from fairlane.spark.whatif.files import CHANGE_KINDS, MESSAGE_KINDS, read_events
from fairlane.spark.whatif.records import records_of
from fairlane.spark.whatif.rows import NEVER, Ints, MessageRows, Parts, column_of
from fairlane.spark.whatif.twin.steps import JournalSteps, steps_of


@dataclass(frozen=True, slots=True)
class Change:
    """Something that operators, clients or the broker itself did, other than enqueue, lease and end a lease.

    Attributes:
        sequence: the sequence of its event.
        at_ms: when it happened.
        before: it happened before the part of this number came.
        record: the record of it; None for a part that was taken out.
        part: that part.
    """

    sequence: int
    at_ms: int
    before: int
    record: AnyRecord | None
    part: int = NEVER


@dataclass(frozen=True, slots=True)
class Recording:
    """A group of queues, ready to be replayed.

    Attributes:
        queues: the queues, by number.
        sequence: the first of the journal's sequences, which tells the partition it is of.
        first_ms: the instant that all others are counted from.
        last_ms: when the journal ends.
        queue: of each part its queue; parts are in the order in which they came.
        at_ms: when each came.
        key, cost, priority, throttles, due_ms, deadline_ms, weight, cap, order_key: on which terms; weight 0 for none
            told.
        first: which attempt is each part's first; they follow on one another.
        hold_ms: how long each lease lasts.
        busy_ms: how long a consumer works under it: less than the lease lasts if it worked on other messages first, or
            if the lease expired.
        end: how each ends.
        delay_ms: for how long the message then waits before it is due again.
        settle: true cost less estimate, for attempts that were acked.
        changes: what else happened.
        consumers: of each queue, its consumers.
        leased_ms: when each part was first leased, as journalled; -1 for never.
        throttled_ms, capped_ms, paused_ms: how long it was held up before that, as journalled.
        tells: whether some message told a weight or a cap.
        is_plain: whether each consumer is one lease.
        is_timed: whether time alone can change anything: by a throttle, a delay or a deadline.
        assumed: how many attempts were never seen to end, so that their length is their key's median.
        unknown: how many messages of each queue came before the journal begins; they are left out.
    """

    queues: tuple[str, ...]
    sequence: int
    first_ms: int
    last_ms: int
    queue: list[int]
    at_ms: Sequence[int]
    key: list[Key]
    cost: list[int]
    priority: list[int]
    throttles: list[tuple[str, ...]]
    due_ms: list[int | None]
    deadline_ms: list[int | None]
    weight: list[int]
    cap: list[int | None]
    order_key: list[str | None]
    first: Sequence[int]
    hold_ms: Sequence[int]
    busy_ms: Sequence[int]
    end: list[int]
    delay_ms: Sequence[int]
    settle: Sequence[int]
    changes: list[Change]
    consumers: list[list[ConsumerKind]]
    leased_ms: Ints
    throttled_ms: Ints
    capped_ms: Ints
    paused_ms: Ints
    tells: bool
    is_plain: bool
    is_timed: bool
    assumed: int
    unknown: list[int]


def record(files: Sequence[Path], queues: tuple[str, ...]) -> Recording:
    """Read the recording of a group of queues from a journal."""
    return recording_of(read_events(files, queues=queues), queues)


def record_with_steps(
    files: Sequence[Path], queues: tuple[str, ...], *, steps_from: int
) -> tuple[Recording, JournalSteps | None]:
    """Read the recording of a group of queues; with its events in order, if it has that many messages."""
    return _recorded(read_events(files, queues=queues), queues, steps_from=steps_from)


def recording_of(table: pa.Table, queues: tuple[str, ...]) -> Recording:
    """Return the recording of a group of queues from events."""
    return _recorded(table, queues, steps_from=None)[0]


def _recorded(
    table: pa.Table, queues: tuple[str, ...], *, steps_from: int | None
) -> tuple[Recording, JournalSteps | None]:
    first_ms, last_ms = (int(table["at_ms"][at].as_py()) if table.num_rows else 0 for at in (0, -1))
    sequence = int(table["sequence"][0].as_py()) if table.num_rows else 1
    changed = table.filter(pc.is_in(table["kind"], pa.array(CHANGE_KINDS)))
    rows = MessageRows(table.filter(is_of_message(table)), queues, first_ms)
    del table  # the rows have a copy of what they need
    parts = Parts(rows)
    leases = Leases(rows, parts)
    terms = rows.terms(parts.start)
    consumers, attempts = _work(rows, leases, terms, len(queues))
    changes = [*_changes(changed, first_ms, parts), *_removals(rows, parts)]
    first = leases.first_of_parts()
    unknown = [np.unique(rows.number[parts.unknown & (rows.queue == at)]) for at in range(len(queues))]
    has_steps = steps_from is not None and parts.start.size >= steps_from
    recording = Recording(
        queues=queues,
        sequence=sequence,
        first_ms=first_ms,
        last_ms=last_ms - first_ms,
        queue=rows.queue[parts.start].tolist(),
        at_ms=column_of(rows.at_ms[parts.start]),
        **terms,
        first=column_of(attempts.first),
        hold_ms=column_of(attempts.hold_ms),
        busy_ms=column_of(attempts.busy_ms),
        end=attempts.end.tolist(),
        delay_ms=column_of(attempts.delay_ms),
        settle=column_of(attempts.settle),
        changes=sorted(changes, key=lambda change: change.sequence),
        consumers=consumers,
        leased_ms=np.where(first == NEVER, NEVER, rows.at_ms[first]),
        throttled_ms=np.where(first == NEVER, 0, rows.ints("throttled_ms")[first]),
        capped_ms=np.where(first == NEVER, 0, rows.ints("capped_ms")[first]),
        paused_ms=np.where(first == NEVER, 0, rows.ints("paused_ms")[first]),
        tells=any(terms["weight"]) or any(cap is not None for cap in terms["cap"]),
        is_plain=all(kind.is_plain for kinds in consumers for kind in kinds),
        is_timed=any(terms["throttles"]) or bool(attempts.delay_ms.any()) or _has_instants(terms),
        assumed=attempts.assumed,
        unknown=[int(numbers.size) for numbers in unknown],
    )
    return recording, steps_of(rows, parts) if has_steps else None


def _work(
    rows: MessageRows, leases: Leases, terms: dict[str, list[Any]], queues: int
) -> tuple[list[list[ConsumerKind]], Attempts]:
    """Return the consumers of each queue, and all attempts with the work that each took of them."""
    begin_ms, consumers = rows.at_ms[leases.row], []
    for queue in range(queues):
        places, log = leases.log_of(queue, terms["throttles"])
        found = consumers_of(log)
        begin_ms[places] = found.begin_ms
        consumers.append(found.kinds)
    return consumers, leases.attempts(terms["key"], begin_ms)


def is_of_message(table: pa.Table) -> pa.ChunkedArray:
    """Return which events are of messages in a queue; staged messages are not in their queue yet."""
    is_unstaged = pc.fill_null(pc.equal(table["reason"], "unstaged"), pa.scalar(value=False))
    return pc.and_not(pc.is_in(table["kind"], pa.array(MESSAGE_KINDS)), is_unstaged)


def _has_instants(terms: dict[str, list[Any]]) -> bool:
    return any(at_ms is not None for name in ("due_ms", "deadline_ms") for at_ms in terms[name])


def _changes(table: pa.Table, first_ms: int, parts: Parts) -> list[Change]:
    return [
        Change(
            sequence=record.sequence,
            at_ms=at_ms - first_ms,
            before=int(np.searchsorted(parts.sequence, record.sequence)),
            record=record,
        )
        for at_ms, record in records_of(table)
    ]


def _removals(rows: MessageRows, parts: Parts) -> list[Change]:
    return [
        Change(
            sequence=int(rows.sequence[row]),
            at_ms=int(rows.at_ms[row]),
            before=int(np.searchsorted(parts.sequence, rows.sequence[row])),
            record=None,
            part=int(parts.of_row[row]),
        )
        for row in removals(rows, parts)
    ]
