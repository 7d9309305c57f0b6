"""The broker for asyncio: everything on one event loop, no locks.

Requests of one pass of the loop share a cycle and a commit. Syncing blocks the loop where that is quick; where the disk
takes longer it is done in a thread, and what arrives meanwhile shares the next cycle.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any, Self, TypeVar

from fairlane.broker.cycle import Cycle
from fairlane.broker.engine.engine import Engine
from fairlane.broker.engine.state import State
from fairlane.broker.frontends.deliveries import CREDIT, AsyncDeliveries
from fairlane.broker.frontends.fetch_threads import FetchThreads
from fairlane.broker.frontends.observed import ObservedBroker
from fairlane.broker.frontends.phase import Phase
from fairlane.broker.frontends.unclosed import warn_unclosed
from fairlane.broker.handlers import submission_of
from fairlane.broker.handlers.internal import ReadConfig
from fairlane.broker.idle_acks import IdleAcks
from fairlane.broker.measurements import Waited
from fairlane.broker.requests import Attach, AttachedConsumer, Call, Read, Submission
from fairlane.broker.views.deliveries import waited
from fairlane.core.commands import Command, DeleteEmptyQueue
from fairlane.core.producer import LimitedProducer
from fairlane.errors import Closed, FairlaneError, WrongEventLoop, WrongProcess
from fairlane.model.message import Delivery, Receipt
from fairlane.verbs.config import SetConfig
from fairlane.verbs.leases import Ack, LeasedMessages
from fairlane.verbs.methods.complete_aio import AsyncAllVerbs
from fairlane.verbs.verb import Done, Reply, Request

A = TypeVar("A")
T = TypeVar("T")

SLOW_SYNC_S = 0.002
_SMOOTHING = 0.2
_SLEEP_S_MAX = 3600.0


class AsyncBroker(ObservedBroker, AsyncAllVerbs[Delivery]):
    """A durable, fair broker in this process, for one event loop. See ``fairlane.assembly.open_async_broker``.

    Durability and order are those of the verbs. Close it, or use it as a context manager; a process that dies without
    loses nothing that was answered.
    """

    def __init__(self, engine: Engine, *, slow_sync_s: float = SLOW_SYNC_S) -> None:
        super().__init__(engine)
        self._slow_sync_s = slow_sync_s
        self._loop = asyncio.get_running_loop()
        self._process = os.getpid()
        self._sync_s = 0.0
        self._phase = Phase.IDLE
        self._callbacks: list[Callable[[], None]] = []
        self._closing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0
        self._acks = IdleAcks(engine, self._loop.call_later, self._wake)
        self._idle = asyncio.Event()
        self._idle.set()
        engine.consumers.on_unserved = self._wake
        self._fetch_threads = FetchThreads(self._wake_from_thread)
        engine.fetches.run = self._fetch_threads.run
        self._wake()

    def ask(
        self,
        request: Request[Any] | Command[Any],
        reply: Reply,
        *,
        by: str | None = None,
        producer: LimitedProducer | None = None,
    ) -> None:
        """Submit a request. The reply receives its answer once everything that it depends on is durable.

        ``producer`` is the caller if its grants limit which messages it may enqueue.

        Raises:
            InvalidArgument, Forbidden: the request is not valid.
            Closed, WrongProcess, WrongEventLoop: the broker cannot take it.
        """
        self.submit(submission_of(self._engine, request, reply, by, producer))

    async def call(
        self, request: Request[A] | Command[A], *, by: str | None = None, producer: LimitedProducer | None = None
    ) -> A:
        """Return the answer to a request; see ``ask``."""
        reply: asyncio.Future[A] = self._loop.create_future()
        self.submit(submission_of(self._engine, request, reply, by, producer))
        try:
            return await reply
        except asyncio.CancelledError:
            if reply.done() and not reply.cancelled() and reply.exception() is None:
                self._return_unseen(reply.result())
            raise

    def _return_unseen(self, answer: object) -> None:
        """Return messages to their queue whose lease was answered after the caller had been cancelled."""
        if isinstance(answer, LeasedMessages) and answer.deliveries:
            self.give_back(answer.deliveries[0].queue, answer.deliveries)

    def _delivered(self, deliveries: list[Delivery]) -> list[Delivery]:
        return deliveries

    def consume(
        self,
        queue: str,
        *,
        credit: int = CREDIT,
        visibility_ms: int | None = None,
        owner: str | None = None,
        with_state: bool = False,
        handlers: int | None = None,
    ) -> AsyncDeliveries:
        """Return a stream of leased messages, to be entered with ``async with`` and iterated with ``async for``.

        At most ``credit`` messages are in the stream or out of it and not yet acked, nacked or expired. Those with a
        deadline or a throttle or of a key with a cap come only while fewer than ``handlers`` are. By default that is
        one more than you hold whenever you ask for a message.
        """
        return AsyncDeliveries(
            self,
            queue=queue,
            credit=credit,
            visibility_ms=visibility_ms,
            owner=owner,
            with_state=with_state,
            handlers=handlers,
        )

    # -------------------------------------------------------------------------------------------------- for interfaces

    def submit(self, asked: Submission) -> None:
        """Put in line what has a reply of its own, which is answered once what it asks for is durable.

        Raises:
            Closed, WrongProcess, WrongEventLoop: it can't be.
        """
        if os.getpid() != self._process:
            raise WrongProcess("This broker was opened before the fork, in the parent process.")
        if self._closing is not None:
            raise Closed("The broker has been closed.")
        if asyncio.get_running_loop() is not self._loop:
            raise WrongEventLoop("This broker belongs to another event loop.")
        self._engine.inbox.append(asked)
        is_ack = type(asked) is Call and type(asked.request) is Ack and self._engine.consumers.holders
        if not (is_ack and self._phase is Phase.IDLE and self._acks.hold()):
            self._wake()

    @property
    def is_answering(self) -> bool:
        """Whether the answers of a cycle are being given."""
        return self._phase is Phase.ANSWERING

    def call_after_answers(self, callback: Callable[[], None]) -> None:
        """Call back when all answers of the present cycle are given, or if none are being given in the next pass."""
        if self._phase is Phase.ANSWERING:
            self._callbacks.append(callback)
        else:
            self._loop.call_soon(callback)

    async def attach(self, consumer: AttachedConsumer) -> None:
        """Attach a consumer that is more than a stream in this process.

        Raises:
            QueueNotFound, TooManyWaiters: it may not.
        """
        reply: asyncio.Future[None] = self._loop.create_future()
        self.submit(Attach(consumer, reply))
        await reply

    async def detach(self, consumer: AttachedConsumer, *, unseen: Collection[Delivery] = ()) -> None:
        """Detach a consumer. What it has in flight goes back: deferred if it is unseen, else as lost attempts."""
        reply: asyncio.Future[None] = self._loop.create_future()
        self.submit(Attach(consumer, reply, is_closing=True, unseen=unseen))
        await reply

    def widen(self, consumer: AttachedConsumer, handlers: int) -> None:
        """Change how many messages a consumer processes at the same time."""
        consumer.handlers = handlers
        self._engine.consumers.serve_again(consumer.queue)

    def abandon(self, consumer: AttachedConsumer) -> None:
        """Detach a consumer with the next cycle, without waiting for that."""
        self._engine.abandon(consumer)
        self._wake()

    def give_back(self, queue: str, deliveries: Sequence[Delivery | Receipt]) -> None:
        """Return messages, deferred, that were handed out to a caller that is gone."""
        self._engine.give_back(queue, deliveries)
        self._wake()

    def send_away(self, queue: str, error: FairlaneError) -> None:
        """Refuse everyone who waits at a queue, and end its consumers. What they have leased stays leased."""
        self._engine.send_away_from(queue, error)

    def may_know(self, message_id: str) -> bool:
        """Return whether an id was given by the journal of this broker."""
        number = self._engine.ledger.ids.number_of(message_id)
        return number is not None and 0 < number < self._engine.ledger.next_sequence

    async def delete_empty(self, queue: str, *, by: str | None = None) -> bool:
        """Remove a queue if nothing is in it, nor in its dead-letter queue; return whether it was so.

        Raises:
            QueueNotFound, InvalidArgument: there is no such queue, or it can't be removed.
        """
        return await self.call(DeleteEmptyQueue(queue=queue, by=by))

    async def list_private_config(self, prefix: str) -> dict[str, str]:
        """Return config values by prefix, those included that no verb shows."""
        return await self.call(ReadConfig(prefix=prefix))

    async def set_private_config(self, key: str, value: str | None, *, by: str | None = None) -> None:
        """Set a config value that no verb shows, or with None remove it."""
        reply: asyncio.Future[Done] = self._loop.create_future()
        self.submit(Call(SetConfig(values={key: value}), reply, by))
        await reply

    async def _read(self, look: Callable[[], T]) -> T:
        reply: asyncio.Future[T] = self._loop.create_future()
        self.submit(Read(look, reply))
        return await reply

    def waited(self, queue: str, number: int) -> Waited | None:
        """Return since when a message could go that was just handed out; None for one that is gone. For taps."""
        known = self._engine.ledger.queues.get(queue)
        message = None if known is None else known.messages.get(number)
        return None if message is None else waited(message)

    async def close(self) -> None:
        """Finish what has been asked, let waiting consumers go with nothing, and let go of the store."""
        if self._closing is None:
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)  # a caller that gives up waiting leaves nothing half closed

    async def hand_over(self, error: FairlaneError) -> None:
        """Finish the requests that have come, and release the store for another process to open.

        Callers that wait are refused with an error, and consumers end with it. What they have leased stays leased: the
        receipts are valid wherever the store is opened next.
        """
        if self._closing is None:
            self._engine.send_away(error)
            self._closing = self._loop.create_task(self._close(keeps_leases=True))
        await asyncio.shield(self._closing)

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, or is being closed: no request is taken any more."""
        return self._closing is not None

    @property
    def is_lost(self) -> bool:
        """Whether it answers nothing any more: another has taken over the store, or it failed and is not reopened."""
        return self._engine.is_fenced

    async def _close(self, *, keeps_leases: bool = False) -> None:
        if not keeps_leases:
            self._engine.dismiss_consumers()
        self._wake()
        while self._phase is not Phase.IDLE:
            await self._idle.wait()
        if self._timer is not None:
            self._timer.cancel()
        self._fetch_threads.stop()
        if keeps_leases:  # there are others on this loop, and a store that others can reach may take its time
            self._engine.let_go()
            await self._loop.run_in_executor(None, self._engine.store.close)
        else:
            self._engine.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __del__(self) -> None:
        if getattr(self, "_closing", self) is None and os.getpid() == self._process:
            warn_unclosed(self)

    # ----------------------------------------------------------------------------------------------------------- cycles

    def _wake(self) -> None:
        """Run a cycle in the next pass of the loop, unless one is on its way: its end looks for more requests."""
        if self._phase is Phase.IDLE and self._engine.state is not State.CLOSED:
            self._phase = Phase.SCHEDULED
            self._idle.clear()
            self._loop.call_soon(self._run)

    def _wake_from_thread(self) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._wake)

    def _run(self) -> None:
        engine, cycle = self._engine, None
        self._phase = Phase.RUNNING
        try:
            cycle = engine.begin()
            if cycle.records:
                engine.write(cycle)
                if self._sync_s >= self._slow_sync_s:
                    self._sync_in_thread(cycle)
                    return
                self._sync_s += _SMOOTHING * (engine.sync() - self._sync_s)
        except Exception as error:  # noqa: BLE001 - whatever it is, what the store holds is unknown
            self._fail(cycle, error)
            return
        except BaseException:
            self._phase = Phase.IDLE
            engine.distrust(cycle)
            raise
        self._finish(cycle)

    def _sync_in_thread(self, cycle: Cycle) -> None:
        self._phase = Phase.SYNCING
        syncing = self._loop.run_in_executor(None, self._engine.sync)

        def synced(future: asyncio.Future[float]) -> None:
            error = future.exception() if not future.cancelled() else asyncio.CancelledError()
            if error is None:
                self._sync_s += _SMOOTHING * (future.result() - self._sync_s)
                self._finish(cycle)
            else:
                self._fail(cycle, error)

        syncing.add_done_callback(synced)

    def _fail(self, cycle: Cycle | None, error: BaseException) -> None:
        self._phase = Phase.IDLE
        self._engine.fail(cycle if cycle is not None else Cycle(self._engine.now_ms(), 0), error)
        self._rest()

    def _finish(self, cycle: Cycle) -> None:
        self._phase = Phase.ANSWERING
        try:
            self._engine.answer(cycle)
        finally:
            self._phase = Phase.IDLE
            callbacks, self._callbacks = self._callbacks, []
            for callback in callbacks:
                try:
                    callback()
                except Exception as error:  # noqa: BLE001 - it belongs to others, and the next ones still have to run
                    self._loop.call_exception_handler(
                        {"message": "A callback after answers failed", "exception": error}
                    )
            try:
                self._engine.show(cycle)
            finally:
                if callbacks or self._engine.inbox:
                    self._rest()
                else:
                    # Not now: those who were just answered are about to run, and may ask for more.
                    self._loop.call_soon(self._rest)

    def _rest(self) -> None:
        """Go on at once if there is more to do, else when something is due."""
        engine = self._engine
        if self._phase is not Phase.IDLE or engine.state is State.CLOSED:
            return
        if engine.has_requests() and (self._closing is not None or not self._acks.hold()):
            self._wake()
            return
        at_ms = engine.next_look_at()
        if at_ms is not None and (self._timer is None or at_ms < self._timer_at_ms):
            self._set_timer(at_ms)
        self._idle.set()

    def _set_timer(self, at_ms: int) -> None:
        """Wake up at an instant. A timer that fires too early costs less than setting it again in each cycle."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_ms = at_ms
        delay_s = min(max(0.0, (at_ms - self._engine.now_ms()) / 1000), _SLEEP_S_MAX)
        self._timer = self._loop.call_later(delay_s, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        if self._closing is not None:
            return
        at_ms = self._engine.next_event_at()
        if at_ms is not None and at_ms <= self._engine.now_ms():
            self._wake()
        elif at_ms is not None:
            self._set_timer(at_ms)
