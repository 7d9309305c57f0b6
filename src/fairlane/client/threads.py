"""The client for threads: the asyncio client on a background event loop, with methods that block.

Calls of many threads share one connection, and calls of the same moment are sent together. A call costs a switch to the
loop's thread and back; streams and producers switch once for many messages.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

from fairlane.client.aio import CREDIT, AsyncClient, embedded_transport
from fairlane.client.message import Message
from fairlane.client.portal import Portal
from fairlane.client.producer import Producer
from fairlane.client.retries import Retries
from fairlane.client.stream import Stream
from fairlane.client.tracing import traced
from fairlane.client.transport import Transport
from fairlane.client.transport.websocket import FRAME_BYTES_MAX
from fairlane.errors import Closed, FairlaneError
from fairlane.model.message import Delivery, NewMessage, Receipt
from fairlane.verbs.methods.complete import AllVerbs
from fairlane.verbs.methods.conversions import Held, receipt_of
from fairlane.verbs.verb import Request

A = TypeVar("A")


class Client(AllVerbs[Message]):
    """A client of a Fairlane server, or of a broker in this process, for any number of threads.

    Use it as a context manager. See ``AsyncClient`` for the arguments and for lost connections.
    """

    def __init__(
        self,
        server: str | Transport,
        *,
        api_key: str | None = None,
        timeout: float = 30.0,
        retries: Retries | None = None,
        tls: ssl.SSLContext | None = None,
        dedup: bool = True,
        frame_bytes_max: int = FRAME_BYTES_MAX,
    ) -> None:
        self._async = AsyncClient(
            server,
            api_key=api_key,
            timeout=timeout,
            retries=retries,
            tls=tls,
            dedup=dedup,
            frame_bytes_max=frame_bytes_max,
        )
        self._portal: Portal | None = None
        self._acks: list[tuple[str, Receipt]] = []

    @classmethod
    def embedded(cls, path: Path | str | None = None) -> Self:
        """Return a client of a broker in this process, with its data in a folder; without a path, in memory."""
        return cls(embedded_transport(path))

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def connect(self) -> None:
        """Connect to the server, without retries.

        Raises:
            Disconnected: no server answers.
            Unauthenticated, Forbidden: the server refuses the API key.
        """
        portal = Portal()
        try:
            portal.run(self._async.connect())
        except BaseException:
            portal.close()
            raise
        self._portal = portal

    def close(self) -> None:
        """Wait for pending requests, and close the connection."""
        if self._portal is not None:
            portal, self._portal = self._portal, None
            try:
                portal.run(self._async.close())
            finally:
                portal.close()

    def consume(
        self,
        queue: str,
        *,
        credit: int = CREDIT,
        visibility_ms: int | None = None,
        owner: str | None = None,
        with_state: bool = False,
        handlers: int | None = None,
    ) -> Stream:
        """Return a stream of leased messages. Enter it with ``with``, and iterate it with ``for``.

        See ``AsyncClient.consume`` for ``credit`` and ``handlers``.
        """
        stream = self._async.consume(
            queue,
            credit=credit,
            visibility_ms=visibility_ms,
            owner=owner,
            with_state=with_state,
            handlers=handlers,
        )
        return Stream(self, self._running(), stream)

    def producer(
        self,
        queue: str,
        *,
        batch: int = 100,
        linger_ms: int = 5,
        in_flight: int = 8,
        on_failure: Callable[[NewMessage, FairlaneError], None] | None = None,
    ) -> Producer:
        """Return a buffered producer; see ``AsyncClient.producer``. ``on_failure`` is called in the client's thread."""
        make = partial(
            self._async.producer, queue, batch=batch, linger_ms=linger_ms, in_flight=in_flight, on_failure=on_failure
        )
        return Producer(self._running(), make, buffered_max=2 * batch * in_flight)

    def ack_soon(self, message: Held, *, cost: int | None = None) -> None:
        """Acknowledge a leased message without waiting for the answer; see ``flush``."""
        self._acks.append((message.queue, receipt_of(message, cost)))
        if len(self._acks) == 1:
            self._running().soon(self._send_acks)

    def flush(self) -> list[tuple[str, FairlaneError]]:
        """Wait for all acknowledgements so far, and return the ids and errors of each ``ack_soon`` that failed."""
        return self._running().run(self._flush())

    def address_of(self, queue: str) -> str:
        """Return the address of the node that owns a queue; see ``AsyncClient.address_of``."""
        return self._async.address_of(queue)

    # ----------------------------------------------------------------------------------------------------------- calls

    def _running(self) -> Portal:
        portal = self._portal
        if portal is None:
            raise Closed("The client is not connected or already closed.")
        return portal

    def call(self, request: Request[A], *, by: str | None = None) -> A:
        """Return the answer to a request; see ``AsyncClient.call``."""
        return self._running().run(self._async.call(request, by=by))

    def _delivered(self, deliveries: list[Delivery]) -> list[Message]:
        return [Message(delivery, self) for delivery in deliveries]

    def _prepared(self, messages: list[NewMessage]) -> list[NewMessage]:
        return list(traced(messages))  # the span is that of this thread

    def _forwarded(self, messages: list[NewMessage]) -> list[NewMessage]:
        return list(traced(messages))

    def _enqueue_one(self, queue: str, message: NewMessage, wait_ms: int) -> str:
        traced_message = traced([message])[0]  # the span is that of this thread
        return self._running().run(self._async.enqueue(queue, traced_message, wait_ms=wait_ms))

    def _ack_one(self, queue: str, receipt: Receipt) -> None:
        self._running().run(self._async.ack_receipt(queue, receipt))

    async def _flush(self) -> list[tuple[str, FairlaneError]]:
        self._send_acks()
        return await self._async.flush()

    def _send_acks(self) -> None:
        waiting, self._acks = self._acks, []
        for queue, receipt in waiting:
            self._async.ack_receipt_soon(queue, receipt)
