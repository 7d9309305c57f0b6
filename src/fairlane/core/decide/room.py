"""Room: what the limits on messages and bytes leave, of a key, a queue and the broker."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.core.ledger import Ledger, Message, Queue
from fairlane.errors import FairlaneError, GlobalFull, KeyFull, QueueFull
from fairlane.journal.records import Enqueued
from fairlane.model.message import Key

RETRY_AFTER_MS = 1_000
"""When to come back to a full queue. When a consumer makes room can't be known; asking once a second is enough."""


def fits(count: int, most: int | None) -> bool:
    """Return whether an amount is within a limit; None is no limit."""
    return most is None or count <= most


class QueueRoom:
    """How much room is left while one message after another of a batch takes some of it."""

    def __init__(
        self, ledger: Ledger, queue: Queue, *, leaving: Sequence[Message] = (), coming: Sequence[Enqueued] = ()
    ) -> None:
        self._ledger = ledger
        self._queue = queue
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

    def has_for(self, count: int, size: int) -> bool:
        """Return whether ``count`` messages of ``size`` bytes certainly fit, whatever their keys."""
        queue, policy, ledger, limits = self._queue, self._queue.policy, self._ledger, self._ledger.limits
        return (
            not queue.counts_keys
            and fits(len(queue.messages) + len(queue.staged) + self._in_queue + count, policy.waiting_max)
            and fits(queue.size + queue.staged_size + self._size_in_queue + size, policy.waiting_bytes_max)
            and fits(ledger.messages + self._messages + count, limits.waiting_max)
            and fits(ledger.size + self._size + size, limits.waiting_bytes_max)
        )

    def take(self, key: Key, size: int) -> FairlaneError | None:
        """Take room for one message, or return why there is none."""
        refusal = self._key_refusal(key, size) or self._queue_refusal(size) or self._global_refusal(size)
        if refusal is None:
            self._messages += 1
            self._size += size
            self._add(key, 1, size)
        return refusal

    def take_in_queue(self, key: Key, size: int) -> FairlaneError | None:
        """Take room for one message that comes from another queue, or return why there is none."""
        refusal = self._key_refusal(key, size) or self._queue_refusal(size)
        if refusal is None:
            self._add(key, 1, size)
        return refusal

    def _add(self, key: Key, count: int, size: int) -> None:
        self._in_queue += count
        self._size_in_queue += size
        messages, total = self._keys.get(key, (0, 0))
        self._keys[key] = (messages + count, total + size)

    def _key_refusal(self, key: Key, size: int) -> FairlaneError | None:
        policy, tallies = self._queue.policy, self._queue.tallies
        if tallies is None:
            return None
        tally = tallies.get(key)
        messages, total = self._keys.get(key, (0, 0))
        messages += 1 + (tally.messages if tally is not None else 0)
        total += size + (tally.size if tally is not None else 0)
        if not fits(messages, policy.key_waiting_max):
            return KeyFull(
                f"Key {key!r:.100} of queue {self._queue.name!r} has key_waiting_max messages.",
                retry_after_ms=RETRY_AFTER_MS,
            )
        if not fits(total, policy.key_waiting_bytes_max):
            return KeyFull(
                f"Key {key!r:.100} of queue {self._queue.name!r} has key_waiting_bytes_max bytes.",
                retry_after_ms=RETRY_AFTER_MS,
            )
        return None

    def _queue_refusal(self, size: int) -> FairlaneError | None:
        queue, policy = self._queue, self._queue.policy
        if not fits(len(queue.messages) + len(queue.staged) + self._in_queue + 1, policy.waiting_max):
            return QueueFull(
                f"Queue {queue.name!r} has waiting_max messages, {policy.waiting_max}.", retry_after_ms=RETRY_AFTER_MS
            )
        if not fits(queue.size + queue.staged_size + self._size_in_queue + size, policy.waiting_bytes_max):
            return QueueFull(
                f"Queue {queue.name!r} has waiting_bytes_max bytes, {policy.waiting_bytes_max}.",
                retry_after_ms=RETRY_AFTER_MS,
            )
        return None

    def _global_refusal(self, size: int) -> FairlaneError | None:
        ledger, limits = self._ledger, self._ledger.limits
        if not fits(ledger.messages + self._messages + 1, limits.waiting_max):
            return GlobalFull(
                f"All queues together have waiting_max messages, {limits.waiting_max}.", retry_after_ms=RETRY_AFTER_MS
            )
        if not fits(ledger.size + self._size + size, limits.waiting_bytes_max):
            return GlobalFull(
                f"All queues together have waiting_bytes_max bytes, {limits.waiting_bytes_max}.",
                retry_after_ms=RETRY_AFTER_MS,
            )
        return None
