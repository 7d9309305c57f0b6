"""The client for asyncio."""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self, TypeAlias, TypeVar, Unpack, cast

import msgspec

from fairlane.client.batching import Asked, CallBatcher
from fairlane.client.calls import Calls
from fairlane.client.cluster_transport import ClusterTransport
from fairlane.client.limited import AsyncLimitedClient
from fairlane.client.message_aio import AsyncMessage
from fairlane.client.numbering import MessageNumbering
from fairlane.client.producer_aio import AsyncProducer
from fairlane.client.retries import Retries
from fairlane.client.stream_aio import AsyncStream
from fairlane.client.tracing import traced
from fairlane.client.transport import Transport
from fairlane.client.transport.websocket import FRAME_BYTES_MAX, WebSocketTransport
from fairlane.client.uploads import PayloadInput, PayloadUpload
from fairlane.errors import FairlaneError, InvalidArgument
from fairlane.model.message import Delivery, MessageTerms, NewMessage, Receipt
from fairlane.model.payloads import NO_VALUE
from fairlane.verbs.columns import receipt_columns
from fairlane.verbs.leases import Ack
from fairlane.verbs.messages import ENQUEUE_WAIT_MS, Enqueue, EnqueueResult
from fairlane.verbs.methods.complete_aio import AsyncAllVerbs
from fairlane.verbs.methods.conversions import (
    Held,
    LeasedMessage,
    enqueued_of,
    errors_of,
    message_of,
    receipt_of,
    receipts_of,
)
from fairlane.verbs.verb import Request
from fairlane.wire.frames import Consume

CREDIT = 32
"""The default credit of a stream."""
_FAILURES_KEPT = 10_000
"""How many failed ``ack_soon`` calls a client remembers until ``flush``."""
_FIRST_PARTITIONS = 1 << 16
"""Clients start with different partitions, so that they do not all lease from the same one first."""

A = TypeVar("A")
Acks: TypeAlias = CallBatcher[str, Receipt, None]
Enqueues: TypeAlias = CallBatcher[tuple[str, int], NewMessage, EnqueueResult]


def embedded_transport(path: Path | str | None) -> Transport:
    """Return a transport to a broker in this process, with its data in a folder; None keeps it in memory."""
    # The only import that goes up: the client knows the wire and not the broker, so what joins them is above it.
    from fairlane.embedded import EmbeddedTransport  # noqa: PLC0415 - only embedded clients load a broker

    return EmbeddedTransport(path)


