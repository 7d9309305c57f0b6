"""Leases: who may ack and extend, and what becomes of a message then; ``returns`` has what becomes of nacked ones.

Every right is checked by id and fencing token together. A message that is not there any more is *not found*; one that
is there under another lease, or none, is a *mismatch*. Neither changes anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Final

from fairlane.core.checks import whole_fault
from fairlane.core.commands import Given, LeasePicked
from fairlane.core.decide.enqueue import enqueue
from fairlane.core.decide.finished import absent, done, result_fault
from fairlane.core.decide.order import in_order
from fairlane.core.decision import Deciders, Decision, known_queue, no_queue, refuse
from fairlane.core.ledger import Ledger, Message, Queue
from fairlane.errors import (
    FairlaneError,
    InvalidArgument,
    LeaseMismatch,
    OutOfOrder,
)
from fairlane.journal.records import (
    Acked,
    AnyRecord,
    Enqueued,
    Extended,
    Leased,
)
from fairlane.model import limits
from fairlane.model.message import NEVER_MS, Became, Receipt
from fairlane.verbs.columns import ReceiptColumns
from fairlane.verbs.errors import body_of
from fairlane.verbs.leases import Ack, Extend, Forward, ForwardedIds
from fairlane.verbs.messages import Enqueue, Result, Results

Outcome = list[FairlaneError | None]
_OK: Final = Result()


def results_of(
    messages: Iterable[Message], outcome: Outcome, became: Iterable[Became | None] = repeat(None)
) -> Results:
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
        messages = queue.messages.objects  # what is picked is one
        for number in request.numbers:  # not a comprehension: most messages have no timeout of their own
            if messages[number].after is not None:
                record.ends_ms = _own_ends(queue, request.numbers, now_ms, expires_ms)
                break
    return Decision([record], expires_ms)


def _own_ends(queue: Queue, numbers: Sequence[int], now_ms: int, expires_ms: int) -> list[int] | None:
    """Return when the leases of messages end by their own timeouts, or None if that is the usual instant for all."""
    ends_ms = [now_ms + queue.messages.objects[number].visibility_ms for number in numbers]
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
    held, results = held_under(ledger, queue, request.receipts, now_ms)
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


def held_under(ledger: Ledger, queue: Queue, receipts: Sequence[Receipt], now_ms: int) -> tuple[list[Message], Outcome]:
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
            outcome[row] = absent(ledger, queue, receipt.id, number)
        elif message.token != receipt.token or not message.token or message.expires_ms <= now_ms or number in seen:
            outcome[row] = LeaseMismatch(f"Message {receipt.id} is not leased under token {receipt.token!r:.30}.")
        else:
            seen.add(message.number)
            held.append(message)
    return held, outcome


def _numbers_and_tokens(queue: Queue, receipts: Sequence[Receipt]) -> tuple[Sequence[int] | None, Sequence[int]]:
    """Return the numbers of the messages of receipts, None if some are unusual, and the tokens."""
    if type(receipts) is ReceiptColumns:
        is_known = queue.ids.journal_of(receipts.numbers) == receipts.journal
        return receipts.numbers if is_known else None, receipts.tokens
    return queue.ids.numbers_of([receipt.id for receipt in receipts]), [receipt.token for receipt in receipts]


def _all_held(queue: Queue, receipts: Sequence[Receipt], now_ms: int) -> list[Message] | None:
    """Return the messages of receipts that are all good, which takes half the time. None means: look at each."""
    numbers, tokens = _numbers_and_tokens(queue, receipts)
    if numbers is None or len(set(numbers)) < len(numbers):
        return None
    try:
        held = list(map(queue.messages.objects.__getitem__, numbers))  # what is leased is one
    except KeyError:
        return None
    for message, known in zip(held, tokens, strict=True):
        token = message.token
        if token != known or not token or message.expires_ms <= now_ms:
            return None
    return held


# -------------------------------------------------------------------------------------------------------------- ack


def ack(ledger: Ledger, request: Ack, now_ms: int, _given: Given) -> Decision[Results]:
    """Acknowledge leased messages. The outcome has an empty result or an error for each."""
    queue = ledger.queues.get(request.queue)
    if queue is None:
        return refuse(no_queue(request.queue))
    receipts: Sequence[Receipt] = request.receipts
    policy = queue.policy
    is_special = policy.late_ack or policy.result_ttl_ms or queue.leased_groups is not None
    if is_special or (
        type(receipts) is not ReceiptColumns and [each for each in receipts if each.cost is not None or each.result]
    ):
        return _ack_each(ledger, queue, receipts, now_ms)
    held, outcome = held_under(ledger, queue, receipts, now_ms)
    numbers = [message.number for message in held if message.after is None]
    if len(numbers) < len(held):
        return _ack_each(ledger, queue, receipts, now_ms)
    records: list[AnyRecord] = [Acked(ledger.next_sequence, queue.name, numbers)] if held else []
    return Decision(records, results_of(held, outcome))


def _ack_each(ledger: Ledger, queue: Queue, receipts: Sequence[Receipt], now_ms: int) -> Decision[Results]:
    """Acknowledge messages that may be late, have costs or results, are remembered, or are kept in order."""
    if (fault := _costs_fault([receipt.cost for receipt in receipts])) is not None:
        return refuse(InvalidArgument(fault))
    held, outcome = held_under(ledger, queue, receipts, 0 if queue.policy.late_ack else now_ms)
    late = _late(queue, receipts, outcome) if queue.policy.late_ack else {}
    _check_results(ledger, queue, receipts, outcome)
    if queue.leased_groups is not None:
        _check_order(queue, receipts, outcome)
    receipts = [receipt for receipt, error in zip(receipts, outcome, strict=True) if error is None]
    held = [queue.messages[queue.ids.number_of(receipt.id) or 0] for receipt in receipts]
    records: list[AnyRecord] = []
    bodies: list[tuple[int, bytes]] = []
    sequence = ledger.next_sequence
    for is_late in (False, True):
        pairs = [pair for pair in zip(held, receipts, strict=True) if (pair[0].number in late) == is_late]
        if pairs:
            records.append(_acked(queue, pairs, sequence, now_ms, bodies, is_late=is_late))
            sequence += len(pairs)
    return Decision(records, results_of(held, outcome), bodies)


def _acked(
    queue: Queue,
    pairs: Sequence[tuple[Message, Receipt]],
    sequence: int,
    now_ms: int,
    bodies: list[tuple[int, bytes]],
    *,
    is_late: bool = False,
) -> Acked:
    """Return the record of messages that are acknowledged by receipts, and add the bodies of their results."""
    costs = [receipt.cost for _, receipt in pairs]
    record = Acked(sequence, queue.name, [message.number for message, _ in pairs], None, is_late)
    if costs.count(None) < len(costs):
        record.costs = costs
    record.finished, more = done(pairs, sequence, now_ms)
    bodies += more
    return record


def _check_results(ledger: Ledger, queue: Queue, receipts: Sequence[Receipt], outcome: Outcome) -> None:
    """Put an error into the outcome for each result that would be kept and can't be."""
    for row, receipt in enumerate(receipts):
        if receipt.result is not None and outcome[row] is None:
            message = queue.messages[queue.ids.number_of(receipt.id) or 0]
            outcome[row] = result_fault(message, receipt.result, ledger.limits.result_bytes_max)


def _check_order(queue: Queue, receipts: Sequence[Receipt], outcome: Outcome) -> None:
    """Put an error into the outcome for each message that can't be acknowledged before another of its key."""
    rows = [row for row, error in enumerate(outcome) if error is None]
    held = [queue.messages[queue.ids.number_of(receipts[row].id) or 0] for row in rows]
    numbers = in_order(queue, held)
    for row, message in zip(rows, held, strict=True):
        if message.number not in numbers:
            outcome[row] = OutOfOrder(f"Message {message.id} comes after another of its key that is still leased.")


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
    held, outcome = held_under(ledger, queue, [receipt], now_ms)
    _check_results(ledger, queue, [receipt], outcome)
    if queue.leased_groups is not None:
        _check_order(queue, [receipt], outcome)
    if outcome[0] is not None:
        return refuse(outcome[0])
    number, correlation_id = held[0].number, held[0].correlation_id
    bodies: list[tuple[int, bytes]] = []
    records: list[AnyRecord] = [_acked(queue, [(held[0], receipt)], ledger.next_sequence, now_ms, bodies)]
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


DECIDERS: Final[Deciders] = {
    LeasePicked: lease,
    Ack: ack,
    Forward: forward,
    Extend: extend,
}
