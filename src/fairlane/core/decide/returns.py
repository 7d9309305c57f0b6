"""Returned leases: what becomes of messages that a consumer gives back, or whose leases expire or are released."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fairlane.core.checks import whole_fault
from fairlane.core.commands import Given
from fairlane.core.decide.leases import Outcome, held_under, results_of
from fairlane.core.decide.order import sent_back
from fairlane.core.decide.retries import fate_of, shared_dlq
from fairlane.core.decision import Deciders, Decision, known_queue, refuse
from fairlane.core.ledger import Ledger, Message, Queue
from fairlane.errors import FairlaneError, InvalidArgument
from fairlane.journal.records import LOST, AnyRecord, Dead, DeadReason, Returned, ReturnReason
from fairlane.model import limits
from fairlane.model.message import Became, FailureDetail
from fairlane.verbs.leases import Nack
from fairlane.verbs.messages import Results


def nack(ledger: Ledger, request: Nack, now_ms: int, given: Given) -> Decision[Results]:
    """Give leased messages back: to wait again, or to the dead letters. The outcome says what became of each."""
    queue = known_queue(ledger, request.queue)
    if isinstance(queue, FairlaneError):
        return refuse(queue)
    if (fault := _nack_fault(request)) is not None:
        return refuse(InvalidArgument(fault))
    held, outcome = _held_or_expired(ledger, queue, request, given, now_ms)
    if not held:
        return Decision([], results_of(held, outcome))
    error, detail = _cut(request.error, limits.ERROR_LENGTH_MAX), _bounded(request.detail)
    rows = [row for row, result in enumerate(outcome) if result is None]
    fates = [fate_of(queue, message, request, given, row, now_ms) for message, row in zip(held, rows, strict=True)]
    deferred = _deferred(queue, held, fates, request, given)
    ending = [(message, fate) for message, fate in zip(held, fates, strict=True) if message.number not in deferred]
    reason = "defer" if request.intent == "defer" else given.reason
    records = _returned_records(ledger, queue, ending, reason, error, detail)
    sequence = ledger.next_sequence + sum(record.count for record in records)
    records += _dead_records(ledger, queue, ending, sequence, given.reason, error, detail)
    if deferred:
        records.append(Returned(ledger.next_sequence + len(ending), queue.name, list(deferred), "defer"))
    became = [
        _became(message, 0 if message.number in deferred else fate, now_ms)
        for message, fate in zip(held, fates, strict=True)
    ]
    return Decision(records, results_of(held, outcome, became))


def _returned_records(
    ledger: Ledger,
    queue: Queue,
    ending: Sequence[tuple[Message, int | DeadReason]],
    reason: ReturnReason,
    error: str,
    detail: FailureDetail | None,
) -> list[AnyRecord]:
    """Return the record of the messages that wait again, if there are any."""
    back = [(message.number, fate) for message, fate in ending if isinstance(fate, int)]
    if not back:
        return []
    numbers, due_ms = [number for number, _ in back], [due for _, due in back]
    errors = [error] * len(back) if error else None
    due = due_ms if any(due_ms) else None
    return [Returned(ledger.next_sequence, queue.name, numbers, reason, due, errors, detail)]


def _deferred(
    queue: Queue, held: Sequence[Message], fates: Sequence[int | DeadReason], request: Nack, given: Given
) -> dict[int, Message]:
    """Return the messages that go back because one before them does, by number; with strict order only."""
    if queue.leased_groups is None:
        return {}
    dead = {message.number for message, fate in zip(held, fates, strict=True) if not isinstance(fate, int)}
    is_lost = given.reason in LOST and request.intent != "defer"
    return {message.number: message for message in sent_back(queue, held, dead, is_lost=is_lost)}


def _dead_records(
    ledger: Ledger,
    queue: Queue,
    ending: Sequence[tuple[Message, int | DeadReason]],
    sequence: int,
    ended: ReturnReason,
    error: str,
    detail: FailureDetail | None,
) -> list[AnyRecord]:
    """Return a record for each reason for which messages become dead letters, from a sequence on."""
    records: list[AnyRecord] = []
    for why in ("requested", "hook", "max_attempts", "max_expiries"):
        dead = [message.number for message, fate in ending if fate == why]
        if dead:
            errors = [error] * len(dead) if error else None
            records.append(Dead(sequence, queue.name, dead, why, ended, errors, shared_dlq(ledger, queue), detail))
            sequence += len(dead)
    return records


def _became(message: Message, fate: int | DeadReason, now_ms: int) -> Became:
    if not isinstance(fate, int):
        return "dead"
    if message.deadline_ms is not None and message.deadline_ms < now_ms:
        return "expired"  # it goes back, and the schedule puts it out at once
    return "delayed" if fate > now_ms else "waiting"


def _nack_fault(request: Nack) -> str | None:
    if request.intent not in ("failure", "defer", "dead"):
        return f"intent must be failure, defer or dead, not {request.intent!r:.60}."
    if type(request.error) is not str:
        return f"An error must be text, not {type(request.error).__name__}."
    detail = request.detail
    if detail is not None and {type(detail.traceback), type(detail.worker), type(detail.host)} != {str}:
        return "traceback, worker and host must be text."
    if request.intent == "defer" and (request.error or detail is not None):
        return "A deferred message has not failed, so it has no error: leave the error out, or use intent failure."
    if request.delay_ms is None:
        return None
    return whole_fault("delay_ms", request.delay_ms, least=0, most=limits.TIMESPAN_MS_MAX)


def _bounded(detail: FailureDetail | None) -> FailureDetail | None:
    """Return where and how an attempt failed, with texts of a bounded length."""
    if detail is None:
        return None
    return FailureDetail(
        traceback=_cut(detail.traceback[-limits.TRACEBACK_LENGTH_MAX :], limits.TRACEBACK_LENGTH_MAX),
        worker=_cut(detail.worker, limits.OWNER_LENGTH_MAX),
        host=_cut(detail.host, limits.OWNER_LENGTH_MAX),
    )


def _cut(text: str, most: int) -> str:
    return text[:most].encode(errors="replace").decode()


def _held_or_expired(
    ledger: Ledger, queue: Queue, request: Nack, given: Given, now_ms: int
) -> tuple[list[Message], Outcome]:
    """Return the held messages; where it is the broker that takes back leases which have ended, those too."""
    return held_under(ledger, queue, request.receipts, 0 if given.reason == "expiry" else now_ms)


DECIDERS: Final[Deciders] = {Nack: nack}
