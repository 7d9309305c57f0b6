"""Settles messages. Results of one pass of the event loop are sent together.

Every request names the fencing token of a lease, so it is safe to repeat: the second one changes nothing. After a lost
connection a request is repeated until it is answered, or until the lease has ended.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, TypeAlias

from fairlane.client.aio import AsyncClient
from fairlane.client.retries import is_passing
from fairlane.errors import (
    Closed,
    FairlaneError,
    FullError,
    InvalidArgument,
    LeaseMismatch,
    MessageCancelled,
    MessageNotFound,
    PayloadTooLarge,
    QueueNotFound,
    RequestTooLarge,
    ResultTooLarge,
    StoreFull,
)
from fairlane.model.limits import ERROR_LENGTH_MAX
from fairlane.model.message import Became, FailureDetail
from fairlane.verbs.leases import NackIntent
from fairlane.worker.message import SETTLING, WorkMessage
from fairlane.worker.results import (
    ACK,
    Acknowledge,
    Counters,
    DeadLetter,
    Defer,
    Expired,
    ForwardTo,
    HandlerResult,
    Retry,
)

Settled: TypeAlias = Became | FairlaneError | None
"""The answer for one message: what became of it, an error, or None if it is acknowledged."""
Ask: TypeAlias = Callable[[Sequence[WorkMessage]], Awaitable[Sequence[Settled]]]
OnRefused: TypeAlias = Callable[[WorkMessage, FairlaneError], None]
NackResult: TypeAlias = Retry | DeadLetter | Defer | Expired
_INTENTS: Final[dict[type[NackResult], tuple[NackIntent, str]]] = {
    Retry: ("failure", "retried"),
    DeadLetter: ("dead", "dead"),
    Defer: ("defer", "deferred"),
    Expired: ("defer", "expired"),  # the broker's clock decides: a deferred message that is too late expires
}
"""What each result asks of the broker, and the counter for it."""
_ENDED: Final[dict[Settled, str]] = {"dead": "dead", "expired": "expired"}
"""The counters of messages that do not wait again, whatever was asked for them."""
GONE: Final = (LeaseMismatch, MessageNotFound, QueueNotFound, Closed)
_UNACCEPTABLE: Final = (ResultTooLarge, PayloadTooLarge, RequestTooLarge, InvalidArgument)
"""Refusals of a result as it is. The next attempt would most likely give the same one, and so on for ever."""
_CROWDED: Final = (FullError, StoreFull)
"""Refusals that end when consumers have made room. The handler is done, so only its result is sent again."""
_log = logging.getLogger("fairlane.worker")


class Settler:
    """Sends the result of each message to the broker, once."""

    def __init__(
        self, client: AsyncClient, queue: str, counters: Counters, forget: Callable[[WorkMessage], None], *, owner: str
    ) -> None:
        self._client = client
        self._queue = queue
        self._counters = counters
        self._forget = forget
        self._owner, self._host = owner, socket.gethostname()
        self._loop = asyncio.get_running_loop()
        self._acks: list[WorkMessage] = []
        self._given: dict[WorkMessage, Acknowledge] = {}
        self._back: dict[tuple[NackResult, str], list[WorkMessage]] = {}
        self._is_scheduled = False
        self._is_draining = False
        self._tasks: set[asyncio.Task[None]] = set()

    def settle(self, message: WorkMessage, result: HandlerResult | Expired) -> None:
        """Settle a message with a result, unless it is already settled or lost."""
        if message.phase == SETTLING:
            return
        message.phase = SETTLING
        if result is ACK:
            self._acks.append(message)
        elif isinstance(result, ForwardTo):
            self._start(self._forward(message, result))
            return
        elif isinstance(result, Acknowledge):
            self._acks.append(message)
            self._given[message] = result
        else:
            self._back.setdefault((result, message.traceback), []).append(message)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._flush)

    def lose(self, message: WorkMessage) -> None:
        """Drop a message whose lease is lost."""
        message.phase = SETTLING
        self._given.pop(message, None)
        self._counters.lost += 1
        self._forget(message)
        fields = {"queue": self._queue, "message_id": message.id, "correlation_id": message.correlation_id}
        _log.warning("Lost the lease of a message; it will be redelivered.", extra=fields)

    def drop_cancelled(self, message: WorkMessage) -> None:
        """Drop a message that was cancelled."""
        message.phase = SETTLING
        self._given.pop(message, None)
        self._counters.cancelled += 1
        self._forget(message)
        fields = {"queue": self._queue, "message_id": message.id, "correlation_id": message.correlation_id}
        _log.info("A message was cancelled.", extra=fields)

    async def drained(self) -> None:
        """Wait until the broker has answered all results. Messages whose results find no room are returned."""
        self._flush()
        self._is_draining = True
        while self._tasks:
            await asyncio.wait(self._tasks)
        self._is_draining = False

    def cancel(self) -> None:
        """Stop waiting for answers."""
        for task in self._tasks:
            task.cancel()

    # ------------------------------------------------------------------------------------------------------- internals

    def _flush(self) -> None:
        self._is_scheduled = False
        if self._acks:
            acks, self._acks = self._acks, []
            self._start(self._send(acks, self._ack, "handled"))
        if self._back:
            back, self._back = self._back, {}
            for (result, traceback), messages in back.items():
                self._start(self._send(messages, self._nack(result, traceback), _INTENTS[type(result)][1]))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ack(self, messages: Sequence[WorkMessage]) -> Sequence[FairlaneError | None]:
        if not self._given:
            return await self._client.ack_many(self._queue, messages)
        given = [self._given.get(message, ACK) for message in messages]
        costs, results = [each.cost for each in given], [each.result for each in given]
        return await self._client.ack_many(self._queue, messages, costs=costs, results=results)

    def _nack(self, result: NackResult, traceback: str = "") -> Ask:
        intent, _ = _INTENTS[type(result)]
        error, detail = "", None
        if isinstance(result, Retry | DeadLetter):
            error = result.error[:ERROR_LENGTH_MAX]
            detail = FailureDetail(traceback=traceback, worker=self._owner, host=self._host)
        delay_ms = result.delay_ms if isinstance(result, Retry | Defer) else None

        async def ask(messages: Sequence[WorkMessage]) -> Sequence[Settled]:
            return await self._client.nack_many(
                self._queue, messages, error=error, intent=intent, delay_ms=delay_ms, detail=detail
            )

        return ask

    async def _forward(self, message: WorkMessage, result: ForwardTo) -> None:
        async def ask(messages: Sequence[WorkMessage]) -> Sequence[Settled]:
            await self._client.ack(messages[0], cost=result.cost, result=result.result, forward=result.messages)
            return [None]

        await self._send([message], ask, "handled", on_refused=self._not_forwarded)

    async def _send(
        self,
        messages: list[WorkMessage],
        ask: Ask,
        counter: str,
        on_refused: OnRefused | None = None,
    ) -> None:
        waits_s = self._client.retries.waits_s()
        before: dict[WorkMessage, Settled] = {}
        while messages:
            answers = await self._ask(messages, ask)
            if not self._given and answers.count(None) == len(messages):
                self._all_done(messages, counter)
                return
            again = [
                message
                for message, answer in zip(messages, answers, strict=True)
                if not self._is_answered(message, answer, counter, on_refused, before=before.get(message))
            ]
            if not again:
                return
            before = dict(zip(messages, answers, strict=True))
            await asyncio.sleep(next(waits_s))
            messages = self._in_time(again)

    def _is_answered(
        self, message: WorkMessage, answer: Settled, counter: str, on_refused: OnRefused | None, *, before: Settled
    ) -> bool:
        """Note the answer for a message, after the one before. Return False if its result has to be sent again."""
        if not isinstance(answer, FairlaneError):
            if answer == "dead" and counter == "retried":
                self._tell_dead(message)
            self._done(message, _ENDED.get(answer, counter))
        elif isinstance(answer, MessageNotFound) and isinstance(before, FairlaneError) and is_passing(before):
            self._done(message, counter)  # the request before has succeeded
        elif is_passing(answer):
            return False
        elif isinstance(answer, _CROWDED) and not self._is_draining:
            if not isinstance(before, _CROWDED):
                self._tell_crowded(message, answer)
            return False
        else:
            (on_refused or self._refused)(message, answer)
        return True

    async def _ask(self, messages: Sequence[WorkMessage], ask: Ask) -> Sequence[Settled]:
        try:
            return await ask(messages)
        except _UNACCEPTABLE as error:
            if len(messages) == 1:
                return [error]
        except FairlaneError as error:
            return [error] * len(messages)
        # One result spoils a request for all, or all together are too large for one.
        return [answer for (answer,) in await asyncio.gather(*[self._ask([each], ask) for each in messages])]

    def _in_time(self, messages: list[WorkMessage]) -> list[WorkMessage]:
        """Return the messages whose lease may still be valid, and drop the others."""
        now = self._loop.time()
        for message in messages:
            if message.due_s <= now:
                self.lose(message)
        return [message for message in messages if message.due_s > now]

    def _all_done(self, messages: list[WorkMessage], counter: str) -> None:
        """Note that all of these were acknowledged, with neither cost nor result, as most messages are."""
        forget = self._forget
        for message in messages:
            message.is_settled = True
            forget(message)
        setattr(self._counters, counter, getattr(self._counters, counter) + len(messages))

    def _done(self, message: WorkMessage, counter: str) -> None:
        message.is_settled = True
        self._given.pop(message, None)
        self._forget(message)
        setattr(self._counters, counter, getattr(self._counters, counter) + 1)

    def _tell_dead(self, message: WorkMessage) -> None:
        """Log that a message was not retried, which the log of its failure could not know."""
        fields = {"queue": self._queue, "message_id": message.id, "correlation_id": message.correlation_id}
        _log.warning("A message was dead-lettered after its last attempt.", extra=fields | {"attempt": message.attempt})

    def _tell_crowded(self, message: WorkMessage, error: FairlaneError) -> None:
        fields = {"queue": self._queue, "message_id": message.id, "correlation_id": message.correlation_id}
        _log.warning("Keeping the lease of a handled message until there is capacity: %s", error.cause, extra=fields)

    def _refused(self, message: WorkMessage, error: FairlaneError) -> None:
        if isinstance(error, _UNACCEPTABLE):
            self._failed(message, DeadLetter(f"{type(error).__name__}: {error}"), on_refused=self._given_up)
        else:
            self._given_up(message, error)

    def _given_up(self, message: WorkMessage, error: FairlaneError) -> None:
        if isinstance(error, MessageCancelled):
            self.drop_cancelled(message)
            return
        if not isinstance(error, GONE):
            _log.error("Cannot settle a message: %s", error, extra={"code": error.code, "queue": self._queue})
        self.lose(message)

    def _not_forwarded(self, message: WorkMessage, error: FairlaneError) -> None:
        if isinstance(error, (LeaseMismatch, MessageNotFound, MessageCancelled, Closed, *_UNACCEPTABLE)):
            self._refused(message, error)
        elif isinstance(error, _CROWDED):  # the worker stops, so another one has to do the work again
            self._start(self._send([message], self._nack(Defer()), "deferred"))
        else:  # neither acknowledged nor enqueued, so treat it like a failed handler
            self._failed(message, Retry(error=f"{type(error).__name__}: {error}"))

    def _failed(self, message: WorkMessage, result: Retry | DeadLetter, on_refused: OnRefused | None = None) -> None:
        """Return a message whose result was refused."""
        self._counters.failed += 1
        self._given.pop(message, None)
        fields = {"queue": self._queue, "message_id": message.id, "correlation_id": message.correlation_id}
        _log.warning("The result of a message was refused: %s", result.error, extra=fields)
        self._start(self._send([message], self._nack(result), _INTENTS[type(result)][1], on_refused))
