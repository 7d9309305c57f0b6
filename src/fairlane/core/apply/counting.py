"""Finding the messages a record speaks of, and keeping the sums that go with them."""

from __future__ import annotations

from collections.abc import Iterable

from fairlane.core.ledger import KeyUsage, Ledger, Message, Queue
from fairlane.journal.records import OfMessages


def known(ledger: Ledger, record: OfMessages) -> list[Message]:
    """Return the messages of a record that are there."""
    get = ledger.queues[record.queue].messages.get
    return [message for number in record.numbers if (message := get(number)) is not None]


def numbered(record: OfMessages, messages: list[Message]) -> Iterable[tuple[int, Message]]:
    """Pair messages with the sequence numbers the record has for them."""
    if len(messages) == len(record.numbers):
        return enumerate(messages, record.sequence)
    position = {number: at for at, number in enumerate(record.numbers, record.sequence)}
    return [(position[message.number], message) for message in messages]


def count_in(ledger: Ledger, queue: Queue, messages: list[Message], size: int) -> None:
    """Add new messages to the sums."""
    queue.size += size
    ledger.size += size
    ledger.messages += len(messages)
    if queue.tallies is not None:
        for message in messages:
            tally_in(queue, message)


def tally_in(queue: Queue, message: Message) -> None:
    """Count a message for its key, if the queue counts keys."""
    if queue.tallies is not None:
        tally = queue.tallies.get(message.key)
        if tally is None:
            tally = queue.tallies[message.key] = KeyUsage()
        tally.messages += 1
        tally.size += message.size


def tally_out(queue: Queue, message: Message) -> None:
    """Count a message for its key no more."""
    if queue.tallies is not None:
        tally = queue.tallies[message.key]
        tally.messages -= 1
        tally.size -= message.size
        if not tally.messages:
            del queue.tallies[message.key]


def recount_keys(queue: Queue) -> None:
    """Count what each key has, if the policy of a queue limits keys."""
    if not queue.counts_keys:
        queue.tallies = None
    elif queue.tallies is None:
        queue.tallies = {}
        for message in (*queue.messages.values(), *queue.staged.values()):
            tally_in(queue, message)
