"""What records of queues and config change."""

from __future__ import annotations

from fairlane.core.apply.counting import recount
from fairlane.core.apply.dedups import leave_numbers
from fairlane.core.apply.messages import take_out
from fairlane.core.apply.staging import unstage
from fairlane.core.apply.uploads import drop_upload
from fairlane.core.ledger import Ledger, Message, Queue
from fairlane.journal.records import (
    ConfigSet,
    QueuePaused,
    QueueRemoved,
    QueueSet,
    RefusedMessages,
    Removed,
    TemporaryImage,
)
from fairlane.model.message import NEVER_MS
from fairlane.verbs.templates import TEMPLATE_PREFIX, note_template


def queue_set(ledger: Ledger, record: QueueSet, at_ms: int) -> list[Message]:
    """Create a queue, or change its policy."""
    queue = ledger.queues.get(record.queue)
    if queue is None:
        queue = ledger.queues[record.queue] = Queue(record.queue, record.policy, at_ms, ledger.ids)
    queue.set_policy(record.policy)
    if queue.is_strict:
        queue.messages.promote_all()
    recount(queue)
    return []


def queue_removed(ledger: Ledger, record: QueueRemoved, _at_ms: int) -> list[Message]:
    """Remove a queue with everything in it."""
    queue = ledger.queues[record.queue]
    # In the order of their numbers: pieces are discarded in an order that recovery has to find again.
    everything = Removed(record.sequence, record.queue, sorted(queue.messages), "purged")
    messages = take_out(ledger, everything)
    unstage(ledger, queue, list(queue.staged))
    for upload in sorted(queue.uploads):
        drop_upload(ledger, queue, upload, record.sequence)
    del ledger.queues[record.queue]
    ledger.dedup_homes = type(ledger.dedup_homes)(home for home in ledger.dedup_homes if home.queue != record.queue)
    leave_numbers(ledger, record.queue)
    ledger.fan_outs.remove_queue(record.queue)
    return messages


def queue_paused(ledger: Ledger, record: QueuePaused, at_ms: int) -> list[Message]:
    """Pause or resume a queue, or one of its keys."""
    queue = ledger.queues[record.queue]
    queue.pauses.note(record.key, at_ms, is_paused=record.is_paused)
    if record.key is None:
        queue.is_paused = record.is_paused
    elif record.is_paused:
        queue.paused_keys.add(record.key)
    else:
        queue.paused_keys.discard(record.key)
    return []


def refused(ledger: Ledger, record: RefusedMessages, _at_ms: int) -> list[Message]:
    """Count the messages that a limit kept out of a queue."""
    ledger.queues[record.queue].refused += sum(record.messages)
    return []


def config_set(ledger: Ledger, record: ConfigSet, _at_ms: int) -> list[Message]:
    """Set or remove a config value, for good or until it expires."""
    if record.expires_ms is not None or ledger.temporary:
        _note_expiry(ledger, record)
    if record.value is None:
        ledger.config.pop(record.key, None)
    else:
        ledger.config[record.key] = record.value
    if record.key.startswith(TEMPLATE_PREFIX):
        note_template(ledger.templates, record.key, record.value)
    return []


def _note_expiry(ledger: Ledger, record: ConfigSet) -> None:
    covered = ledger.temporary.pop(record.key, None)
    if record.expires_ms is not None:
        # One temporary value may follow another: what comes back in the end is the last value that was set to stay.
        before = ledger.config.get(record.key) if covered is None else covered.before
        image = TemporaryImage(record.key, record.expires_ms, before, record.owner, record.reason)
        ledger.temporary[record.key] = image
    ledger.config_due_ms = min((image.expires_ms for image in ledger.temporary.values()), default=NEVER_MS)