class AsyncClient(AsyncAllVerbs[AsyncMessage]):
    """A client of a Fairlane server, or of a broker in this process. Use it as a context manager, in one event loop.

    It reconnects when the connection is lost, and repeats requests where that is safe; others raise ``Disconnected``.
    It numbers the messages that it enqueues, so that an enqueue is safe to repeat.
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
        """Create a client without connecting yet.

        Args:
            server: the server's address, such as ``ws://127.0.0.1:7420`` or ``https://queue.example``, or a transport.
                For a cluster, the addresses of one or several nodes, separated by commas; the client finds the node
                that owns a queue.
            api_key: the API key.
            timeout: seconds to wait for an answer, in addition to the time that a call may wait at the server.
            retries: how long and how often to repeat requests.
            tls: the TLS context for a ``wss`` or ``https`` address, with a client certificate if one is required.
            dedup: whether to number messages. Without a number or a dedup id of its own, an enqueue whose answer is
                lost raises ``Disconnected``.
            frame_bytes_max: largest request in bytes; at most the server's ``body_bytes_max``.
        """
        self.retries = retries or Retries()
        once = Retries(patience_s=0)
        self.transport: Transport = (
            ClusterTransport(
                server,
                lambda address: WebSocketTransport(
                    address,
                    api_key=api_key,
                    timeout=timeout,
                    retries=once,
                    tls=tls,
                    frame_bytes_max=frame_bytes_max,
                    follows=True,
                    on_late=self.give_back,
                ),
                retries=self.retries,
            )
            if isinstance(server, str)
            else server
        )
        self.calls = Calls(self.transport, self.retries, turn=secrets.randbelow(_FIRST_PARTITIONS))
        self.is_numbered = dedup
        self._numbers = MessageNumbering()
        self._failed: deque[tuple[str, FairlaneError]] = deque(maxlen=_FAILURES_KEPT)
        self._acks: Acks | None = None
        self._enqueues: Enqueues | None = None

    @classmethod
    def embedded(cls, path: Path | str | None = None) -> Self:
        """Return a client of a broker in this process, with its data in a folder; without a path, in memory."""
        return cls(embedded_transport(path))

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def connect(self) -> None:
        """Connect to the server, without retries.

        Raises:
            Disconnected: no server answers.
            Unauthenticated, Forbidden: the server refuses the API key.
        """
        await self.transport.connect()
        self._batchers()

    async def close(self) -> None:
        """Wait for pending requests, and close the connection."""
        await self.drained()
        await self.calls.close()
        await self.transport.close()

    def with_timeout(self, timeout: float) -> AsyncLimitedClient:
        """Return the verbs of this client with a limit: a call that takes longer than ``timeout`` seconds raises.

        The limit includes connecting and retrying, so a web request that enqueues fails in time while the server is
        down. The error is ``CallTimedOut``; the server may or may not have carried out the request.
        """
        return AsyncLimitedClient(self, timeout)

    # ------------------------------------------------------------------------------------------- streams and producers

    def consume(
        self,
        queue: str,
        *,
        credit: int = CREDIT,
        visibility_ms: int | None = None,
        owner: str | None = None,
        with_state: bool = False,
        handlers: int | None = None,
    ) -> AsyncStream:
        """Return a stream of leased messages. Enter it with ``async with``, and iterate it with ``async for``.

        ``credit`` limits how many messages are in the stream, or delivered and not yet settled or expired. ``handlers``
        is how many you process at the same time: messages with a deadline or a throttle, or of a key with a cap, are
        delivered only while fewer are in flight. By default it is one more than you hold whenever you ask for a
        message.
        """
        request = Consume(
            queue=queue,
            credit=credit,
            visibility_ms=visibility_ms,
            owner=owner,
            with_state=with_state,
            handlers=handlers,
        )
        return AsyncStream(self, request)

    def producer(
        self,
        queue: str,
        *,
        batch: int = 100,
        linger_ms: int = 5,
        in_flight: int = 8,
        on_failure: Callable[[NewMessage, FairlaneError], None] | None = None,
    ) -> AsyncProducer:
        """Return a buffered producer, which sends batches of ``batch`` messages, or fewer after ``linger_ms``.

        At most ``in_flight`` batches are sent and not yet answered, and as many are buffered; then ``send`` waits.
        ``on_failure`` is called with each refused message; without it, ``flush`` and the end of the block raise.
        """
        return AsyncProducer(self, queue, batch=batch, linger_ms=linger_ms, in_flight=in_flight, on_failure=on_failure)

    def ack_soon(self, message: Held, *, cost: int | None = None, result: bytes | None = None) -> None:
        """Acknowledge a leased message without waiting for the answer; see ``flush``."""
        self.ack_receipt_soon(message.queue, receipt_of(message, cost, result))

    def ack_receipt_soon(self, queue: str, receipt: Receipt) -> None:
        """Acknowledge a receipt without waiting for the answer; see ``ack_soon``."""
        acks, _ = self._batchers()

        def done(reply: asyncio.Future[None]) -> None:
            if not reply.cancelled() and isinstance(error := reply.exception(), FairlaneError):
                self._failed.append((receipt.id, error))

        acks.add(queue, receipt, is_awaited=False).add_done_callback(done)

    def give_back(self, deliveries: list[Delivery]) -> None:
        """Return messages that no handler has seen, without waiting for the answer and without a failure."""
        self.calls.give_back(deliveries)

    async def flush(self) -> list[tuple[str, FairlaneError]]:
        """Wait for all acknowledgements so far, and return the ids and errors of each ``ack_soon`` that failed.

        Those messages are redelivered, or already were.
        """
        await self.drained()
        failed = list(self._failed)
        self._failed.clear()
        return failed

    async def drained(self) -> None:
        """Wait until pending single acknowledgements and enqueues are answered."""
        for batcher in self._batchers():
            await batcher.drained()

    @property
    def is_idle(self) -> bool:
        """Whether all acknowledgements and enqueues of single messages are answered."""
        return all(batcher.is_idle for batcher in (self._acks, self._enqueues) if batcher is not None)

    def address_of(self, queue: str) -> str:
        """Return the address of the node that owns a queue, for requests outside of this client.

        After a call about the queue this is the node that answered; before, it is any node.

        Raises:
            InvalidArgument: the client was created with a transport instead of addresses.
        """
        if not isinstance(self.transport, ClusterTransport):
            raise InvalidArgument("Only a client that was created with server addresses knows where queues are.")
        return self.transport.address_of(queue)

    async def enqueue_stream(
        self,
        queue: str,
        source: PayloadInput,
        *,
        wait_ms: int = ENQUEUE_WAIT_MS,
        **terms: Unpack[MessageTerms],
    ) -> str:
        """Enqueue a message whose payload is read from a file or an iterator, whatever its size. Returns its id.

        ``source`` is the path of a file, a binary file, or an iterable or async iterable of bytes; the other arguments
        are those of ``enqueue``. A payload larger than a piece is uploaded in pieces, of which a few are in memory.
        Nothing is in the queue until all of it is stored.

        Raises:
            QueueNotFound, InvalidArgument, PayloadTooLarge, Forbidden: it was not enqueued.
            TooManyUploads, QueueFull, KeyFull, GlobalFull: a limit was reached.
            OSError: the file can't be read.
        """
        message = message_of(b"", NO_VALUE, terms)
        upload = PayloadUpload(self, queue, fairness_key=message.fairness_key)
        try:
            found = await upload.send(source)
            streamed = {"payload": found} if isinstance(found, bytes) else {"upload": found}
            return await self.enqueue(queue, msgspec.structs.replace(message, **streamed), wait_ms=wait_ms)
        except BaseException:
            await asyncio.shield(upload.drop())
            raise

    # ----------------------------------------------------------------------------------------------------------- calls

    async def call(self, request: Request[A], *, by: str | None = None) -> A:
        """Return the answer to a request. The client repeats it where that is safe.

        Raises:
            Disconnected: the connection was lost, and the outcome is unknown.
            FairlaneError: the broker refused the request.
            InvalidArgument: ``by`` is given: a server uses the name of the API key.
        """
        if by is not None:
            raise InvalidArgument("A server records the name of the API key; leave out `by`.")
        sent = self._numbers.numbered(request) if isinstance(request, Enqueue) and self.is_numbered else request
        answer: A = await self.calls.ask(Asked(request.verb.name, sent, getattr(request, "wait_ms", 0)))
        return answer

    def _delivered(self, deliveries: list[Delivery]) -> list[AsyncMessage]:
        return [AsyncMessage(delivery, self) for delivery in deliveries]

    def _prepared(self, messages: list[NewMessage]) -> list[NewMessage]:
        return list(traced(messages))

    def _receipts(
        self,
        leased: Sequence[LeasedMessage],
        costs: Sequence[int | None] | None,
        results: Sequence[bytes | None] | None,
    ) -> list[Receipt]:
        if costs is None and results is None and isinstance(self.transport, ClusterTransport):
            columns = receipt_columns(leased)
            if columns is not None:
                return cast("list[Receipt]", columns)
        return receipts_of(leased, costs, results)

    def _forwarded(self, messages: list[NewMessage]) -> list[NewMessage]:
        return list(traced(messages))

    async def _enqueue_one(self, queue: str, message: NewMessage, wait_ms: int) -> EnqueueResult:
        _, enqueues = self._batchers()
        return await enqueues.add((queue, wait_ms), traced([message])[0], size=len(message.payload))

    async def ack_receipt(self, queue: str, receipt: Receipt) -> None:
        """Acknowledge a receipt, together with other acknowledgements of the same moment."""
        acks, _ = self._batchers()
        await acks.add(queue, receipt)

    async def _ack_one(self, queue: str, receipt: Receipt) -> None:
        await self.ack_receipt(queue, receipt)

    def _enqueue_call(self, group: tuple[str, int], messages: list[NewMessage]) -> Asked:
        queue, wait_ms = group
        request = Enqueue(queue=queue, messages=messages, wait_ms=wait_ms)
        return Asked("enqueue", self._numbers.numbered(request) if self.is_numbered else request, wait_ms)

    def _batchers(self) -> tuple[Acks, Enqueues]:
        if self._acks is None or self._enqueues is None:
            calls = self.calls
            self._acks = CallBatcher(calls, _ack_call, lambda answer: errors_of(answer.results), calls.ack_places)
            self._enqueues = CallBatcher(
                calls, self._enqueue_call, lambda answer: enqueued_of(answer.results), calls.enqueue_places
            )
        return self._acks, self._enqueues


def _ack_call(queue: str, receipts: list[Receipt]) -> Asked:
    return Asked("ack", Ack(queue=queue, receipts=receipts))
