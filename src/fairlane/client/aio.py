"""The client for asyncio."""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Self, TypeAlias, TypeVar

import msgspec

from fairlane.client.batching import Asked, CallBatcher
from fairlane.client.calling import Calls
from fairlane.client.cluster_transport import ClusterTransport
from fairlane.client.embedding import embedded_transport
from fairlane.client.message_aio import AsyncMessage
from fairlane.client.producer_aio import AsyncProducer
from fairlane.client.retrying import Retries
from fairlane.client.stream_aio import AsyncStream
from fairlane.client.tracing import traced
from fairlane.client.transport import Transport
from fairlane.client.transport.websocket import FRAME_BYTES_MAX, WebSocketTransport
from fairlane.errors import FairlaneError, InvalidArgument
from fairlane.model.message import Delivery, NewMessage, Receipt
from fairlane.verbs.leases import Ack
from fairlane.verbs.messages import Enqueue
from fairlane.verbs.methods.complete_aio import AsyncAllVerbs
from fairlane.verbs.methods.conversions import Held, errors_of, ids_of, receipt_of
from fairlane.verbs.table import VERB_OF
from fairlane.verbs.verb import Request
from fairlane.wire.frames import Consume

CREDIT = 32
_FAILURES_KEPT = 10_000
_TURNS = 1 << 16

A = TypeVar("A")
Acks: TypeAlias = CallBatcher[str, Receipt, None]
Enqueues: TypeAlias = CallBatcher[tuple[str, int], NewMessage, str]


