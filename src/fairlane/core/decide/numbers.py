"""Which messages of an enqueue repeat earlier ones, by the numbers of their producer."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.core.commands import Given
from fairlane.core.ledger import Ledger
from fairlane.errors import FairlaneError, RepeatTooLate
from fairlane.journal.records import Numbered
from fairlane.verbs.messages import Enqueue, EnqueueResult


def repeated(
    ledger: Ledger, request: Enqueue, producer: str, given: Given, now_ms: int
) -> dict[int, EnqueueResult | FairlaneError]:
    """Return the rows that were enqueued before, with the ids of the first time, and those too old to tell."""
    numbers = ledger.producer_numbers.get(given.by or "")
    known = None if numbers is None else numbers.find(request.queue, producer)
    if known is None or not request.numbers or request.numbers[0] > known.top:
        return {}
    found: dict[int, EnqueueResult | FairlaneError] = {}
    waiting = ledger.queues[request.queue].messages if request.queue in ledger.queues else {}
    floor = 0 if given.has_waited or known.floor_until_ms <= now_ms else known.floor
    for row, number in enumerate(request.numbers_of(range(len(request.messages)))):
        sequence = known.sequence_of(number, now_ms)
        if sequence is not None:
            own = ledger.ids.id_of(sequence)
            first = waiting.get(
                sequence, request.messages[row]
            )  # one that has left the queue said what its repeat says
            found[row] = EnqueueResult(id=own, correlation_id=first.correlation_id or own)
        elif number < floor and request.messages[row].dedup_id is None:
            found[row] = RepeatTooLate(
                f"Message {number} of producer {producer!r} may have been enqueued before: the broker no longer "
                f"remembers which messages before {known.floor} it has received."
            )
    return found


def numbered(request: Enqueue, producer: str, given: Given, rows: Sequence[int]) -> Numbered:
    """Return what the journal records about the numbers of the messages that are taken in."""
    numbers = list(request.numbers) if len(rows) == len(request.messages) else request.numbers_of(rows)
    return Numbered(given.by or "", producer, numbers)
