"""Finding the messages a record speaks of, and keeping the sums that go with them."""

from __future__ import annotations

from collections.abc import Iterable

from fairlane.core.ledger import KeyUsage, Ledger, Message, Queue
from fairlane.journal.records import OfMessages
from fairlane.model.message import Key


def known(ledger: Ledger, record: OfMessages) -> list[Message]:
    """Return the messages of a record that are there, to be changed."""
    promote = ledger.queues[record.queue].messages.promote
    return [message for number in record.numbers if (message := promote(number)) is not None]


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
            tally_in(queue, message.key, message.size)


def tally_in(queue: Queue, key: Key, size: int) -> None:
    """Count a message for its key, if the queue counts keys."""
    if queue.tallies is not None:
        tally = queue.tallies.get(key)
        if tally is None:
            tally = queue.tallies[key] = KeyUsage()
        tally.messages += 1
        tally.size += size


def tally_all(queue: Queue, keys: Iterable[Key], sizes: Iterable[int]) -> None:
    """Count messages for their keys, if the queue counts keys."""
    if queue.tallies is not None:
        for key, size in zip(keys, sizes, strict=True):
            tally_in(queue, key, size)


def tally_out(queue: Queue, key: Key, size: int) -> None:
    """Count a message for its key no more."""
    if queue.tallies is not None:
        tally = queue.tallies[key]
        tally.messages -= 1
        tally.size -= size
        if not tally.messages:
            del queue.tallies[key]


def recount(queue: Queue) -> None:
    """Count what the policy of a queue needs to know: its keys if it limits them, its groups if it orders them."""
    order_groups(queue)
    policy = queue.policy
    if policy.key_waiting_max is None and policy.key_waiting_bytes_max is None:
        queue.tallies = None
    elif queue.tallies is None:
        queue.tallies = {}
        for message in (*queue.messages.objects.values(), *queue.staged.values()):
            tally_in(queue, message.key, message.size)
        for run in queue.messages.runs():
            tally_all(queue, run.keys, run.sizes)


# -------------------------------------------------------------------------------------------------------- strict order


def order_groups(queue: Queue) -> None:
    """Note the leased messages of each group, if the queue has a strict order."""
    if not queue.is_strict:
        queue.leased_groups = None
    elif queue.leased_groups is None:
        queue.leased_groups = {}
        # By number: the order of objects depends on when rows became objects.
        leased = (message for message in queue.messages.objects.values() if message.token)
        enter_leased(queue, sorted(leased, key=lambda message: message.number))


def enter_leased(queue: Queue, messages: Iterable[Message]) -> None:
    """Note messages that are leased from now on."""
    groups = queue.leased_groups
    if groups is not None:
        for message in messages:
            groups.setdefault(message.group, {})[message.number] = message


def leave_leased(queue: Queue, messages: Iterable[Message]) -> None:
    """Note that the leases of messages are ending, as far as they have any."""
    groups = queue.leased_groups
    if groups is None:
        return
    for message in messages:
        leased = groups.get(message.group, {})
        if leased.pop(message.number, None) is not None and not leased:
            del groups[message.group]
