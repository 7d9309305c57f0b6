"""A buffered producer for threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Self, Unpack

from fairlane.client.portal import Portal
from fairlane.client.producer_aio import AsyncProducer
from fairlane.errors import Closed
from fairlane.model.message import MessageTerms, NewMessage
from fairlane.model.payloads import NO_VALUE, NoValue
from fairlane.verbs.methods.conversions import message_of


class Producer:
    """Sends messages to one queue in batches, from any number of threads; see ``AsyncProducer``."""

    def __init__(self, portal: Portal, make: Callable[[], AsyncProducer], *, buffered_max: int) -> None:
        self._portal = portal
        self._room = threading.BoundedSemaphore(buffered_max)
        self._lock = threading.Lock()
        self._waiting: list[tuple[NewMessage, Future[str]]] = []
        self._is_closed = False

        async def on_the_loop() -> AsyncProducer:
            return make()

        self._producer = portal.run(on_the_loop())

    def send(
        self,
        message: NewMessage | bytes | NoValue = NO_VALUE,
        *,
        json: object = NO_VALUE,
        **terms: Unpack[MessageTerms],
    ) -> Future[str]:
        """Buffer a message, or a payload with terms, waiting while the buffer is full. Return a future of its id.

        ``json`` is a value that is sent as JSON in place of a payload.

        You can ignore the future: ``flush`` and the end of the block report refused messages.

        Raises:
            InvalidArgument, Closed: the message was not accepted.
        """
        made = message_of(message, json, terms)
        reply: Future[str] = Future()
        self._room.acquire()
        with self._lock:
            if self._is_closed:
                self._room.release()
                raise Closed("The producer is closed.")
            self._waiting.append((made, reply))
            is_first = len(self._waiting) == 1
        if is_first:
            self._portal.soon(self._forward)
        return reply

    def flush(self) -> None:
        """Send buffered messages, and wait until all accepted messages are durable or refused.

        Raises:
            ExceptionGroup: the errors of all messages refused since the last flush, unless ``on_failure`` is set.
        """
        self._portal.run(self._flush())

    def close(self) -> None:
        """Accept no more messages, and flush."""
        with self._lock:
            self._is_closed = True
        self.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except ExceptionGroup:
            if kind is None:  # an exception from inside the block matters more
                raise

    async def _flush(self) -> None:
        self._forward()
        await self._producer.flush()

    def _forward(self) -> None:
        with self._lock:
            handed, self._waiting = self._waiting, []
        for message, reply in handed:
            self._producer.send_nowait(message).add_done_callback(partial(self._done, reply))

    def _done(self, reply: Future[str], result: asyncio.Future[str]) -> None:
        self._room.release()
        if result.cancelled() or not reply.set_running_or_notify_cancel():
            return
        if (error := result.exception()) is not None:
            reply.set_exception(error)
        else:
            reply.set_result(result.result())
