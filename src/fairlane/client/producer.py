"""A buffered producer, for threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Self, Unpack

from fairlane.client.portal import Portal
from fairlane.client.producer_aio import AsyncProducer, Producing
from fairlane.errors import Closed, FairlaneError
from fairlane.model.message import MessageTerms, NewMessage
from fairlane.verbs.methods.conversions import message_of


class Producer:
    """Sends messages to one queue in batches, from any number of threads; see ``AsyncProducer``."""

    def __init__(
        self,
        client: Producing,
        portal: Portal,
        queue: str,
        *,
        batch: int,
        linger_ms: int,
        in_flight: int,
        on_failure: Callable[[NewMessage, FairlaneError], None] | None,
    ) -> None:
        self._portal = portal
        self._room = threading.BoundedSemaphore(2 * batch * in_flight)
        self._lock = threading.Lock()
        self._handed: list[tuple[NewMessage, Future[str]]] = []
        self._is_closed = False

        async def make() -> AsyncProducer:
            return client.producer(queue, batch=batch, linger_ms=linger_ms, in_flight=in_flight, on_failure=on_failure)

        self._producer = portal.run(make())

    def send(self, message: NewMessage | bytes, **terms: Unpack[MessageTerms]) -> Future[str]:
        """Take a message, or a payload with terms, as soon as there is room. Returns the future id of the message.

        The future need not be asked: ``flush`` and leaving report what was refused.

        Raises:
            InvalidArgument, Closed: it was not taken.
        """
        made = message_of(message, terms)
        reply: Future[str] = Future()
        self._room.acquire()
        with self._lock:
            if self._is_closed:
                self._room.release()
                raise Closed("The producer has been closed.")
            self._handed.append((made, reply))
            is_first = len(self._handed) == 1
        if is_first:
            self._portal.soon(self._hand_over)
        return reply

    def flush(self) -> None:
        """Send what is buffered and wait until all that was taken so far is durable or refused.

        Raises:
            ExceptionGroup: the errors of all messages that were refused since the last flush, unless there is an
                ``on_failure`` that was told of them.
        """
        self._portal.run(self._flush())

    def close(self) -> None:
        """Take no more, and flush."""
        with self._lock:
            self._is_closed = True
        self.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except ExceptionGroup:
            if kind is None:  # otherwise what was raised inside is more to the point
                raise

    async def _flush(self) -> None:
        self._hand_over()
        await self._producer.flush()

    def _hand_over(self) -> None:
        with self._lock:
            handed, self._handed = self._handed, []
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
