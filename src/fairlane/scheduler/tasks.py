"""Tasks, as the front ends hand them out, and the producers that wait for capacity, each at the limit that refused its
task.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeAlias, TypeVar, Unpack

from fairlane.scheduler.item import Item, ItemTerms, Key, canonical_key, path_of

P = TypeVar("P")
Wake: TypeAlias = Callable[[], None]


class Task(Item, Generic[P]):
    """A piece of work, from ``enqueue`` to ``done``. Keep it to cancel it, or to ask why it waits.

    Attributes:
        payload: the object that the producer passed.
        enqueued_ns: when it was enqueued, by the scheduler's clock.
        is_out: whether it is handed out and not done.
    """

    __slots__ = ("enqueued_ns", "is_out", "payload")

    def __init__(self, key: Key, payload: P, **terms: Unpack[ItemTerms]) -> None:
        """Create a task; see ``Item`` for the terms."""
        super().__init__(key, **terms)
        self.payload = payload
        self.enqueued_ns = 0
        self.is_out = False


class WaitingProducers:
    """Queues of waiting producers, first come first served, one per limit. The key None is the global limit."""

    def __init__(self) -> None:
        self._queues: dict[Key | None, deque[Wake]] = {}

    def join(self, limit: Key | None, wake: Wake) -> None:
        """Add a producer that waits at a limit; ``wake`` is called once when there may be capacity."""
        self._queues.setdefault(limit, deque()).append(wake)

    def quit(self, limit: Key | None, wake: Wake) -> None:
        """Remove a producer that gives up. If it had been woken already, wake the next one instead of it."""
        queue = self._queues.get(limit)
        if queue is not None and wake in queue:
            queue.remove(wake)
            if not queue:
                del self._queues[limit]
        else:
            self._wake_one(limit)

    def pass_on(self, limit: Key | None) -> None:
        """Wake the next producer at a limit, because the one just woken there is held back by another limit."""
        self._wake_one(limit)

    def __bool__(self) -> bool:
        return bool(self._queues)

    def freed_by(self, items: Iterable[Item]) -> None:
        """Wake one producer at every limit that each of these items, which no longer wait, counted towards."""
        if not self._queues:
            return
        for item in items:
            path = path_of(item.key)
            for depth in range(1, len(path) + 1):
                self._wake_one(canonical_key(path[:depth]))
            self._wake_one(None)

    def wake_all(self) -> None:
        """Wake every producer, because limits have changed or the scheduler is closed."""
        queues, self._queues = self._queues, {}
        for queue in queues.values():
            for wake in queue:
                wake()

    def _wake_one(self, limit: Key | None) -> None:
        queue = self._queues.get(limit)
        if queue is not None:
            wake = queue.popleft()
            if not queue:
                del self._queues[limit]
            wake()
