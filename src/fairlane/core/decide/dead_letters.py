"""Redriving: dead letters go back to work, through the normal enqueue flow of the queue that they go to."""

from __future__ import annotations

from typing import Final

from fairlane.core.commands import Given, MoveDeadLetters
from fairlane.core.decision import Deciders, Decision, known_queue, refuse
from fairlane.core.ledger import Ledger
from fairlane.core.terms import resolve, take_rows
from fairlane.errors import FairlaneError, NotADlq
from fairlane.journal.records import AnyRecord, Redriven
from fairlane.model.names import is_dlq


def move(ledger: Ledger, command: MoveDeadLetters, now_ms: int, _given: Given) -> Decision[int]:
    """Move the dead letters that still exist and are not leased. The outcome is how many."""
    dlq = known_queue(ledger, command.queue)
    if isinstance(dlq, FairlaneError):
        return refuse(dlq)
    target = known_queue(ledger, command.target)
    if isinstance(target, FairlaneError):
        return refuse(target)
    if not is_dlq(dlq.name):
        return refuse(NotADlq(f"Queue {dlq.name!r} is not a dead-letter queue."))
    terms = resolve(target, command.messages, command.answers, now_ms)
    rows = []
    for row, number in enumerate(command.numbers):
        message = dlq.messages.get(number)
        if message is not None and not message.token:
            rows.append(row)
    if not rows:
        return Decision([], 0)
    numbers = [command.numbers[row] for row in rows]
    record = Redriven(ledger.next_sequence, dlq.name, numbers, target.name, take_rows(terms, rows), command.by)
    records: list[AnyRecord] = [record]
    return Decision(records, len(rows))


DECIDERS: Final[Deciders] = {MoveDeadLetters: move}
