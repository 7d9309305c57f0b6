"""The connections of an app: which client a call uses, from a coroutine or a thread, before or after a fork.

A *home* is an event loop with a client on it. While a worker of the app runs in this process, its loop is the home of
all calls, so a handler sends over the worker's own connection. Otherwise a coroutine uses a client on its own loop, and
threads share one on a background loop. Connections open with the first call, so a process may start before the server.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from fairlane.client.aio import AsyncClient
from fairlane.client.portal import Portal
from fairlane.errors import WrongEventLoop

T = TypeVar("T")
Work = Callable[[AsyncClient], Coroutine[Any, Any, T]]


@dataclass(frozen=True, slots=True)
class Home:
    """An event loop and a client on it."""

    loop: asyncio.AbstractEventLoop
    client: AsyncClient


class AppHomes:
    """Finds the client for a call."""

    def __init__(self, make: Callable[[], AsyncClient]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._shared: Home | None = None
        self._by_loop: dict[asyncio.AbstractEventLoop, AsyncClient] = {}
        self._portal: tuple[int, Portal, AsyncClient] | None = None

    @contextmanager
    def shared(self, client: AsyncClient) -> Iterator[None]:
        """Use a client on the running loop for all calls of the process, until the end of the block."""
        before, self._shared = self._shared, Home(asyncio.get_running_loop(), client)
        try:
            yield
        finally:
            self._shared = before

    async def call(self, work: Work[T]) -> T:
        """Run what a call does with a client, for a coroutine."""
        loop, home = asyncio.get_running_loop(), self._shared
        if home is None:
            return await work(self._client_of(loop))
        if home.loop is loop:
            return await work(home.client)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(home.client), home.loop))

    def call_sync(self, work: Work[T]) -> T:
        """Run what a call does with a client, for a thread."""
        home = self._shared
        if home is None:
            portal, client = self._threads()
            return portal.run(work(client))
        if _is_running_in(home.loop):
            raise WrongEventLoop("A sync call on the worker's event loop would deadlock. Use `await task.send(...)`.")
        return asyncio.run_coroutine_threadsafe(work(home.client), home.loop).result()

    async def close(self) -> None:
        """Close the client of the running loop, and the one that threads share."""
        with self._lock:
            client = self._by_loop.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()
        await asyncio.to_thread(self.close_sync)

    def close_sync(self) -> None:
        """Close the client that threads share."""
        with self._lock:
            opened, self._portal = self._portal, None
        if opened is not None and opened[0] == os.getpid():
            _, portal, client = opened
            try:
                portal.run(client.close())
            finally:
                portal.close()

    def _client_of(self, loop: asyncio.AbstractEventLoop) -> AsyncClient:
        with self._lock:  # another thread may have a loop of its own
            client = self._by_loop.get(loop)
            if client is None:
                self._by_loop = {known: kept for known, kept in self._by_loop.items() if not known.is_closed()}
                client = self._by_loop[loop] = self._make()
            return client

    def _threads(self) -> tuple[Portal, AsyncClient]:
        with self._lock:
            opened = self._portal
            if opened is None or opened[0] != os.getpid():  # a forked process has the object, but not its thread
                opened = self._portal = (os.getpid(), Portal(), self._make())
            return opened[1], opened[2]


def _is_running_in(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
