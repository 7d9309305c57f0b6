"""Producers that wait for room, each at the limit that held it back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeAlias

from fairlane.scheduler.item import Item, Key, canonical_key, path_of

Wake: TypeAlias = Callable[[], None]


class WaitingProducers:
    """Queues of waiting producers, first come first served, one for each limit. The key None is the limit on all."""

    def __init__(self) -> None:
        self._queues: dict[Key | None, deque[Wake]] = {}

    def join(self, limit: Key | None, wake: Wake) -> None:
        """Let a producer wait at a limit; ``wake`` is called once when there may be room."""
        self._queues.setdefault(limit, deque()).append(wake)

    def quit(self, limit: Key | None, wake: Wake) -> None:
        """Stop waiting. If the producer had been woken already, the next one is woken in its stead."""
        queue = self._queues.get(limit)
        if queue is not None and wake in queue:
            queue.remove(wake)
            if not queue:
                del self._queues[limit]
        else:
            self._wake_one(limit)

    def pass_on(self, limit: Key | None) -> None:
        """Wake the next producer at a limit, because the one just woken there is held back by another."""
        self._wake_one(limit)

    def __bool__(self) -> bool:
        return bool(self._queues)

    def freed_by(self, items: Iterable[Item]) -> None:
        """Note that items no longer wait: for each, wake one producer at every limit the item counted towards."""
        if not self._queues:
            return
        for item in items:
            path = path_of(item.key)
            for depth in range(1, len(path) + 1):
                self._wake_one(canonical_key(path[:depth]))
            self._wake_one(None)

    def wake_all(self) -> None:
        """Wake every producer, because the limits themselves have changed or the end has come."""
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
