"""Threads in which a front end reads a store whose reads take long."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

_THREADS_MAX: Final = 8


class FetchThreads:
    """A few threads, each of which is started when it is first needed.

    They are daemons, not those of a pool: a process that ends does not wait for the store.
    """

    def __init__(self, on_done: Callable[[], None]) -> None:
        """Create it without threads; ``on_done`` is called in one of them after each function."""
        self._on_done = on_done
        self._todo: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._count = 0

    def run(self, load: Callable[[], None]) -> None:
        """Run a function soon. Only one thread at a time may call this."""
        self._todo.put(load)
        if self._count < _THREADS_MAX:
            self._count += 1
            threading.Thread(target=self._work, name=f"fairlane-fetch-{self._count}", daemon=True).start()

    def _work(self) -> None:
        try:
            while (load := self._todo.get()) is not None:
                try:
                    load()
                finally:
                    self._on_done()
        finally:
            self._count -= 1  # another thread takes its place if this one has failed

    def stop(self) -> None:
        """End the threads after what they do."""
        for _ in range(self._count):
            self._todo.put(None)
