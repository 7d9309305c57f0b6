"""Fan-outs: which members and continuations are accepted, and what becomes of a continuation in the end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from fairlane.core.checks import message_fault, text_fault
from fairlane.core.commands import EndFanOut, Given
from fairlane.core.decide.enqueue import enqueue, packed, refusals
from fairlane.core.decide.retries import shared_dlq
from fairlane.core.decide.room import QueueRoom
from fairlane.core.decide.staging import terms_of
from fairlane.core.decision import Deciders, Decision, known_queue, refuse
from fairlane.core.ledger import Ledger, Queue
from fairlane.core.producer import forbidden
from fairlane.core.states.fan_outs import FanOutState
from fairlane.core.terms import resolve
from fairlane.errors import FairlaneError, InvalidArgument
from fairlane.journal import records
from fairlane.journal.records import AnyRecord, Dead, Enqueued, FannedOut, Runs, Terms
from fairlane.model import limits
from fairlane.model.message import NewMessage
from fairlane.model.names import is_dlq
from fairlane.verbs.fan_outs import FannedOutIds, FanOut
from fairlane.verbs.messages import Enqueue
from fairlane.verbs.predecessors import BEFORE_HEADER, Predecessors, written


def fan_out(ledger: Ledger, request: FanOut, now_ms: int, given: Given) -> Decision[FannedOutIds]:
    """Enqueue the members and stage the continuation in one commit, or do nothing. The outcome has the ids."""
    queue = known_queue(ledger, request.queue)
    if isinstance(queue, FairlaneError):
        return refuse(queue)
    if (fault := _fault(queue, request)) is not None:
        return refuse(InvalidArgument(fault))
    asked = given.parts.get(queue.name, given)
    terms = _terms(ledger, queue, request.then, now_ms, _of_continuation(asked))
    if isinstance(terms, FairlaneError):
        return refuse(terms)
    before = ledger.fan_outs.named(queue.name, terms.keys[0], request.name, now_ms)
    if before is not None:
        return Decision([], _known(queue, before))
    taken = _members(ledger, request, now_ms, given)
    if isinstance(taken, FairlaneError):
        return refuse(taken)
    held = _held(ledger, queue, request, terms, taken)
    if not held.records:
        return held
    order = FannedOut(
        taken.sequence + 1, queue.name, request.name, taken.sequence, taken.members, queue.policy.dedup_window_ms
    )
    order.runs_anyway = request.on_failure == "run"
    records = [*taken.records, *held.records, order]
    return Decision(records, _ids(queue, order), [*taken.bodies, *held.bodies])


def _terms(ledger: Ledger, queue: Queue, message: NewMessage, now_ms: int, given: Given) -> Terms | FairlaneError:
    """Return the terms of the continuation, or why it is refused whatever room there is.

    They come before the name is looked up: a name is its tenant's alone, and only who may enqueue for the tenant learns
    what the tenant has fanned out.
    """
    if (fault := message_fault(message, ledger.limits.payload_bytes_max)) is not None:
        return fault
    terms = resolve(queue, [message], given.answers, now_ms)
    refused = forbidden(queue, [message], terms.keys, given.producer)
    return refused[0] if refused else terms


@dataclass(slots=True, eq=False)
class _Taken:
    """The members of a fan-out, which are taken in.

    Attributes:
        sequence: what the next record gets.
        records: those that enqueue them.
        bodies: their bodies.
        members: their numbers, by queue.
    """

    sequence: int
    records: list[Enqueued] = field(default_factory=list)
    bodies: list[tuple[int, bytes]] = field(default_factory=list)
    members: dict[str, Runs] = field(default_factory=dict)


def _members(ledger: Ledger, request: FanOut, now_ms: int, given: Given) -> _Taken | FairlaneError:
    """Return the members once all are taken in, or why the first of them is refused."""
    taken = _Taken(ledger.next_sequence)
    for target, messages in request.messages.items():
        part = enqueue(
            ledger,
            Enqueue(queue=target, messages=messages),
            now_ms,
            _of_members(given.parts.get(target, given), len(messages)),
            sequence=taken.sequence,
            coming=taken.records,
        )
        error = part.outcome if isinstance(part.outcome, FairlaneError) else _first_error(part.outcome)
        if error is not None:
            return error
        enqueued = [record for record in part.records if isinstance(record, Enqueued)]
        taken.members[target] = [(record.sequence, record.count) for record in enqueued]
        taken.records += enqueued
        taken.bodies += part.bodies
        taken.sequence += len(messages)
    return taken


def _fault(queue: Queue, request: FanOut) -> str | None:
    fault = text_fault("The name of a fan-out", request.name, most=limits.FAN_OUT_NAME_LENGTH_MAX)
    if fault is None and is_dlq(queue.name):
        fault = f"The continuation of a fan-out cannot go to the dead-letter queue {queue.name!r}."
    if fault is None and request.on_failure not in ("dead", "run"):
        fault = f"on_failure must be dead or run, not {request.on_failure!r:.60}."
    for message in _all(request) if fault is None else ():
        if message.dedup_id is not None or message.unique_key is not None:
            return "A message of a fan-out cannot have a dedup_id or unique_key; the name makes it safe to repeat."
    if fault is None and request.then.upload is not None:
        fault = "The continuation of a fan-out must include its payload; upload a member's payload instead."
    return fault


def _all(request: FanOut) -> Iterable[NewMessage]:
    yield from (message for messages in request.messages.values() for message in messages)
    yield request.then


def _first_error(outcome: Iterable[object]) -> FairlaneError | None:
    return next((result for result in outcome if isinstance(result, FairlaneError)), None)


def _of_members(given: Given, count: int) -> Given:
    """Return what is given for the members in a queue: the continuation, if it goes there too, is the last."""
    return replace(
        given,
        answers=None if given.answers is None else given.answers[:count],
        faults=None if given.faults is None else given.faults[:count],
    )


def _of_continuation(given: Given) -> Given:
    return replace(given, answers=None if given.answers is None else given.answers[-1:], faults=None)


def _held(ledger: Ledger, queue: Queue, request: FanOut, terms: Terms, taken: _Taken) -> Decision[FannedOutIds]:
    """Return the record that stages the continuation, or why there is no room for it."""
    message = request.then
    refused = refusals(QueueRoom(ledger, queue, coming=taken.records), [message], terms)
    if refused:
        return refuse(refused[0])
    sizes, starts, bodies, heads = packed([_told(queue, message, taken)], taken.sequence)
    ids: list[str | None] | None = None if message.correlation_id is None else [message.correlation_id]
    record = records.Staged(taken.sequence, queue.name, sizes, starts, terms, "", 0, request.name, ids, heads)
    return Decision([record], FannedOutIds(id="", ids=[]), bodies)


def _told(queue: Queue, message: NewMessage, taken: _Taken) -> NewMessage:
    """Return the continuation with the members in a header, so that its consumer can ask for their results."""
    if not taken.members:
        return message
    runs = [
        Predecessors(target, queue.ids.id_of(first), count)
        for target, members in taken.members.items()
        for first, count in members
    ]
    return msgspec.structs.replace(message, headers={**message.headers, BEFORE_HEADER: written(runs)})


def _ids(queue: Queue, order: FannedOut) -> FannedOutIds:
    numbers = [range(first, first + count) for runs in order.members.values() for first, count in runs]
    return FannedOutIds(
        id=queue.ids.id_of(order.number), ids=[queue.ids.id_of(number) for run in numbers for number in run]
    )


def _known(queue: Queue, before: FanOutState) -> FannedOutIds:
    ids = _ids(queue, before.order)
    return FannedOutIds(id=ids.id, ids=ids.ids, is_repeat=True)


# ----------------------------------------------------------------------------------------------------------------- ends


def end_fan_out(ledger: Ledger, command: EndFanOut, now_ms: int, _given: Given) -> Decision[None]:
    """Publish a continuation whose members have all ended. It is a dead letter if some failed that must not have."""
    ended = ledger.fan_outs.by_number[command.number]
    queue = ledger.queues[ended.order.queue]
    found: list[AnyRecord] = [published(queue, command.number, ledger.next_sequence, now_ms)]
    if ended.failed and not ended.order.runs_anyway:
        target = shared_dlq(ledger, queue)
        found.append(Dead(ledger.next_sequence + 1, queue.name, [command.number], "members", target=target))
    return Decision(found, None)


def published(queue: Queue, number: int, sequence: int, now_ms: int) -> records.Published:
    """Return the record by which a continuation enters its queue."""
    message = queue.staged[number]
    return records.Published(sequence, queue.name, [number], "", 0, [message.size], terms_of([message], now_ms))


DECIDERS: Final[Deciders] = {FanOut: fan_out, EndFanOut: end_fan_out}
