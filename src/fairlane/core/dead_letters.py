"""Dead letters: which messages are some, since when, where they came from, and which of them a filter selects."""

from __future__ import annotations

from fairlane.core.ledger import Message, Queue, ScheduledItem
from fairlane.model.message import canonical
from fairlane.model.names import DLQ_SUFFIX, is_dlq
from fairlane.model.views import DeadLetterFilter


def has_died(message: ScheduledItem) -> bool:
    """Return whether a message is a dead letter that came from another queue."""
    return message.after is not None and message.after.origin is not None


def is_dead_letter(message: Message) -> bool:
    """Return whether a message died in another queue, or was enqueued among the dead letters of one."""
    return has_died(message) or is_dlq(message.queue.name)


def died_at(message: Message) -> int:
    """Return the sequence at which a message became a dead letter."""
    return message.number if message.after is None or not message.after.dead_at else message.after.dead_at


def origin_of(message: Message) -> str:
    """Return the queue that a dead letter came from."""
    origin = None if message.after is None else message.after.origin
    return message.queue.name.removesuffix(DLQ_SUFFIX) if origin is None else origin


def numbers_meant(wanted: DeadLetterFilter, queue: Queue) -> list[int]:
    """Return the numbers of the messages in a queue that a filter may mean: those it names, or all.

    Dead letters are objects, and in the order in which they died.
    """
    if wanted.ids is None:
        return list(queue.messages.objects)
    named = {queue.ids.number_of(message_id) for message_id in wanted.ids}
    return [number for number in queue.messages.objects if number in named]


def dead_before(wanted: DeadLetterFilter, queue: Queue, sequence: int) -> list[int]:
    """Return the numbers of the dead letters in a queue that a filter may mean and that died before a sequence.

    So a redrive that goes on after a restart finds what is left of the dead letters that it began with, and none that
    it has moved already and that have died again since.
    """
    messages = queue.messages
    meant = (messages[number] for number in numbers_meant(wanted, queue))
    return [message.number for message in meant if is_dead_letter(message) and died_at(message) < sequence]


def admits(wanted: DeadLetterFilter, message: Message, now_ms: int) -> bool:
    """Return whether a filter matches a message, apart from its number."""
    after = message.after
    dead_ms = after.dead_ms if after is not None else message.enqueued_ms
    age_ms = now_ms - dead_ms
    errors = after.errors if after is not None else ()
    return (
        (wanted.origin is None or origin_of(message) == wanted.origin)
        and (wanted.fairness_key is None or message.key == canonical(wanted.fairness_key))
        and (wanted.error is None or any(wanted.error in attempt.error for attempt in errors))
        and (wanted.reason is None or (after is not None and after.dead_reason == wanted.reason))
        and (wanted.older_than_ms is None or age_ms >= wanted.older_than_ms)
        and (wanted.newer_than_ms is None or age_ms <= wanted.newer_than_ms)
    )
