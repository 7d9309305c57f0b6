"""Consumes one queue for one handler: opens a channel, reopens it when it ends, and drains it at shutdown.

The parts of a consumer:

- the channel delivers leased messages to it (it is the channel's ``Sink``),
- ``Runners`` runs the handler for them,
- ``Settler`` sends acknowledgements and nacks,
- ``LeaseKeeper`` extends the leases of everything that is held.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from fairlane.client.aio import AsyncClient
from fairlane.client.retries import LEASES_STAY
from fairlane.client.transport import Channel
from fairlane.errors import (
    Closed,
    Disconnected,
    FairlaneError,
    Forbidden,
    InternalError,
    Unauthenticated,
)
from fairlane.model.message import Delivery
from fairlane.wire.frames import Consume
from fairlane.worker.declarations import ensure_declared
from fairlane.worker.handlers import QueueHandler
from fairlane.worker.lease_keeper import LeaseKeeper
from fairlane.worker.message import WorkMessage
from fairlane.worker.policy import Answer, AsyncHandle, Middleware, Restarts, default_owner
from fairlane.worker.results import Counters, Defer
from fairlane.worker.runners import OnError, Runners
from fairlane.worker.settlement import Settler
from fairlane.worker.threads import HandlerThreads
from fairlane.worker.tracing import traced

FATAL: Final = (Unauthenticated, Forbidden)
"""Errors after which a retry is pointless."""
_CLOSE_TIMEOUT_S: Final = 5.0
_REMIND_S: Final = 30.0
"""How often the same failure is logged while it lasts."""
_log = logging.getLogger("fairlane.worker")


class Consumer:
    """Takes the messages of a queue and passes them to runners. It is the ``Sink`` of its channel."""

    def __init__(
        self,
        client: AsyncClient,
        handler: QueueHandler,
        *,
        middleware: Sequence[Middleware],
        restarts: Restarts,
        on_error: OnError,
    ) -> None:
        self._client = client
        self._policy = policy = handler.policy
        self._owner = policy.owner or default_owner(handler.name)
        self._handler = handler
        self._is_declared = False
        self._restarts = restarts
        self._on_error = on_error
        self.counters = Counters()
        self._kind_of = handler.kind_of
        self._threads = HandlerThreads(policy, self._settle_interrupted)
        keeper = LeaseKeeper(
            client,
            policy.queue,
            visibility_ms=policy.visibility_ms,
            on_lost=self._lost_waiting,
            on_cancelled=self._cancelled_waiting,
            on_checked=self._checked,
        )
        self._keeper = keeper
        self._settler = Settler(client, policy.queue, self.counters, keeper.forget, owner=self._owner)
        handle = traced(wrapped(handler.handle(self._threads), middleware))
        self._runners = Runners(
            handle,
            policy,
            policy_of=handler.policy_of,
            settler=self._settler,
            counters=self.counters,
            on_error=on_error,
        )
        self._loop = asyncio.get_running_loop()
        self._channel: Channel | None = None
        self._is_moved = False
        self._ended: asyncio.Future[FairlaneError] = self._loop.create_future()
        self._stopping = asyncio.Event()
        self._hurried = asyncio.Event()
        self._waits_s = restarts.waits_s()
        self._told, self._remind_s = "", 0.0

    def stop(self) -> None:
        """Start no more handlers."""
        self._stopping.set()
        self._runners.pause()

    def hurry(self) -> None:
        """End the grace period."""
        self._hurried.set()

    async def run(self, grace_s: float) -> None:
        """Consume until stopped, then drain.

        Raises:
            Unauthenticated, Forbidden: the server refuses the API key.
            FairlaneError: the consumer failed more often in a row than ``Restarts`` allows.
        """
        keeping = self._loop.create_task(self._keeper.run())
        consuming = self._loop.create_task(self._consume())
        stopping = self._loop.create_task(self._stopping.wait())
        try:
            await asyncio.wait([consuming, stopping, keeping], return_when=asyncio.FIRST_COMPLETED)
            await _cancelled(consuming)
            await self._drain(grace_s)
        finally:
            for task in (stopping, keeping, consuming):
                await _cancelled(task)
            self._settler.cancel()
            await self._runners.close()
            self._threads.close()
        if not consuming.cancelled() and (error := consuming.exception()) is not None:
            raise error

    # ------------------------------------------------------------------------------------------------------ deliveries

    def deliver(self, deliveries: list[Delivery]) -> None:
        """Accept leased messages; see ``Sink``."""
        kind_of, client, now_s, due_s = self._kind_of, self._client, self._loop.time(), self._keeper.due_s()
        messages = [kind_of(delivery)(delivery, client, now_s=now_s, due_s=due_s) for delivery in deliveries]
        self._keeper.add(messages)
        self._runners.offer(messages)
        self._waits_s = self._restarts.waits_s()

    def ended(self, error: FairlaneError) -> None:
        """Note that the channel has ended; see ``Sink``."""
        if isinstance(error, Disconnected):  # the server may have given the waiting messages to other consumers
            self._runners.pause()
            self._keeper.doubt()
        if not self._ended.done():
            self._ended.set_result(error)

    def cancelled(self, ids: Sequence[str]) -> None:
        """Stop the handlers of messages that were cancelled, and drop those without one; see ``Sink``."""
        self._keeper.cancelled(ids)

    def withdraw(self, matches: Callable[[str], bool]) -> list[Delivery]:
        """Remove these messages before a handler sees them, and check the leases of the running ones; see ``Sink``."""
        withdrawn = self._runners.take_unseen(matches)
        for message in withdrawn:
            self._keeper.forget(message)
        self._keeper.doubt()
        return [message.delivery for message in withdrawn]

    def _lost_waiting(self, message: WorkMessage) -> None:
        self._settler.lose(message)  # the runners skip it

    def _cancelled_waiting(self, message: WorkMessage) -> None:
        self._settler.drop_cancelled(message)  # the runners skip it

    def _checked(self) -> None:
        if not self._stopping.is_set():
            self._runners.resume()

    async def _settle_interrupted(self, message: WorkMessage) -> None:
        result = await self._runners.interrupted(message)
        if result is not None:
            self._settler.settle(message, result)

    # ---------------------------------------------------------------------------------------------- channel and drain

    async def _consume(self) -> None:
        while True:
            try:
                error = await self._session()
            except FATAL:
                raise
            except FairlaneError as refused:
                error = refused
            except Exception as fault:  # noqa: BLE001 - a consumer restarts after any failure
                error = InternalError(f"{type(fault).__name__}: {fault}")
            if isinstance(error, FATAL):
                raise error
            await self._wait(error)

    async def _session(self) -> FairlaneError:
        """Consume from one channel until it ends, and return the reason."""
        if not self._is_declared:  # a queue that an operator deletes later stays deleted while the worker runs
            await ensure_declared(self._client, self._handler)
            self._is_declared = True
        self._ended = self._loop.create_future()
        request = Consume(
            queue=self._policy.queue,
            credit=self._policy.credit_or_default,
            visibility_ms=self._policy.visibility_ms,
            owner=self._owner,
            with_state=self._policy.with_state,
            handlers=self._policy.concurrency,
        )
        self._channel = await self._client.transport.open(request, self)
        self._told = ""
        _log.info("Consuming queue %s.", self._policy.queue, extra={"queue": self._policy.queue})
        error = await self._ended
        if isinstance(error, Closed):
            await self._hand_over()
        elif isinstance(error, LEASES_STAY):
            self._is_moved = True
        elif not isinstance(error, Disconnected):
            await self._stop_channel()
        self._channel = None
        return error

    async def _hand_over(self) -> None:
        """Finish the running handlers while the server shuts down, which still accepts acks, and return the rest."""
        self._runners.pause()
        for message in list(self._runners.backlog):
            self._settler.settle(message, Defer())
        self._runners.backlog.clear()
        await self._runners.idle()
        await self._settler.drained()
        await self._stop_channel()
        self._runners.resume()

    async def _stop_channel(self) -> None:
        """Close the channel and return the messages that no handler has seen."""
        unseen = self._runners.take_unseen()
        for message in unseen:
            self._keeper.forget(message)
        if self._channel is not None:
            with suppress(FairlaneError):  # the server has already taken them back
                await self._channel.stop([message.delivery for message in unseen])
        if unseen and (self._is_moved or getattr(self._client.transport, "is_cluster", False)):
            # A channel that ended because the queue moved does not return its messages, so return them explicitly.
            with suppress(FairlaneError):
                await self._client.nack_many(self._policy.queue, unseen, intent="defer")

    async def _wait(self, error: FairlaneError) -> None:
        wait_s = next(self._waits_s, None)
        if wait_s is None:
            raise error
        queue = self._policy.queue
        fields = {"queue": queue, "code": error.code}
        # A server or queue that stays away is tried every two seconds, which need not all be in the log.
        if str(error) != self._told or self._loop.time() >= self._remind_s:
            told = error.cause if isinstance(error, Disconnected) else str(error)  # its remedy is for other calls
            _log.warning("Cannot consume queue %s: %s Retrying.", queue, told, extra=fields)
            self._told, self._remind_s = str(error), self._loop.time() + _REMIND_S
        await self._on_error(error, None)
        await asyncio.sleep(wait_s)

    async def _drain(self, grace_s: float) -> None:
        """Wait for running handlers up to the grace period, interrupt the rest, and return unseen messages."""
        self._runners.pause()
        idle, hurried = (asyncio.ensure_future(event()) for event in (self._runners.idle, self._hurried.wait))
        await asyncio.wait([idle, hurried], timeout=grace_s, return_when=asyncio.FIRST_COMPLETED)
        await _cancelled(idle)
        await _cancelled(hurried)
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._runners.interrupt()
                await self._settler.drained()
                await self._stop_channel()


def wrapped(handle: AsyncHandle, middleware: Sequence[Middleware]) -> AsyncHandle:
    """Return a handler inside layers of middleware, the first of them outermost."""
    for layer in reversed(middleware):
        handle = _layered(layer, handle)
    return handle


def _layered(layer: Middleware, inner: AsyncHandle) -> AsyncHandle:
    async def handle(message: WorkMessage) -> Answer:
        return await layer(message, inner)

    return handle


async def _cancelled(task: asyncio.Task[object]) -> None:
    """Cancel a task and wait for its end; its exception, if any, stays in the task."""
    if not task.done():
        task.cancel()
        await asyncio.wait([task])
