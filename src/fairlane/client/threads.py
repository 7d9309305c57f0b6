"""The client for threads: the asyncio client on a background event loop, with methods that block.

Calls of many threads share one connection, and calls of the same moment are sent together. A call over the loop costs a
switch to its thread and back, so a thread that calls alone uses a connection by itself; see ``direct``. Streams and
producers switch once for many messages.
"""

from __future__ import annotations

import os
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Self, TypeVar, Unpack, cast

from fairlane.client.aio import CREDIT, AsyncClient, embedded_transport
from fairlane.client.batching import Asked
from fairlane.client.cluster_transport import ClusterTransport
from fairlane.client.direct import LOOK_S, DirectCalls
from fairlane.client.limited import LimitedClient
from fairlane.client.message import Message
from fairlane.client.portal import Portal
from fairlane.client.producer import Producer
from fairlane.client.retries import Retries
from fairlane.client.stream import Stream
from fairlane.client.tracing import current_trace, traced
from fairlane.client.transport import Transport
from fairlane.client.transport.websocket import FRAME_BYTES_MAX
from fairlane.client.uploads import PayloadInput
from fairlane.errors import Closed, FairlaneError, QueueElsewhere, WrongProcess
from fairlane.model.message import Delivery, MessageTerms, NewMessage, Receipt
from fairlane.model.payloads import NO_VALUE
from fairlane.model.trace import TraceContext
from fairlane.verbs.columns import receipt_columns
from fairlane.verbs.leases import Ack
from fairlane.verbs.messages import ENQUEUE_WAIT_MS, Enqueue, EnqueueResult
from fairlane.verbs.methods.complete import AllVerbs
from fairlane.verbs.methods.conversions import (
    Held,
    LeasedMessage,
    are_all_enqueued,
    enqueued_of,
    errors_of,
    message_of,
    only,
    receipt_of,
    receipts_of,
)
from fairlane.verbs.verb import AnyAnswer, Request

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
        self._direct: DirectCalls | None = None
        self._process = os.getpid()
        self._acks: deque[tuple[str, Receipt]] = deque()
        self._is_sending = False

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
        self._process = os.getpid()
        self._portal = portal
        transport = self._async.transport
        if isinstance(transport, ClusterTransport):
            self._direct = DirectCalls(transport, is_numbered=self._async.is_numbered, on_late=self._give_back)
            portal.soon(self._look_after)

    def close(self) -> None:
        """Wait for pending requests, and close the connection. In a forked process, leave it to the other."""
        portal, self._portal = self._portal, None
        direct, self._direct = self._direct, None
        if portal is not None and os.getpid() == self._process:
            try:
                if direct is not None:
                    direct.close()
                portal.run(self._async.close())
            finally:
                portal.close()

    def with_timeout(self, timeout: float) -> LimitedClient:
        """Return the verbs of this client with a limit on the seconds of each call; see ``AsyncClient``."""
        limited = self._async.with_timeout(timeout)
        return LimitedClient(self, lambda request: self._running().run(limited.call(request)))

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

    def enqueue_stream(
        self, queue: str, source: PayloadInput, *, wait_ms: int = ENQUEUE_WAIT_MS, **terms: Unpack[MessageTerms]
    ) -> str:
        """Enqueue a message whose payload is read from a file or an iterator; see ``AsyncClient.enqueue_stream``.

        The source is read in another thread than the caller's.
        """
        headers = traced([message_of(b"", NO_VALUE, terms)])[0].headers  # the span is that of this thread
        terms["headers"] = headers
        return self._running().run(self._async.enqueue_stream(queue, source, wait_ms=wait_ms, **terms))

    def ack_soon(self, message: Held, *, cost: int | None = None, result: bytes | None = None) -> None:
        """Acknowledge a leased message without waiting for the answer; see ``flush``."""
        self._acks.append((message.queue, receipt_of(message, cost, result)))
        if not self._is_sending:
            self._is_sending = True
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
        if os.getpid() != self._process:
            raise WrongProcess("This client was connected by the process that this one was forked from.")
        return portal

    def call(self, request: Request[A], *, by: str | None = None) -> A:
        """Return the answer to a request; see ``AsyncClient.call``."""
        portal = self._running()
        if by is None and (isinstance(request, Enqueue) or self._is_idle):
            asked = Asked(request.verb.name, request, getattr(request, "wait_ms", 0))
            answer: A | None = self._call_directly(portal, asked, current_trace())
            if answer is not None:
                return answer
        return portal.run(self._async.call(request, by=by))

    @property
    def _is_idle(self) -> bool:
        """Whether no ``ack_soon`` is on its way over the event loop, which another request should not overtake."""
        return not self._acks and self._async.is_idle

    def _call_directly(self, portal: Portal, asked: Asked, trace: TraceContext | None) -> AnyAnswer:
        """Return the answer to a request that this thread has sent itself; None if it has to take the event loop."""
        if self._direct is None or self._async.calls.has_splits or portal.is_current:
            return None
        answer = self._direct.call(asked, self._repeat, trace=trace)
        if answer is not None and asked.verb == "enqueue" and not are_all_enqueued(answer.results):
            return portal.run(self._async.calls.completed(asked, answer))
        return answer

    def _repeat(self, asked: Asked, error: FairlaneError) -> AnyAnswer:
        """Repeat a request over the event loop; at once if the queue is at another node, which is then known."""
        after = None if isinstance(error, QueueElsewhere) else error
        return self._running().run(self._async.calls.call(asked, after=after))

    def _look_after(self) -> None:
        """Look after direct connections from time to time, on the event loop."""
        portal, direct = self._portal, self._direct
        if portal is not None and direct is not None:
            direct.look()
            portal.loop.call_later(LOOK_S, self._look_after)

    def _give_back(self, deliveries: list[Delivery]) -> None:
        portal = self._portal
        if portal is not None:
            portal.soon(partial(self._async.give_back, deliveries))

    def _delivered(self, deliveries: list[Delivery]) -> list[Message]:
        return [Message(delivery, self) for delivery in deliveries]

    def _prepared(self, messages: list[NewMessage]) -> list[NewMessage]:
        return list(traced(messages))  # the span is that of this thread

    def _receipts(
        self,
        leased: Sequence[LeasedMessage],
        costs: Sequence[int | None] | None,
        results: Sequence[bytes | None] | None,
    ) -> list[Receipt]:
        if costs is None and results is None and self._direct is not None:
            columns = receipt_columns(leased)
            if columns is not None:
                return cast("list[Receipt]", columns)
        return receipts_of(leased, costs, results)

    def _forwarded(self, messages: list[NewMessage]) -> list[NewMessage]:
        return list(traced(messages))

    def _enqueue_one(self, queue: str, message: NewMessage, wait_ms: int) -> EnqueueResult:
        portal = self._running()
        traced_message = traced([message])[0]  # the span is that of this thread
        request = Enqueue(queue=queue, messages=[traced_message], wait_ms=wait_ms)
        answer = self._call_directly(portal, Asked("enqueue", request, wait_ms), None)
        if answer is not None:
            return only(enqueued_of(answer.results))
        return portal.run(self._async.enqueue_one(queue, traced_message, wait_ms=wait_ms))

    def _ack_one(self, queue: str, receipt: Receipt) -> None:
        portal = self._running()
        answer = self._call_directly(portal, Asked("ack", Ack(queue=queue, receipts=[receipt])), None)
        if answer is not None:
            only(errors_of(answer.results))
        else:
            portal.run(self._async.ack_receipt(queue, receipt))

    async def _flush(self) -> list[tuple[str, FairlaneError]]:
        self._send_acks()
        return await self._async.flush()

    def _send_acks(self) -> None:
        self._is_sending = False
        while self._acks:
            self._async.ack_receipt_soon(*self._acks[0])
            self._acks.popleft()  # only now: until then ``_is_idle`` has to know of it