class AsyncClient(AsyncAllVerbs[AsyncMessage]):
    """Speaks to a Fairlane server, or to a broker in this process. Use it as a context manager, in one event loop.

    It connects anew when the connection is lost, and repeats what is safe to be repeated; what is not raises
    ``Disconnected``. Each message gets a dedup id unless it has one, so that an enqueue can be repeated.
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
        """Prepare, without connecting yet.

        Args:
            server: the server's address such as ``ws://127.0.0.1:7420`` or ``https://queue.example``, or a transport.
                Of a cluster, the address of any node, or better of several with commas between them: the client goes
                itself to the node that owns a queue.
            api_key: who we are.
            timeout: how many seconds to wait for an answer, beside the time a call waits by its own will.
            retries: how to repeat what may be repeated.
            tls: how to verify a server at an address with ``wss`` or ``https``, and who we are.
            dedup: give each message a dedup id. Without, an enqueue whose answer was lost raises ``Disconnected``.
            frame_bytes_max: bytes in one request; not above the server's ``body_bytes_max``.
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
                    on_late=self._on_late,
                ),
                retries=self.retries,
            )
            if isinstance(server, str)
            else server
        )
        self._calls = Calls(self.transport, self.retries, turn=secrets.randbelow(_TURNS))
        self._dedup = dedup
        self._prefix = secrets.token_urlsafe(12)
        self._numbers = count()
        self._failed: deque[tuple[str, FairlaneError]] = deque(maxlen=_FAILURES_KEPT)
        self._acks: Acks | None = None
        self._enqueues: Enqueues | None = None

    @classmethod
    def embedded(cls, path: Path | str | None = None) -> Self:
        """Return a client of a broker in this process, with its data in a folder, or in memory for tests."""
        return cls(embedded_transport(path))

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def connect(self) -> None:
        """Connect to the server, now or not at all.

        Raises:
            Disconnected: there is none that answers.
            Unauthenticated, Forbidden: it does not let us in.
        """
        await self.transport.connect()
        self._gatherers()

    async def close(self) -> None:
        """Let go of the connection, after what is under way."""
        await self.drained()
        await self._calls.close()
        await self.transport.close()

    # -------------------------------------------------------------------------------------------------------- streaming

    def consume(
        self,
        queue: str,
        *,
        credit: int = CREDIT,
        visibility_ms: int | None = None,
        owner: str | None = None,
        with_state: bool = False,
    ) -> AsyncStream:
        """Return a stream of leased messages, to be entered with ``async with`` and iterated with ``async for``.

        At most ``credit`` messages are in the stream or out of it and not yet acked, nacked or expired.
        """
        request = Consume(queue=queue, credit=credit, visibility_ms=visibility_ms, owner=owner, with_state=with_state)
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
        """Return a buffered producer, which sends ``batch`` messages at once, or what it has after ``linger_ms``.

        At most ``in_flight`` batches are under way, and as many messages are buffered; ``send`` waits for room.
        ``on_failure`` is told of each message that was refused; without it, ``flush`` and leaving raise them.
        """
        return AsyncProducer(self, queue, batch=batch, linger_ms=linger_ms, in_flight=in_flight, on_failure=on_failure)

    def ack_soon(self, message: Held, *, cost: int | None = None) -> None:
        """Ack a leased message with the next acks that are sent; see ``flush``."""
        self.ack_receipt_soon(message.queue, receipt_of(message, cost))

    def ack_receipt_soon(self, queue: str, receipt: Receipt) -> None:
        """Do ``ack_soon`` for one who has only a receipt."""
        acks, _ = self._gatherers()

        def done(reply: asyncio.Future[None]) -> None:
            if not reply.cancelled() and isinstance(error := reply.exception(), FairlaneError):
                self._failed.append((receipt.id, error))

        acks.add(queue, receipt).add_done_callback(done)

    async def flush(self) -> list[tuple[str, FairlaneError]]:
        """Wait for the answers to all acks sent so far; return the ids and errors of ``ack_soon`` that failed.

        Those messages come again, or have come to another already.
        """
        await self.drained()
        failed = list(self._failed)
        self._failed.clear()
        return failed

    async def drained(self) -> None:
        """Wait until what is being acked and enqueued one by one has its answers."""
        for gatherer in self._gatherers():
            await gatherer.drained()

    def address_of(self, queue: str) -> str:
        """Return the address of the node that has a queue, for those who ask it in ways of their own.

        It is known after a call about the queue, and is that of the node that has answered; before, any node will do.

        Raises:
            InvalidArgument: this client does not follow queues: it was made with a transport.
        """
        if not isinstance(self.transport, ClusterTransport):
            raise InvalidArgument("Where queues are is known to a client that was made with addresses of nodes.")
        return self.transport.address_of(queue)

    # ---------------------------------------------------------------------------------------------------------- asking

    async def call(self, request: Request[A], *, by: str | None = None) -> A:
        """Return the answer to a request. The client repeats it where that is safe.

        Raises:
            FairlaneError: the request was refused, or with ``Disconnected`` its fate is unknown.
            InvalidArgument: ``by`` is given: a server uses the name of the API key.
        """
        if by is not None:
            raise InvalidArgument("A server records the name of the API key; leave out `by`.")
        answer: A = await self._calls.ask(Asked(VERB_OF[type(request)].name, request, getattr(request, "wait_ms", 0)))
        return answer

    def _delivered(self, deliveries: list[Delivery]) -> list[AsyncMessage]:
        return [AsyncMessage(delivery, self) for delivery in deliveries]

    def _prepared(self, messages: list[NewMessage]) -> list[NewMessage]:
        return self.stamped(traced(messages))

    def _forwarded(self, messages: list[NewMessage]) -> list[NewMessage]:
        return list(traced(messages))

    def _on_late(self, deliveries: list[Delivery]) -> None:
        self._calls.give_back(deliveries)

    async def _enqueue_one(self, queue: str, message: NewMessage, wait_ms: int) -> str:
        _, enqueues = self._gatherers()
        return await enqueues.add((queue, wait_ms), traced([message])[0], size=len(message.payload))

    async def _ack_one(self, queue: str, receipt: Receipt) -> None:
        acks, _ = self._gatherers()
        await acks.add(queue, receipt)

    def _enqueueing(self, group: tuple[str, int], messages: list[NewMessage]) -> Asked:
        queue, wait_ms = group
        request = Enqueue(queue=queue, messages=self.stamped(messages), wait_ms=wait_ms)
        return Asked("enqueue", request, wait_ms)

    def _gatherers(self) -> tuple[Acks, Enqueues]:
        if self._acks is None or self._enqueues is None:
            calls = self._calls
            self._acks = CallBatcher(calls, _acking, lambda answer: errors_of(answer.results), calls.ack_places)
            self._enqueues = CallBatcher(
                calls, self._enqueueing, lambda answer: ids_of(answer.results), calls.enqueue_places
            )
        return self._acks, self._enqueues

    def stamped(self, messages: Sequence[NewMessage]) -> list[NewMessage]:
        """Return messages with the dedup ids that make it safe to repeat their enqueue."""
        if not self._dedup:
            return list(messages)
        prefix, numbers, replace = self._prefix, self._numbers, msgspec.structs.replace
        return [
            message if message.dedup_id is not None else replace(message, dedup_id=f"{prefix}-{next(numbers):x}")
            for message in messages
        ]


def _acking(queue: str, receipts: list[Receipt]) -> Asked:
    return Asked("ack", Ack(queue=queue, receipts=receipts))
