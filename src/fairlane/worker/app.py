"""The worker application: handlers by queue, connection, signals and shutdown."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import signal
import ssl
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, Final, Self, TypedDict, TypeVar, Unpack

from fairlane import __version__
from fairlane.client.aio import AsyncClient
from fairlane.errors import FairlaneError, InvalidArgument
from fairlane.model.policy import QueuePolicy
from fairlane.platforms import posix_fault
from fairlane.runtime import collect_rarely, run
from fairlane.verbs.methods.conversions import given_fields
from fairlane.worker.batches import BatchHandler, batch_handler
from fairlane.worker.consumer import FATAL, Consumer
from fairlane.worker.handlers import QueueHandler, queue_handler
from fairlane.worker.message import WorkMessage
from fairlane.worker.policy import Errors, Handler, HandlerPolicy, Middleware, Restarts
from fairlane.worker.results import Counters

DEFAULT_SERVER = "ws://127.0.0.1:7420"
F = TypeVar("F", bound=Callable[..., Any])
H = TypeVar("H", bound=Handler)
M = TypeVar("M", bound=Middleware)
B = TypeVar("B", bound=BatchHandler)
BATCH_SIZE: Final = 100
BATCH_WAIT_MS: Final = 50
_log = logging.getLogger("fairlane.worker")


class Callbacks:
    """Registered functions, sync or async."""

    def __init__(self) -> None:
        self._start: list[Callable[..., Any]] = []
        self._stop: list[Callable[..., Any]] = []
        self._error: list[Callable[..., Any]] = []

    def on_start(self, function: F) -> F:
        """Register a function to call before the first message is taken; if it raises, the worker does not start."""
        self._start.append(function)
        return function

    def on_stop(self, function: F) -> F:
        """Register a function to call after the last message is settled."""
        self._stop.append(function)
        return function

    def on_error(self, function: F) -> F:
        """Register a function to call with each error and its message, or with None if a consumer failed."""
        self._error.append(function)
        return function

    async def _call_on_start(self) -> None:
        for function in self._start:
            await _called(function)

    async def _call_on_stop(self) -> None:
        for function in self._stop:
            await _called(function)

    async def _call_on_error(self, error: BaseException, message: WorkMessage | None) -> None:
        for function in self._error:
            try:
                await _called(function, error, message)
            except Exception:  # noqa: BLE001 - an error in a callback must not end the worker
                _log.exception("An on_error function failed.")


async def _called(function: Callable[..., Any], *arguments: object) -> None:
    returned = function(*arguments)
    if inspect.isawaitable(returned):
        await returned


class HandlerTerms(TypedDict, total=False):
    """The options of a handler; see ``HandlerPolicy``."""

    concurrency: int
    credit: int | None
    visibility_ms: int
    timeout_s: float | None
    retries: int | None
    retry_on: Errors
    dead_letter_on: Errors
    with_state: bool
    owner: str | None


class Worker(Callbacks):
    """A program that handles messages: register handlers with ``@app.handler("orders")``, then ``await app.run()``.

    As an async context manager the worker runs in the background, and drains at the end of the block. Sync handlers
    run in threads.
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
        """Create a worker without connecting yet.

        Args:
            server: the server's address; by default ``FAIRLANE_SERVER`` from the environment, or this machine.
                Alternatively a connected client, which is left open.
            api_key: the API key; by default ``FAIRLANE_API_KEY`` from the environment.
            tls: the TLS context that verifies the server.
            restarts: when a failed consumer restarts.
            grace_s: how long running handlers may continue during shutdown.
        """
        super().__init__()
        self._server = server
        self._api_key = api_key
        self._tls = tls
        self.restarts = restarts or Restarts()
        self.grace_s = grace_s
        self._handlers: list[QueueHandler] = []
        self.layers: list[Middleware] = []
        self._consumers: list[Consumer] = []
        self._stopping: asyncio.Event | None = None
        self._background: asyncio.Task[None] | None = None
        self._where = ""

    # ---------------------------------------------------------------------------------------------------- registering

    def handler(
        self,
        queue: str,
        *,
        policy: QueuePolicy | Mapping[str, object] | None = None,
        **terms: Unpack[HandlerTerms],
    ) -> Callable[[H], H]:
        """Register the decorated function, sync or async, as the handler of a queue; see ``HandlerPolicy``.

        The function gets a message and returns None or a result. An exception counts as a failure. With a ``policy``,
        the worker creates the queue at its start if it does not exist; it never changes one that does.
        """
        handler_policy = HandlerPolicy(queue=queue, **terms)
        declared = None if policy is None else given_fields(policy)

        def register(handler: H) -> H:
            self._add(queue_handler(handler, handler_policy, declared))
            return handler

        return register

    def batch_handler(
        self,
        queue: str,
        *,
        size: int = BATCH_SIZE,
        wait_ms: int = BATCH_WAIT_MS,
        policy: QueuePolicy | Mapping[str, object] | None = None,
        **terms: Unpack[HandlerTerms],
    ) -> Callable[[B], B]:
        """Register the decorated function, sync or async, as the handler of a queue that gets messages in lists.

        It is called with ``size`` messages, or with fewer ``wait_ms`` after the first came. It returns None, or a list
        with a result for each message. An exception counts as a failure of each.
        """
        handler_policy = HandlerPolicy(**{"queue": queue, "concurrency": 2 * size} | terms)  # type: ignore[arg-type] # names of its fields
        declared = None if policy is None else given_fields(policy)

        def register(handler: B) -> B:
            self._add(batch_handler(handler, handler_policy, size=size, wait_ms=wait_ms, declared=declared))
            return handler

        return register

    def middleware(self, layer: M) -> M:
        """Register the decorated async function around every handler.

        It gets the message and the function to await with it. The first one registered is the outermost.
        """
        self.layers.append(layer)
        return layer

    def use_server(self, server: str, *, api_key: str | None = None, tls: ssl.SSLContext | None = None) -> None:
        """Set the server, unless the worker was created with one."""
        if self._server is None:
            self._server, self._api_key, self._tls = server, self._api_key or api_key, self._tls or tls

    @property
    def handlers(self) -> Sequence[QueueHandler]:
        """What handles each queue."""
        return self._handlers

    @property
    def queues(self) -> list[str]:
        """The queues that have a handler."""
        return [handler.policy.queue for handler in self.handlers]

    @property
    def counters(self) -> Counters:
        """The counts of all queues so far."""
        return reduce(Counters.__add__, [consumer.counters for consumer in self._consumers], Counters())

    # -------------------------------------------------------------------------------------------------------- running

    async def run(self, client: AsyncClient | None = None) -> None:
        """Handle messages until ``stop`` is called, then drain. A given client is used instead of a new one.

        Raises:
            InvalidArgument: no handler is registered.
            Unauthenticated, Forbidden: the server refuses the API key.
        """
        if not self.handlers:
            raise InvalidArgument(
                "The worker has nothing to do; register a task with @app.task, or a handler with @app.handler(QUEUE)."
            )
        self._stopping = self._stopping or asyncio.Event()
        given = client or (self._server if isinstance(self._server, AsyncClient) else None)
        mine = given or self._own_client()
        self._where = "of the given client" if given is not None else self._address()
        try:
            if given is None and not await self._connect(mine):
                return
            await self._work(mine, self._stopping)
        finally:
            self._stopping = None
            if given is None:
                await mine.close()

    def stop(self, *, is_hurried: bool = False) -> None:
        """Start no more handlers; ``run`` returns when the running ones are done, or without them if hurried."""
        if self._stopping is not None:
            self._stopping.set()
            for consumer in self._consumers:
                consumer.stop()
                if is_hurried:
                    consumer.hurry()

    def run_forever(self, client: AsyncClient | None = None) -> None:
        """Run in a new event loop until SIGTERM or SIGINT, then drain. A second signal ends the grace period."""
        collect_rarely()
        run(self.run_until_signalled(client))

    async def run_until_signalled(self, client: AsyncClient | None = None) -> None:
        """Run until SIGTERM or SIGINT; see ``run``. Raises NotImplementedError where there are no POSIX signals."""
        if (fault := posix_fault("Worker.run_until_signalled()")) is not None:
            raise NotImplementedError(fault)
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
        assert self._background is not None  # noqa: S101 - __aenter__ has set it
        self.stop()
        await self._background

    # ------------------------------------------------------------------------------------------------------- internals

    def _add(self, handler: QueueHandler) -> None:
        """Register what handles a queue."""
        self._handlers.append(handler)

    def _on_signal(self) -> None:
        counters = self.counters
        _log.info("Stopping; %d running handlers have up to %g s to finish.", counters.in_flight, self.grace_s)
        if self._stopping is not None and self._stopping.is_set():
            for consumer in self._consumers:
                consumer.hurry()
        self.stop()

    def _address(self) -> str:
        """Return the address of the server."""
        given = self._server if isinstance(self._server, str) else None
        return given or os.environ.get("FAIRLANE_SERVER") or DEFAULT_SERVER

    def _own_client(self) -> AsyncClient:
        return AsyncClient(self._address(), api_key=self._api_key or os.environ.get("FAIRLANE_API_KEY"), tls=self._tls)

    async def _connect(self, client: AsyncClient) -> bool:
        """Connect, with retries; return False if the worker was stopped before."""
        assert self._stopping is not None  # noqa: S101 - set by run
        told = ""
        for wait_s in self.restarts.waits_s():
            try:
                await client.connect()
            except FATAL:
                raise
            except FairlaneError as error:
                if error.cause != told:  # once, and not every two seconds
                    _log.warning("%s Retrying until it succeeds.", error.cause, extra={"code": error.code})
                    told = error.cause
                await self._call_on_error(error, None)
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
        handlers = self.handlers
        _log.info("Fairlane worker %s, process %d, server %s.", __version__, os.getpid(), self._where)
        for handler in handlers:
            name, policy = handler.name, handler.policy
            _log.info("Queue %s: %s, concurrency %d.", policy.queue, name, policy.concurrency)
        await self._call_on_start()
        self._consumers = [
            Consumer(
                client,
                handler,
                middleware=self.layers,
                restarts=self.restarts,
                on_error=self._call_on_error,
            )
            for handler in handlers
        ]
        try:
            await _all_of(self._consumers, stopping, self.grace_s)
        finally:
            counters = self.counters
            _log.info("Worker stopped: %d handled, %d failed.", counters.handled, counters.failed)
            await self._call_on_stop()


async def _all_of(consumers: Sequence[Consumer], stopping: asyncio.Event, grace_s: float) -> None:
    """Run consumers until the worker is stopped or one of them fails for good; then drain all."""
    running = [asyncio.ensure_future(consumer.run(grace_s)) for consumer in consumers]
    stopped = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait([stopped, *running], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
        for consumer in consumers:
            consumer.stop()
        results = await asyncio.gather(*running, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
