"""Leases: who may ack, nack, extend and write state, and what becomes of a message then.

Every right is checked by id and fencing token together. A message that is not there any more is *not found*; one that
is there under another lease, or none, is a *mismatch*. Neither changes anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Final

from fairlane.core.checks import whole_fault
from fairlane.core.commands import Given, LeasePicked, Remove
from fairlane.core.decide.enqueue import enqueue
from fairlane.core.decide.retries import fate_of, shared_dlq
from fairlane.core.decision import Deciders, Decision, known_queue, no_queue, refuse
from fairlane.core.ledger import Ledger, Message, Queue
from fairlane.errors import (
    FairlaneError,
    InvalidArgument,
    LeaseMismatch,
    MessageNotFound,
    NotPending,
    StateMismatch,
)
from fairlane.journal.records import (
    Acked,
    AnyRecord,
    Dead,
    DeadReason,
    Enqueued,
    Extended,
    Leased,
    Removed,
    Returned,
    ReturnReason,
    StateRemoved,
    StateSet,
)
from fairlane.model import limits
from fairlane.model.ids import number_text
from fairlane.model.message import NEVER_MS, Became, Receipt
from fairlane.model.names import is_dlq
from fairlane.verbs.errors import body_of
from fairlane.verbs.leases import Ack, Etag, Extend, Forward, ForwardedIds, Nack, SetState
from fairlane.verbs.messages import Cancel, Enqueue, Result, Results

Outcome = list[FairlaneError | None]
_OK: Final = Result()


def _results(messages: Iterable[Message], outcome: Outcome, became: Iterable[Became | None] = repeat(None)) -> Results:
    """Return the result for each item.

    The messages, and what became of them, are those of the items without an error, in order.
    """
    found, results = zip(messages, became, strict=False), []
    for error in outcome:
        if error is not None:
            results.append(Result(error=body_of(error)))
            continue
        message, fate = next(found)
        correlation_id = None if message.chunk.correlation_ids is None else message.correlation_id
        is_plain = correlation_id is None and fate is None  # as nearly all are: they share one result
        results.append(_OK if is_plain else Result(correlation_id=correlation_id, became=fate))
    return Results(results=results)


def lease(ledger: Ledger, request: LeasePicked, now_ms: int, _given: Given) -> Decision[int]:
    """Lease what the schedule has picked. The outcome is the instant at which the leases end."""
    queue, span_ms = ledger.queues[request.queue], request.visibility_ms
    expires_ms = now_ms + (queue.policy.visibility_timeout_ms if span_ms is None else span_ms)
    record = Leased(ledger.next_sequence, request.queue, request.numbers, expires_ms, request.owner, request.picking)
    if span_ms is None:
        messages = queue.messages
        for number in request.numbers:  # not a comprehension: most messages have no timeout of their own
            if messages[number].after is not None:
                record.ends_ms = _own_ends(queue, request.numbers, now_ms, expires_ms)
                break
    return Decision([record], expires_ms)


def _own_ends(queue: Queue, numbers: Sequence[int], now_ms: int, expires_ms: int) -> list[int] | None:
    """Return when the leases of messages end by their own timeouts, or None if that is the usual instant for all."""
    ends_ms = [now_ms + queue.messages[number].visibility_ms for number in numbers]
    return None if ends_ms.count(expires_ms) == len(ends_ms) else ends_ms


def extend(ledger: Ledger, request: Extend, now_ms: int, _given: Given) -> Decision[Results]:
    """Extend leases from now on. The outcome has the instant at which each ends, or an error.

    A lease under a claim has no end, and stays as it is.
    """
    queue = known_queue(ledger, request.queue)
    if isinstance(queue, FairlaneError):
        return refuse(queue)
    span_ms = request.visibility_ms
    if span_ms is not None:
        fault = whole_fault("visibility_ms", span_ms, least=1, most=limits.TIMESPAN_MS_MAX)
        if fault is not None:
            return refuse(InvalidArgument(fault))
    held, results = _held(queue, request.receipts, now_ms)
    ends_ms = [
        NEVER_MS if message.is_claimed else now_ms + (message.visibility_ms if span_ms is None else span_ms)
        for message in held
    ]
    extended = (
        Result(expires_ms=end_ms, correlation_id=message.correlation_id)
        for message, end_ms in zip(held, ends_ms, strict=True)
    )
    outcome = Results(results=[next(extended) if error is None else Result(error=body_of(error)) for error in results])
    return Decision(_extended(ledger, queue, held, ends_ms), outcome)


def _extended(ledger: Ledger, queue: Queue, held: Sequence[Message], ends_ms: Sequence[int]) -> list[AnyRecord]:
    """Return a record for each instant at which leases are to end."""
    by_end: dict[int, list[int]] = {}
    for message, end_ms in zip(held, ends_ms, strict=True):
        if end_ms != NEVER_MS:
            by_end.setdefault(end_ms, []).append(message.number)
    records: list[AnyRecord] = []
    sequence = ledger.next_sequence
    for end_ms, numbers in by_end.items():
        records.append(Extended(sequence, queue.name, numbers, end_ms))
        sequence += len(numbers)
    return records


def _held(queue: Queue, receipts: Sequence[Receipt], now_ms: int) -> tuple[list[Message], Outcome]:
    """Return the messages whose leases the receipts are the right of, and for each receipt None or an error.

    A receipt that comes twice counts once. A lease ends at its instant, whether or not the engine has noticed yet.
    """
    outcome: Outcome = [None] * len(receipts)
    all_held = _all_held(queue, receipts, now_ms)
    if all_held is not None:
        return all_held, outcome
    messages = queue.messages
    held: list[Message] = []
    seen: set[int] = set()
    for row, receipt in enumerate(receipts):
        number = queue.ids.number_of(receipt.id)
        message = None if number is None else messages.get(number)
        if message is None:
            outcome[row] = MessageNotFound(f"Queue {queue.name!r} has no message {receipt.id!r:.60}.")
        elif message.token != receipt.token or not message.token or message.expires_ms <= now_ms or number in seen:
            outcome[row] = LeaseMismatch(f"Message {receipt.id} is not under lease {receipt.token!r:.30}.")
        else:
            seen.add(message.number)
            held.append(message)
    return held, outcome


def _all_held(queue: Queue, receipts: Sequence[Receipt], now_ms: int) -> list[Message] | None:
    """Return the messages of receipts that are all good, which takes half the time. None means: look at each."""
    numbers = queue.ids.numbers_of([receipt.id for receipt in receipts])
    if numbers is None or len(set(numbers)) < len(numbers):
        return None
    try:
        held = list(map(queue.messages.__getitem__, numbers))
    except KeyError:
        return None
    for message, receipt in zip(held, receipts, strict=True):
        token = message.token
        if token != receipt.token or not token or message.expires_ms <= now_ms:
            return None
    return held


# -------------------------------------------------------------------------------------------------------------- ack


def ack(ledger: Ledger, request: Ack, now_ms: int, _given: Given) -> Decision[Results]:
    """Acknowledge leased messages. The outcome has an empty result or an error for each."""
    queue = ledger.queues.get(request.queue)
    if queue is None:
        return refuse(no_queue(request.queue))
    receipts = request.receipts
    costs = [receipt.cost for receipt in receipts]
    is_plain = costs.count(None) == len(costs)
    if not is_plain and (fault := _costs_fault(costs)) is not None:
        return refuse(InvalidArgument(fault))
    held, outcome = _held(queue, receipts, 0 if queue.policy.late_ack else now_ms)
    records: list[AnyRecord] = []
    if held:
        good = None if is_plain else [cost for cost, error in zip(costs, outcome, strict=True) if error is None]
        records.append(Acked(ledger.next_sequence, queue.name, [message.number for message in held], good))
    if queue.policy.late_ack and (late := _late(queue, receipts, outcome)):
        said = None if is_plain else [costs[row] for row in late.values()]
        records.append(Acked(ledger.next_sequence + len(held), queue.name, list(late), said, is_late=True))
        rows = zip(receipts, outcome, strict=True)
        held = [queue.messages[queue.ids.number_of(receipt.id) or 0] for receipt, error in rows if error is None]
    return Decision(records, _results(held, outcome))


def _late(queue: Queue, receipts: Sequence[Receipt], outcome: Outcome) -> dict[int, int]:
    """Accept the receipts of leases that were lost, of messages that wait since; return them as rows by number."""
    late: dict[int, int] = {}
    for row, (receipt, error) in enumerate(zip(receipts, outcome, strict=True)):
        if not isinstance(error, LeaseMismatch):
            continue
        message = queue.messages[queue.ids.number_of(receipt.id) or 0]
        token = 0 if message.token or message.after is None else message.after.late_token
        if token and token == receipt.token and message.number not in late:
            late[message.number] = row
            outcome[row] = None
    return late


def _costs_fault(costs: Sequence[int | None]) -> str | None:
    faults = (whole_fault("A true cost", cost, least=0, most=limits.COST_MAX) for cost in costs if cost is not None)
    return next((fault for fault in faults if fault is not None), None)


def forward(ledger: Ledger, request: Forward, now_ms: int, given: Given) -> Decision[ForwardedIds]:
    """Acknowledge a message and enqueue others in one commit, or do nothing. The outcome has the new ids."""
    queue = known_queue(ledger, request.queue)
    if isinstance(queue, FairlaneError):
        return refuse(queue)
    receipt = request.receipt
    if (fault := _costs_fault([receipt.cost])) is not None:
        return refuse(InvalidArgument(fault))
    held, outcome = _held(queue, [receipt], now_ms)
    if outcome[0] is not None:
        return refuse(outcome[0])
    number, correlation_id = held[0].number, held[0].correlation_id
    costs: list[int | None] | None = None if receipt.cost is None else [receipt.cost]
    records: list[AnyRecord] = [Acked(ledger.next_sequence, request.queue, [number], costs)]
    bodies: list[tuple[int, bytes]] = []
    ids: list[str] = []
    sequence = ledger.next_sequence + 1
    for target, messages in request.messages.items():
        enqueued = enqueue(
            ledger,
            Enqueue(queue=target, messages=messages),
            now_ms,
            given.parts.get(target, given),
            sequence=sequence,
            cause=number,
            leaving=held,  # the acknowledged message makes room for the others
            coming=[record for record in records if isinstance(record, Enqueued)],
        )
        results = enqueued.outcome if isinstance(enqueued.outcome, list) else [enqueued.outcome]
        for result in results:
            if isinstance(result, FairlaneError):
                return refuse(result)
            ids.append(str(result.id))
        records.extend(enqueued.records)
        bodies.extend(enqueued.bodies)
        sequence += sum(record.count for record in enqueued.records)
    return Decision(records, ForwardedIds(ids=ids, correlation_id=correlation_id), bodies)


# ------------------------------------------------------------------------------------------------------------- nack


def nack(ledger: Ledger, request: Nack, now_ms: int, given: Given) -> Decision[Results]:
    """Give leased messages back: to wait again, or to the dead letters. The outcome says what became of each."""
    queue = known_queue(ledger, request.queue)
    if isinstance(queue, FairlaneError):
        return refuse(queue)
    if (fault := _nack_fault(request)) is not None:
        return refuse(InvalidArgument(fault))
    held, outcome = _held_or_expired(queue, request, given, now_ms)
    if not held:
        return Decision([], _results(held, outcome))
    error = request.error[: limits.ERROR_LENGTH_MAX].encode(errors="replace").decode()
    rows = [row for row, result in enumerate(outcome) if result is None]
    fates = [fate_of(queue, message, request, given, row, now_ms) for message, row in zip(held, rows, strict=True)]
    records: list[AnyRecord] = []
    sequence = ledger.next_sequence
    back = [(message, fate) for message, fate in zip(held, fates, strict=True) if isinstance(fate, int)]
    if back:
        due_ms = [due for _, due in back] if any(due for _, due in back) else None
        reason = "defer" if request.intent == "defer" else given.reason
        errors = [error] * len(back) if error else None
        records.append(Returned(sequence, queue.name, [message.number for message, _ in back], reason, due_ms, errors))
        sequence += len(back)
    records += _dead_records(ledger, queue, held, fates, sequence, given.reason, error)
    became = [_became(message, fate, now_ms) for message, fate in zip(held, fates, strict=True)]
    return Decision(records, _results(held, outcome, became))


def _dead_records(
    ledger: Ledger,
    queue: Queue,
    held: Sequence[Message],
    fates: Sequence[int | DeadReason],
    sequence: int,
    ended: ReturnReason,
    error: str,
) -> list[AnyRecord]:
    """Return a record for each reason for which messages become dead letters, from a sequence on."""
    records: list[AnyRecord] = []
    for why in ("requested", "hook", "max_attempts", "max_expiries"):
        dead = [message.number for message, fate in zip(held, fates, strict=True) if fate == why]
        if dead:
            errors = [error] * len(dead) if error else None
            records.append(Dead(sequence, queue.name, dead, why, ended, errors, shared_dlq(ledger, queue)))
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
        return f"intent is failure, defer or dead, not {request.intent!r:.60}."
    if type(request.error) is not str:
        return f"An error is a text, not {type(request.error).__name__}."
    if request.intent == "defer" and request.error:
        return "A deferred message has not failed, so it has no error: leave it out, or nack with intent failure."
    if request.delay_ms is None:
        return None
    return whole_fault("delay_ms", request.delay_ms, least=0, most=limits.TIMESPAN_MS_MAX)


def _held_or_expired(queue: Queue, request: Nack, given: Given, now_ms: int) -> tuple[list[Message], Outcome]:
    """Return the held messages; where it is the broker that takes back leases which have ended, those too."""
    return _held(queue, request.receipts, 0 if given.reason == "expiry" else now_ms)


# ---------------------------------------------------------------------------------------- taking out, workflow state


def cancel(ledger: Ledger, request: Cancel, _now_ms: int, _given: Given) -> Decision[Results]:
    """Take out messages that are not leased. The outcome has None or an error for each."""
    queue = known_queue(ledger, request.queue)
    if isinstance(queue, FairlaneError):
        return refuse(queue)
    found: dict[int, Message] = {}
    outcome: Outcome = []
    for message_id in request.ids:
        message = ledger.find(queue.name, ledger.ids.number_of(message_id))
        if message is None or message.number in found:
            outcome.append(MessageNotFound(f"Queue {queue.name!r} has no message {message_id!r:.60}."))
        elif message.token:
            outcome.append(NotPending(f"Message {message_id} is leased."))
        else:
            found[message.number] = message
            outcome.append(None)
    records: list[AnyRecord] = []
    if found:
        records.append(Removed(ledger.next_sequence, queue.name, list(found), "cancelled"))
    return Decision(records, _results(found.values(), outcome))


def remove(ledger: Ledger, request: Remove, _now_ms: int, _given: Given) -> Decision[None]:
    """Remove messages that the schedule has put out, or make them dead letters if ``deadline_action`` says so."""
    queue = ledger.queues[request.queue]
    if request.reason == "deadline" and queue.policy.deadline_action == "dlq" and not is_dlq(request.queue):
        target = shared_dlq(ledger, queue)
        return Decision([Dead(ledger.next_sequence, request.queue, request.numbers, "deadline", target=target)], None)
    return Decision([Removed(ledger.next_sequence, request.queue, request.numbers, request.reason)], None)


def set_state(ledger: Ledger, request: SetState, now_ms: int, _given: Given) -> Decision[Etag]:
    """Write or remove workflow state under a lease. The outcome is the etag of what is there now, None for nothing."""
    queue = known_queue(ledger, request.queue)
    if isinstance(queue, FairlaneError):
        return refuse(queue)
    held, outcome = _held(queue, (request.receipt,), now_ms)
    if outcome[0] is not None:
        return refuse(outcome[0])
    message = held[0]
    state = message.after.state if message.after is not None else None
    etag = None if state is None else number_text(state)
    if request.etag != etag:
        return refuse(StateMismatch(f"The state of message {message.id} is version {etag}."))
    if request.state is None:
        records: list[AnyRecord] = []
        if state is not None:
            records.append(StateRemoved(ledger.next_sequence, queue.name, message.number))
        return Decision(records, Etag(correlation_id=message.correlation_id))
    if type(request.state) is not bytes or len(request.state) > limits.STATE_BYTES_MAX:
        return refuse(InvalidArgument(f"Workflow state is at most {limits.STATE_BYTES_MAX} bytes."))
    sequence = ledger.next_sequence
    record = StateSet(sequence, queue.name, message.number, len(request.state))
    written = Etag(etag=number_text(sequence), correlation_id=message.correlation_id)
    return Decision([record], written, [(sequence, request.state)])


DECIDERS: Final[Deciders] = {
    LeasePicked: lease,
    Ack: ack,
    Forward: forward,
    Nack: nack,
    Extend: extend,
    Cancel: cancel,
    Remove: remove,
    SetState: set_state,
}
