"""Taking messages out: cancelled by a caller, or removed because their time is over or a limit is reached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fairlane.core.commands import Given, Remove
from fairlane.core.decide.fan_outs import published
from fairlane.core.decide.finished import absent, ended, image_of
from fairlane.core.decide.leases import Outcome, results_of
from fairlane.core.decide.retries import shared_dlq
from fairlane.core.decision import Deciders, Decision, known_queue, refuse
from fairlane.core.ledger import Ledger, Message, Queue
from fairlane.errors import FairlaneError, InvalidArgument, NotPending
from fairlane.journal.life import ENDING_OF
from fairlane.journal.records import AnyRecord, Dead, FinishedImage, Removed, Returned
from fairlane.model.limits import CANCEL_REASON_LENGTH_MAX
from fairlane.model.names import is_dlq
from fairlane.verbs.messages import Cancel, Results


def cancel(ledger: Ledger, request: Cancel, now_ms: int, given: Given) -> Decision[Results]:
    """Remove messages, and revoke the leases of those that are leased. The outcome has a result or error for each.

    A leased message is returned first, so those who follow the records need to know of no other way out of a lease.
    """
    queue = known_queue(ledger, request.queue)
    if isinstance(queue, FairlaneError):
        return refuse(queue)
    if len(request.reason) > CANCEL_REASON_LENGTH_MAX or not request.reason.isprintable():
        return refuse(
            InvalidArgument(f"A reason must be printable text of up to {CANCEL_REASON_LENGTH_MAX} characters.")
        )
    found, outcome = _found(ledger, queue, request)
    if not found:
        return Decision([], results_of(found.values(), outcome))
    records = given_back(queue, list(found.values()), ledger.next_sequence, now_ms)
    records += _released(queue, list(found.values()), ledger.next_sequence + sum(one.count for one in records), now_ms)
    sequence = ledger.next_sequence + sum(record.count for record in records)
    note = request.reason or None
    removal = Removed(sequence, queue.name, list(found), "cancelled", note=note, by=given.by)
    removal.finished = _remembered(list(found.values()), now_ms, note)
    return Decision([*records, removal], results_of(found.values(), outcome))


def given_back(queue: Queue, messages: Sequence[Message], sequence: int, now_ms: int) -> list[AnyRecord]:
    """Return the records by which those of some messages that are leased wait again, from a sequence on."""
    leased = [message for message in messages if message.token]
    lasting = [message.number for message in leased if message.expires_ms > now_ms]
    over = [message.number for message in leased if message.expires_ms <= now_ms]
    records: list[AnyRecord] = []
    if lasting:
        records.append(Returned(sequence, queue.name, lasting, "defer"))
    if over:
        records.append(Returned(sequence + len(lasting), queue.name, over, "expiry"))
    return records


def _released(queue: Queue, messages: Sequence[Message], sequence: int, now_ms: int) -> list[AnyRecord]:
    """Return the records by which those of some messages that wait for a fan-out enter the queue first."""
    held = [message.number for message in messages if message.number in queue.staged]
    return [published(queue, number, at, now_ms) for at, number in enumerate(held, sequence)]


def _found(ledger: Ledger, queue: Queue, request: Cancel) -> tuple[dict[int, Message], Outcome]:
    found: dict[int, Message] = {}
    outcome: Outcome = []
    for message_id in request.ids:
        number = ledger.ids.number_of(message_id)
        message = ledger.find(queue.name, number) or _held(ledger, queue, number)
        if message is None or message.number in found:
            outcome.append(absent(ledger, queue, message_id, number))
        elif message.token and (request.only_waiting or message.is_claimed):
            how = "claimed" if message.is_claimed else "leased"
            outcome.append(NotPending(f"Message {message_id} is {how}."))
        else:
            found[message.number] = message
            outcome.append(None)
    return found, outcome


def _held(ledger: Ledger, queue: Queue, number: int | None) -> Message | None:
    """Return a message that waits for the members of its fan-out."""
    return queue.staged.get(number) if number is not None and number in ledger.fan_outs.by_number else None


def _remembered(messages: list[Message], now_ms: int, note: str | None) -> list[FinishedImage] | None:
    """Return which cancelled messages are remembered: for their time, and until the leases of their holders end."""
    images = []
    for message in messages:
        until_ms = now_ms + message.result_ttl_ms
        if message.token:
            until_ms = max(until_ms, message.expires_ms)
        if until_ms > now_ms:
            image = image_of(message, "cancelled", now_ms, until_ms=until_ms, note=note)
            if message.number in message.queue.staged:
                image.enqueued_ms = now_ms  # it has waited for a fan-out, and enters its queue in this very commit
            images.append(image)
    return images or None


def remove(ledger: Ledger, request: Remove, now_ms: int, _given: Given) -> Decision[None]:
    """Remove messages that the schedule has put out, or make them dead letters if ``deadline_action`` says so."""
    queue = ledger.queues[request.queue]
    if request.reason == "deadline" and queue.policy.deadline_action == "dlq" and not is_dlq(request.queue):
        target = shared_dlq(ledger, queue)
        return Decision([Dead(ledger.next_sequence, request.queue, request.numbers, "deadline", target=target)], None)
    record = Removed(ledger.next_sequence, request.queue, request.numbers, request.reason)
    record.finished = ended([queue.messages[number] for number in request.numbers], ENDING_OF[request.reason], now_ms)
    return Decision([record], None)


DECIDERS: Final[Deciders] = {Cancel: cancel, Remove: remove}
