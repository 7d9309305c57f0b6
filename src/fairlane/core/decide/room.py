"""Room: what the limits on messages and bytes leave, of a key, a queue and the broker."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.core.ledger import Ledger, Message, Queue
from fairlane.errors import FullError, GlobalFull, KeyFull, PayloadTooLarge, QueueFull
from fairlane.journal.records import Enqueued
from fairlane.model.message import Key

RETRY_AFTER_MS = 1_000
"""When to come back to a full queue. When a consumer makes room can't be known; asking once a second is enough."""


def fits(count: int, most: int | None) -> bool:
    """Return whether an amount is within a limit; None is no limit."""
    return most is None or count <= most


def too_large(ledger: Ledger, queue: Queue, size: int) -> PayloadTooLarge | None:
    """Return the limit that one payload exceeds by itself, so that no room would help; None if there is none.

    Such a message must not wait for room: it would hold up everyone behind it at a queue that is empty.
    """
    for name, most in (
        (f"waiting_bytes_max of queue {queue.name!r}", queue.policy.waiting_bytes_max),
        (f"key_waiting_bytes_max of queue {queue.name!r}", queue.policy.key_waiting_bytes_max),
        ("waiting_bytes_max of all queues together", ledger.limits.waiting_bytes_max),
    ):
        if most is not None and size > most:
            return PayloadTooLarge(f"A payload of {size} bytes is too large: {name} is {most}.")
    return None


class QueueRoom:
    """How much room is left while one message after another of a batch takes some of it."""

    def __init__(
        self, ledger: Ledger, queue: Queue, *, leaving: Sequence[Message] = (), coming: Sequence[Enqueued] = ()
    ) -> None:
        self._ledger = ledger
        self.queue = self._queue = queue
        self._messages = sum(record.count for record in coming)
        self._size = sum(sum(record.sizes) for record in coming)
        self._in_queue = 0
        self._size_in_queue = 0
        self._keys: dict[Key, tuple[int, int]] = {}
        for message in leaving:
            self._messages -= 1
            self._size -= message.size
            if message.queue is queue:
                self._add(message.key, -1, -message.size)
        for record in coming:
            for key, size in zip(record.terms.keys, record.sizes, strict=True) if record.queue == queue.name else ():
                self._add(key, 1, size)

    def has_for(self, count: int, size: int) -> bool:
        """Return whether ``count`` messages of ``size`` bytes certainly fit, whatever their keys."""
        queue, policy, ledger, limits = self._queue, self._queue.policy, self._ledger, self._ledger.limits
        return (
            queue.tallies is None
            and fits(len(queue.messages) + len(queue.staged) + self._in_queue + count, policy.waiting_max)
            and fits(queue.size + queue.staged_size + self._size_in_queue + size, policy.waiting_bytes_max)
            and fits(ledger.messages + self._messages + count, limits.waiting_max)
            and fits(ledger.size + self._size + size, limits.waiting_bytes_max)
        )

    def take(self, key: Key, size: int, *, held: int = 0) -> FullError | None:
        """Take room for one message, or return why there is none; the broker holds ``held`` of its bytes already."""
        refusal = self._key_refusal(key, size) or self._queue_refusal(size) or self._global_refusal(size - held)
        if refusal is None:
            self._messages += 1
            self._size += size - held
            self._add(key, 1, size)
        else:
            refusal.key = key
        return refusal

    def refusal_behind(self, ahead: FullError) -> FullError:
        """Return why a message waits although it may fit: an earlier enqueue waits for the queue or the broker."""
        queue, ledger = self._queue, self._ledger
        if isinstance(ahead, GlobalFull):
            whose, messages, total = "All queues together have", ledger.messages, ledger.size
        else:
            whose = f"Queue {queue.name!r} has"
            messages, total = len(queue.messages) + len(queue.staged), queue.size + queue.staged_size
        amounts = f"{whose} {messages} messages of {total} bytes"
        return type(ahead)(
            f"{amounts}, and earlier enqueues are waiting for more capacity than is left.",
            retry_after_ms=RETRY_AFTER_MS,
        )

    def take_in_queue(self, key: Key, size: int) -> FullError | None:
        """Take room for one message that comes from another queue, or return why there is none."""
        refusal = self._key_refusal(key, size) or self._queue_refusal(size)
        if refusal is None:
            self._add(key, 1, size)
        return refusal

    def too_large(self, size: int) -> PayloadTooLarge | None:
        """Return why a payload would not fit if all room were free, or None if it would."""
        return too_large(self._ledger, self._queue, size)

    def _add(self, key: Key, count: int, size: int) -> None:
        self._in_queue += count
        self._size_in_queue += size
        messages, total = self._keys.get(key, (0, 0))
        self._keys[key] = (messages + count, total + size)

    def _key_refusal(self, key: Key, size: int) -> FullError | None:
        policy, tallies = self._queue.policy, self._queue.tallies
        if tallies is None:
            return None
        tally = tallies.get(key)
        messages, total = self._keys.get(key, (0, 0))
        messages += tally.messages if tally is not None else 0
        total += tally.size if tally is not None else 0
        limits = (("key_waiting_max", policy.key_waiting_max), ("key_waiting_bytes_max", policy.key_waiting_bytes_max))
        if (excess := _excess(messages, total, size, *limits)) is None:
            return None
        cause = f"Key {key!r:.100} of queue {self._queue.name!r} has {excess}"
        return KeyFull(cause, retry_after_ms=RETRY_AFTER_MS)

    def _queue_refusal(self, size: int) -> FullError | None:
        queue, policy = self._queue, self._queue.policy
        messages = len(queue.messages) + len(queue.staged) + self._in_queue
        total = queue.size + queue.staged_size + self._size_in_queue
        limits = (("waiting_max", policy.waiting_max), ("waiting_bytes_max", policy.waiting_bytes_max))
        if (excess := _excess(messages, total, size, *limits)) is None:
            return None
        return QueueFull(f"Queue {queue.name!r} has {excess}", retry_after_ms=RETRY_AFTER_MS)

    def _global_refusal(self, size: int) -> FullError | None:
        ledger, settings = self._ledger, self._ledger.limits
        messages, total = ledger.messages + self._messages, ledger.size + self._size
        limits = (("waiting_max", settings.waiting_max), ("waiting_bytes_max", settings.waiting_bytes_max))
        if (excess := _excess(messages, total, size, *limits)) is None:
            return None
        return GlobalFull(f"All queues together have {excess}", retry_after_ms=RETRY_AFTER_MS)


def _excess(
    messages: int, total: int, size: int, of_messages: tuple[str, int | None], of_bytes: tuple[str, int | None]
) -> str | None:
    """Return which limit one more message of ``size`` bytes exceeds, with the numbers; None if none."""
    name, most = of_messages
    if not fits(messages + 1, most):
        return f"{messages} messages, and {name} is {most}."
    name, most = of_bytes
    if not fits(total + size, most):
        return f"{total} bytes, and {name} is {most}; the message has {size}."
    return None
