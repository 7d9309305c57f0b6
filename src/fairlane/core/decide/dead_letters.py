"""Redriving: dead letters go back to work, through the normal enqueue flow of the queue that they go to."""

from __future__ import annotations

from typing import Final

from fairlane.core.commands import EndRedrive, Given, MoveDeadLetters
from fairlane.core.dead_letters import dead_before, is_dead_letter
from fairlane.core.decision import Deciders, Decision, known_queue, no_queue, refuse
from fairlane.core.ledger import Ledger, Queue
from fairlane.core.states.redrives import RedriveState
from fairlane.core.terms import resolve, take_rows
from fairlane.errors import FairlaneError, InvalidArgument, NotADlq
from fairlane.journal.records import AnyRecord, RedriveEnd, RedriveEnded, Redriven, RedriveStarted
from fairlane.model.names import is_dlq
from fairlane.model.views import RedriveView
from fairlane.verbs.dead_letters import Redrive


def start(ledger: Ledger, request: Redrive, now_ms: int, given: Given) -> Decision[RedriveView]:
    """Order a redrive. The outcome is how it begins."""
    dlq = source_of(ledger, request)
    if isinstance(dlq, FairlaneError):
        return refuse(dlq)
    number = ledger.next_sequence
    record = RedriveStarted(
        number,
        dlq.name,
        request.wanted,
        len(dead_before(request.wanted, dlq, number)),
        request.count,
        request.rate,
        request.target,
        given.by,
    )
    return Decision([record], RedriveState(record, now_ms).view())


def source_of(ledger: Ledger, request: Redrive) -> Queue | FairlaneError:
    """Return the queue whose dead letters a redrive moves, or why it can't be started."""
    queue, target, count, rate = request.queue, request.target, request.count, request.rate
    dlq = known_queue(ledger, queue)
    if isinstance(dlq, FairlaneError):
        return dlq
    if not (is_dlq(queue) or dlq.dead_letters or _is_named(ledger, queue)):
        return NotADlq(f"Queue {queue!r} is not a dead-letter queue.")
    if target == queue:
        return InvalidArgument(f"The dead letters are already in queue {queue!r}. Name another target, or none.")
    if target is not None and target not in ledger.queues:
        return no_queue(target)
    if target is not None and is_dlq(target):
        return InvalidArgument(f"Queue {target!r} is a dead-letter queue; redrive to a queue that has one.")
    if count is not None and (type(count) is not int or count < 1):
        return InvalidArgument(f"count must be a whole number of at least 1, not {count!r}.")
    if rate is not None and not (isinstance(rate, (int, float)) and 0 < rate < float("inf")):
        return InvalidArgument(f"rate must be a number above 0, in messages per second, not {rate!r}.")
    return dlq


def _is_named(ledger: Ledger, name: str) -> bool:
    return any(queue.policy.dead_letter_queue == name for queue in ledger.queues.values())


def end(ledger: Ledger, command: EndRedrive, now_ms: int, _given: Given) -> Decision[None]:
    """End a redrive, unless it is over."""
    redrive = ledger.redrives.get(command.number)
    if redrive is None or redrive.end is not None:
        return Decision([], None)
    ended = RedriveEnd(command.status, now_ms, command.scanned, command.matched, command.error, command.by)
    return Decision([RedriveEnded(ledger.next_sequence, redrive.order.queue, command.number, ended)], None)


def ended_with(ledger: Ledger, queues: set[str], now_ms: int) -> list[AnyRecord]:
    """Return the records that end the redrives from or to queues that are about to be deleted."""
    records: list[AnyRecord] = []
    for redrive in ledger.redrives.values():
        order = redrive.order
        gone = next((name for name in (order.queue, order.target) if name in queues), None)
        if redrive.end is None and gone is not None:
            moved, error = redrive.moved, f"Queue {gone!r} was deleted."
            ended = RedriveEnd("failed", now_ms, moved, moved, error)
            records.append(RedriveEnded(ledger.next_sequence + len(records), order.queue, redrive.number, ended))
    return records


def move(ledger: Ledger, command: MoveDeadLetters, now_ms: int, _given: Given) -> Decision[int]:
    """Move the dead letters that still exist and are not leased. The outcome is how many."""
    dlq = known_queue(ledger, command.queue)
    if isinstance(dlq, FairlaneError):
        return refuse(dlq)
    target = known_queue(ledger, command.target)
    if isinstance(target, FairlaneError):
        return refuse(target)
    terms = resolve(target, command.messages, command.answers, now_ms)
    rows = []
    for row, number in enumerate(command.numbers):
        message = dlq.messages.get(number)
        if message is not None and not message.token and is_dead_letter(message):
            rows.append(row)
    if not rows:
        return Decision([], 0)
    numbers, moved_terms = [command.numbers[row] for row in rows], take_rows(terms, rows)
    record = Redriven(ledger.next_sequence, dlq.name, numbers, target.name, moved_terms, command.by, command.redrive)
    records: list[AnyRecord] = [record]
    return Decision(records, len(rows))


DECIDERS: Final[Deciders] = {Redrive: start, MoveDeadLetters: move, EndRedrive: end}
