"""The worker: handlers by queue, and everything around them."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import ssl
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Self, TypedDict, TypeVar, Unpack

from fairlane.client.aio import AsyncClient
from fairlane.errors import FairlaneError, InvalidArgument
from fairlane.worker.consumer import FATAL, Consumer
from fairlane.worker.counters import Counters
from fairlane.worker.hooks import Hooks
from fairlane.worker.policy import Errors, Handler, HandlerPolicy, Middleware
from fairlane.worker.restarts import Restarts

DEFAULT_SERVER = "ws://127.0.0.1:7420"
H = TypeVar("H", bound=Handler)
M = TypeVar("M", bound=Middleware)
_log = logging.getLogger("fairlane.worker")


class HandlerTerms(TypedDict, total=False):
    """What can be said of a handler beside its queue; see ``HandlerPolicy``."""

    concurrency: int
    credit: int | None
    visibility_ms: int
    timeout_s: float | None
    retries: int | None
    retry_on: Errors
    dead_letter_on: Errors
    with_state: bool
    owner: str | None


class Worker(Hooks):
    """Handles messages: register handlers with ``@app.handler("orders")``, then ``await app.run()``.

    As an async context manager it works in the background, and drains when it is left. Sync handlers run in threads.
    """

    def __init__(
        self,
        server: str | AsyncClient | None = None,
        *,
        api_key: str | None = None,
        tls: ssl.SSLContext | None = None,
        restarts: Restarts | None = None,
        grace_s: float = 30.0,
    ) -> None:
        """Prepare, without connecting yet.

        Args:
            server: the server's address; by default that in the environment as ``FAIRLANE_SERVER``, or this machine.
                Or a client, which must be connected, and is left open.
            api_key: who we are; by default as ``FAIRLANE_API_KEY`` says.
            tls: how to verify the server.
            restarts: when a consumer that failed begins again.
            grace_s: how long handlers may go on when the worker goes down.
        """
        super().__init__()
        self._server = server
        self._api_key = api_key
        self._tls = tls
        self.restarts = restarts or Restarts()
        self.grace_s = grace_s
        self._handlers: list[tuple[HandlerPolicy, Handler]] = []
        self._middleware: list[Middleware] = []
        self._consumers: list[Consumer] = []
        self._stopping: asyncio.Event | None = None
        self._background: asyncio.Task[None] | None = None

    # ---------------------------------------------------------------------------------------------------- registering

    def handler(self, queue: str, **terms: Unpack[HandlerTerms]) -> Callable[[H], H]:
        """Let the decorated function, sync or async, handle the messages of a queue; see ``HandlerPolicy``.

        It gets a message, and returns None or a result. What it raises counts as a failure.
        """
        policy = HandlerPolicy(queue=queue, **terms)

        def register(handler: H) -> H:
            self._handlers.append((policy, handler))
            return handler

        return register

    def middleware(self, layer: M) -> M:
        """Let the decorated async function be around every handler: it gets the message and what to await with it.

        The first that is registered is the outermost.
        """
        self._middleware.append(layer)
        return layer

    def use_server(self, server: str, *, api_key: str | None = None, tls: ssl.SSLContext | None = None) -> None:
        """Use a server, unless the worker was made for one."""
        if self._server is None:
            self._server, self._api_key, self._tls = server, self._api_key or api_key, self._tls or tls

    @property
    def queues(self) -> list[str]:
        """The queues that have a handler."""
        return [policy.queue for policy, _ in self._handlers]

    @property
    def counters(self) -> Counters:
        """What has been done so far, in all queues."""
        return reduce(Counters.__add__, [consumer.counters for consumer in self._consumers], Counters())

    # -------------------------------------------------------------------------------------------------------- running

    async def run(self, client: AsyncClient | None = None) -> None:
        """Work until ``stop`` is called, and then drain. A client that is given is used instead of our own.

        Raises:
            InvalidArgument: there is no handler.
            Unauthenticated, Forbidden: the server does not let us in.
        """
        if not self._handlers:
            raise InvalidArgument("There is no handler.")
        self._stopping = self._stopping or asyncio.Event()
        given = client or (self._server if isinstance(self._server, AsyncClient) else None)
        mine = given or self._own_client()
        try:
            if given is None and not await self._connect(mine):
                return
            await self._work(mine, self._stopping)
        finally:
            self._stopping = None
            if given is None:
                await mine.close()

    def stop(self) -> None:
        """Take no more messages, and let ``run`` return when those that were begun are done."""
        if self._stopping is not None:
            self._stopping.set()
            for consumer in self._consumers:
                consumer.stop()

    def run_forever(self, client: AsyncClient | None = None) -> None:
        """Work in an event loop of its own until SIGTERM or SIGINT, and then drain. A second signal ends the grace."""
        asyncio.run(self.run_until_signalled(client))

    async def run_until_signalled(self, client: AsyncClient | None = None) -> None:
        """Do as ``run``, until SIGTERM or SIGINT."""
        loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        signals = (signal.SIGTERM, signal.SIGINT)
        for number in signals:
            loop.add_signal_handler(number, self._on_signal)
        try:
            await self.run(client)
        finally:
            for number in signals:
                loop.remove_signal_handler(number)

    async def __aenter__(self) -> Self:
        self._stopping = asyncio.Event()
        self._background = asyncio.get_running_loop().create_task(self.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._background is not None  # noqa: S101 - it was entered
        self.stop()
        await self._background

    # ------------------------------------------------------------------------------------------------------ the inside

    def _on_signal(self) -> None:
        if self._stopping is not None and self._stopping.is_set():
            for consumer in self._consumers:
                consumer.hurry()
        self.stop()

    def _own_client(self) -> AsyncClient:
        assert not isinstance(self._server, AsyncClient)  # noqa: S101 - then it is used itself
        server = self._server or os.environ.get("FAIRLANE_SERVER") or DEFAULT_SERVER
        return AsyncClient(server, api_key=self._api_key or os.environ.get("FAIRLANE_API_KEY"), tls=self._tls)

    async def _connect(self, client: AsyncClient) -> bool:
        """Connect, however long it takes; return whether that was done before we were told to stop."""
        assert self._stopping is not None  # noqa: S101 - set by run
        for wait_s in self.restarts.waits_s():
            try:
                await client.connect()
            except FATAL:
                raise
            except FairlaneError as error:
                _log.warning(
                    "There is no server: %s Trying again in %.2f s.", error, wait_s, extra={"code": error.code}
                )
                await self._tell_error(error, None)
            else:
                return True
            try:
                async with asyncio.timeout(wait_s):
                    await self._stopping.wait()
            except TimeoutError:
                continue
            return False
        await client.connect()
        return True

    async def _work(self, client: AsyncClient, stopping: asyncio.Event) -> None:
        self._consumers = [
            Consumer(
                client,
                handler,
                policy,
                middleware=self._middleware,
                restarts=self.restarts,
                on_error=self._tell_error,
            )
            for policy, handler in self._handlers
        ]
        await self._tell_start()
        try:
            await _all_of(self._consumers, stopping, self.grace_s)
        finally:
            counters = self.counters
            _log.info("The worker has stopped: %d handled, %d failed.", counters.handled, counters.failed)
            await self._tell_stop()


async def _all_of(consumers: Sequence[Consumer], stopping: asyncio.Event, grace_s: float) -> None:
    """Run consumers until told to stop or until one of them fails for good; then all are drained."""
    running = [asyncio.ensure_future(consumer.run(grace_s)) for consumer in consumers]
    told = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait([told, *running], return_when=asyncio.FIRST_COMPLETED)
    finally:
        told.cancel()
        for consumer in consumers:
            consumer.stop()
        results = await asyncio.gather(*running, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
