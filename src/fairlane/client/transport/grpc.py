"""The transport over gRPC: a call for each call, and one of both directions for each stream of deliveries."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from fairlane.client.tracing import current_trace
from fairlane.client.transport.grpc_messages import answer_of, message_of
from fairlane.client.transport.key_order import Order
from fairlane.client.transport.protocol import Reply, Sink
from fairlane.client.transport.websocket import FRAME_BYTES_MAX
from fairlane.errors import (
    Closed,
    Disconnected,
    FairlaneError,
    InvalidArgument,
    PayloadTooLarge,
    QueueElsewhere,
    QueueSplit,
    RouteNotFound,
    Unauthenticated,
)
from fairlane.model.message import Delivery
from fairlane.model.partitions import partition_name
from fairlane.verbs.errors import ErrorBody, error_of
from fairlane.verbs.messages import Enqueue
from fairlane.verbs.queues import GetStats
from fairlane.verbs.verb import Shape
from fairlane.wire.frames import Consume

try:
    import grpc
except ImportError as error:
    raise ImportError("gRPC needs grpcio: install fairlane[grpc].") from error

from google.protobuf.message_factory import GetMessageClass

from fairlane.verbs.table import METHODS
from fairlane.wire.grpc import admin_pb2, batches_pb2, broker_pb2, types_pb2
from fairlane.wire.protobuf import told, write

_SCHEMES: Final = {"grpc": False, "grpcs": True}
_METHODS: Final[dict[str, Any]] = {
    METHODS[method.name].name: method
    for file in (broker_pb2, admin_pb2, batches_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
    if method.name in METHODS
}
_CONSUME: Final = "/fairlane.v1.Broker/Consume"
_OPENED: Final = "x-correlation-id"
"""Metadata that comes at the beginning of a stream, and of none that is refused."""
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.keepalive_time_ms", 20_000),  # a server that has gone without a word is found out
    ("grpc.keepalive_timeout_ms", 20_000),
)


class GrpcTransport:
    """Calls over gRPC to a server; see ``Transport``."""

    is_cluster = True
    """Whether there may be other nodes behind the server; it is not told."""

    def __init__(
        self,
        address: str,
        *,
        api_key: str | None = None,
        timeout: float = 30.0,
        credentials: grpc.ChannelCredentials | None = None,
        frame_bytes_max: int = FRAME_BYTES_MAX,
    ) -> None:
        """Prepare, without connecting yet.

        Args:
            address: the server's address such as ``grpc://127.0.0.1:7421``, or with TLS ``grpcs://queue.example:7421``.
            api_key: who we are.
            timeout: how many seconds to wait for an answer, beside the time a call waits by its own will.
            credentials: how to verify a server at an address with ``grpcs``, and who we are.
            frame_bytes_max: bytes in one request; not above the server's ``body_bytes_max``.
        """
        self._target, has_tls = _target(address)
        self._credentials = (credentials or grpc.ssl_channel_credentials()) if has_tls else None
        self._metadata = () if api_key is None else (("authorization", f"Bearer {api_key}"),)
        self._timeout = timeout
        self._frame_bytes_max = frame_bytes_max
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._is_closed = False
        self._order = Order()

    async def connect(self) -> None:
        """See whether the server answers, and to us; see ``Transport``."""
        try:
            await self.call("stats", GetStats(queue=""))
        except (Disconnected, Unauthenticated, Closed):
            raise
        except FairlaneError:
            pass  # it knows us, and that no queue has this name

    async def call(self, verb: str, request: Shape, *, wait_ms: int = 0) -> Any:  # noqa: ANN401 - see Transport
        """Return the answer to a request; see ``Transport``."""
        if isinstance(request, Enqueue):
            async with self._order.turn(request):
                return await self._call(verb, request, wait_ms)
        return await self._call(verb, request, wait_ms)

    async def _call(self, verb: str, request: Shape, wait_ms: int) -> Any:  # noqa: ANN401 - depends on the verb
        method = _METHODS[verb]
        data = message_of(verb, request, GetMessageClass(method.input_type)()).SerializeToString()
        if len(data) > self._frame_bytes_max:
            most = self._frame_bytes_max
            raise PayloadTooLarge(f"A request has at most {most} bytes, not {len(data)}: send less.")
        call: Any = self._connected(self._target).unary_unary(f"/{method.containing_service.full_name}/{method.name}")
        timeout = self._timeout + wait_ms / 1000
        try:
            answered = await call(data, metadata=self._traced(), timeout=timeout)
        except grpc.aio.AioRpcError as error:
            raise _refusal(error, self._target) from error
        except asyncio.CancelledError:
            if self._is_closed:
                raise Closed("The client was closed meanwhile.") from None
            raise
        message = GetMessageClass(method.output_type)()
        message.ParseFromString(answered)
        return answer_of(verb, message)

    def submit(self, verb: str, request: Shape, reply: Reply, *, wait_ms: int = 0) -> bool:  # noqa: ARG002
        """See ``Transport``: a call of its own can't be sent without waiting."""
        return False

    async def open(self, request: Consume, sink: Sink) -> GrpcChannel:
        """Open a channel, in a cluster at the node that owns the queue; see ``Transport``.

        Raises:
            QueueSplit: it has partitions, of each of which there is to be a stream.
        """
        try:
            return await self._open(request, sink, self._target)
        except QueueSplit as error:
            raise _of_each(request.queue, error) from error
        except QueueElsewhere as error:
            if not error.at:
                raise
            return await self._open(request, sink, error.at.rpartition("//")[2])

    async def _open(self, request: Consume, sink: Sink, target: str) -> GrpcChannel:
        consume: Any = self._connected(target).stream_stream(_CONSUME)
        call = consume(metadata=self._traced())
        opening = broker_pb2.ConsumeRequest()
        _checked(request, opening.open)
        try:
            async with asyncio.timeout(self._timeout):
                await call.write(opening.SerializeToString())
                if _OPENED not in dict(await call.initial_metadata()):
                    await call.read()  # it raises why it was refused
        except grpc.aio.AioRpcError as error:
            raise _refusal(error, target) from error
        except (asyncio.InvalidStateError, TimeoutError) as error:
            call.cancel()
            raise Disconnected(f"{target} did not answer in time.") from error
        return GrpcChannel(call, sink, target)

    async def close(self) -> None:
        """Let go of the connections; the servers then give back what streams hold."""
        self._is_closed = True
        for channel in self._channels.values():
            await channel.close()

    def _connected(self, target: str) -> grpc.aio.Channel:
        if self._is_closed:
            raise Closed("The client has been closed.")
        channel = self._channels.get(target)
        if channel is None:
            if self._credentials is None:
                channel = grpc.aio.insecure_channel(target, options=_OPTIONS)
            else:
                channel = grpc.aio.secure_channel(target, self._credentials, options=_OPTIONS)
            self._channels[target] = channel
        return channel

    def _traced(self) -> tuple[tuple[str, str], ...]:
        trace = current_trace()
        return self._metadata if trace is None else (*self._metadata, *trace.headers().items())


