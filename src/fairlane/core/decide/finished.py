"""Which messages are remembered after their end, for how long, and with which result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fairlane.core.commands import Given, SweepResults
from fairlane.core.decision import Deciders, Decision
from fairlane.core.ledger import Ledger, Message, Queue
from fairlane.errors import FairlaneError, InvalidArgument, MessageCancelled, MessageNotFound, ResultTooLarge
from fairlane.journal.records import FinishedImage, ResultsSwept
from fairlane.model.message import Receipt
from fairlane.model.status import Ending


def result_fault(message: Message, result: object, result_bytes_max: int) -> FairlaneError | None:
    """Return what is wrong with the result of a message, or None if nothing is or it is not kept."""
    if not message.result_ttl_ms:
        return None
    if type(result) is not bytes:
        return InvalidArgument(f"A result must be bytes, not {type(result).__name__}.")
    if len(result) > result_bytes_max:
        return ResultTooLarge(f"The result has {len(result)} bytes; result_bytes_max is {result_bytes_max}.")
    return None


def absent(ledger: Ledger, queue: Queue, message_id: str, number: int | None) -> FairlaneError:
    """Return the refusal of a receipt or an id whose message is not in the queue."""
    found = None if number is None else ledger.finished.known.get(number)
    if found is None or found.ending != "cancelled":
        return MessageNotFound(f"Queue {queue.name!r} has no message {message_id!r:.60}.")
    return MessageCancelled(f"Message {message_id} was cancelled{'.' if found.note is None else f': {found.note}.'}")


def done(
    pairs: Sequence[tuple[Message, Receipt]], sequence: int, now_ms: int
) -> tuple[list[FinishedImage] | None, list[tuple[int, bytes]]]:
    """Return which acknowledged messages are remembered, and the bodies of their results.

    Args:
        pairs: the messages, each with the receipt that acknowledges it.
        sequence: that of the first message in the record; the others follow, and each result has its message's.
        now_ms: the instant.
    """
    images: list[FinishedImage] = []
    bodies: list[tuple[int, bytes]] = []
    for at, (message, receipt) in enumerate(pairs, sequence):
        ttl_ms = message.result_ttl_ms
        if not ttl_ms:
            continue
        image = image_of(message, "done", now_ms, until_ms=now_ms + ttl_ms)
        if receipt.result is not None:
            image.body, image.size = at, len(receipt.result)
            bodies.append((at, receipt.result))
        images.append(image)
    return images or None, bodies


def ended(messages: Sequence[Message], ending: Ending, now_ms: int) -> list[FinishedImage] | None:
    """Return which messages that end without a result are remembered."""
    kept = ((message, message.result_ttl_ms) for message in messages)
    return [image_of(message, ending, now_ms, until_ms=now_ms + ttl_ms) for message, ttl_ms in kept if ttl_ms] or None


def image_of(message: Message, ending: Ending, now_ms: int, *, until_ms: int, note: str | None = None) -> FinishedImage:
    """Return a message that ends now."""
    return FinishedImage(
        message.number,
        message.queue.name,
        message.key,
        ending,
        message.enqueued_ms,
        now_ms,
        until_ms,
        message.attempts,
        note=note,
    )


def sweep(ledger: Ledger, command: SweepResults, _now_ms: int, _given: Given) -> Decision[None]:
    """Forget the messages that are remembered until an instant or before."""
    return Decision([ResultsSwept(ledger.next_sequence, command.through_ms)], None)


DECIDERS: Final[Deciders] = {SweepResults: sweep}