class GrpcChannel:
    """A call that brings deliveries; see ``Channel``."""

    def __init__(self, call: Any, sink: Sink, target: str) -> None:  # noqa: ANN401 - calls of bytes have no type
        self._call = call
        self._sink = sink
        self._target = target
        self._received = 0
        self._is_stopping = False
        self._reading = asyncio.get_running_loop().create_task(self._read())

    async def stop(self, unseen: Sequence[Delivery]) -> None:
        """Close it; see ``Channel``."""
        if self._is_stopping or self._call.done():
            return
        self._is_stopping = True
        request = broker_pb2.ConsumeRequest()
        request.stop.received = self._received
        request.stop.unseen.extend([delivery.id for delivery in unseen])
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # then all of it is given back already
            await self._call.write(request.SerializeToString())
            await self._call.done_writing()
        await self._reading

    async def _read(self) -> None:
        try:
            while (data := await self._call.read()) is not grpc.aio.EOF:
                self._take(broker_pb2.ConsumeResponse.FromString(data))
            error: FairlaneError = Disconnected(f"{self._target} ended the stream.")
        except grpc.aio.AioRpcError as refused:
            error = _refusal(refused, self._target)
        except asyncio.CancelledError:
            error = Disconnected("The client was closed.")
        if not self._is_stopping:
            self._sink.ended(error)

    def _take(self, response: broker_pb2.ConsumeResponse) -> None:
        if self._is_stopping:
            return  # the server gives back what it sent after a stop
        if response.deliveries:
            deliveries = msgspec.convert(told(response)["deliveries"], list[Delivery])
            self._received += len(deliveries)
            self._sink.deliver(deliveries)
        if response.WhichOneof("response") == "ended":
            self._sink.ended(_error_of(response.ended))


def _checked(request: Shape, message: Any) -> None:  # noqa: ANN401 - messages are made at run time
    try:
        write(request, message)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"This can't be sent: {error}.") from error


def _refusal(error: grpc.aio.AioRpcError, target: str) -> FairlaneError:
    told_bin = dict(error.trailing_metadata() or ()).get("fairlane-error-bin")
    if isinstance(told_bin, bytes):
        refusal = _error_of(types_pb2.Error.FromString(told_bin))
        return Disconnected(refusal.cause) if isinstance(refusal, Closed) else refusal
    if error.code() == grpc.StatusCode.UNIMPLEMENTED:
        return RouteNotFound(f"{target} knows no such method: {error.details()}")
    if error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED:
        return PayloadTooLarge(f"{target} refused the size of the request: {error.details()}")
    return Disconnected(f"{target} did not answer: {error.details()}.")


def _of_each(queue: str, error: QueueSplit) -> QueueSplit:
    first = partition_name(queue, 0)
    return QueueSplit(
        f"A stream over gRPC is one of one partition, and {queue!r} is split: open one for each, beginning with"
        f" {first!r}, or use the address of the WebSocket, over which one stream takes all.",
        partitions=error.partitions,
        made=error.made,
        by_message=error.by_message,
    )


def _error_of(message: types_pb2.Error) -> FairlaneError:
    return error_of(msgspec.convert(told(message), ErrorBody))


def _target(address: str) -> tuple[str, bool]:
    parts = urlsplit(address)
    if parts.scheme not in _SCHEMES or not parts.netloc or parts.path.strip("/"):
        raise InvalidArgument(f"A server's address is such as grpc://127.0.0.1:7421, not {address!r}.")
    return parts.netloc, _SCHEMES[parts.scheme]
