"""The gRPC transport: a unary call for each verb, and a bidirectional stream for each stream of deliveries."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from fairlane import errors
from fairlane.client.tracing import current_trace
from fairlane.client.transport.grpc_messages import answer_of, message_of
from fairlane.client.transport.key_order import KeyOrder
from fairlane.client.transport.protocol import Sink
from fairlane.client.transport.websocket import FRAME_BYTES_MAX
from fairlane.model.message import Delivery
from fairlane.model.partitions import partition_name
from fairlane.verbs.errors import ErrorBody, error_of
from fairlane.verbs.messages import Enqueue
from fairlane.verbs.queues import GetStats
from fairlane.verbs.verb import Reply, Shape
from fairlane.wire.frames import Consume

try:
    import grpc
except ImportError as error:
    raise ImportError("The gRPC transport needs grpcio; install fairlane[grpc].") from error

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
_TOO_LARGE: Final = "larger than max"
"""What gRPC says of a message above its limit. It refuses calls with the same status when there are too many."""
"""Metadata that the server sends when it opens a stream, but not when it refuses one."""
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.keepalive_time_ms", 20_000),  # detects a server that vanished without closing the connection
    ("grpc.keepalive_timeout_ms", 20_000),
)


class GrpcTransport:
    """Sends calls over gRPC; see ``Transport``."""

    is_cluster = True
    """Whether the server may be a node of a cluster. This transport cannot know, so it assumes so."""

    def __init__(
        self,
        address: str,
        *,
        api_key: str | None = None,
        timeout: float = 30.0,
        credentials: grpc.ChannelCredentials | None = None,
        frame_bytes_max: int = FRAME_BYTES_MAX,
    ) -> None:
        """Create a transport without connecting yet.

        Args:
            address: the server's address, such as ``grpc://127.0.0.1:7421``, or with TLS ``grpcs://queue.example:7421``.
            api_key: the API key.
            timeout: seconds to wait for an answer, in addition to the time that a call may wait at the server.
            credentials: the credentials for a ``grpcs`` address.
            frame_bytes_max: largest request in bytes; at most the server's ``body_bytes_max``.
        """
        self._target, has_tls = _target(address)
        self._credentials = (credentials or grpc.ssl_channel_credentials()) if has_tls else None
        self._metadata = () if api_key is None else (("authorization", f"Bearer {api_key}"),)
        self._timeout = timeout
        self._frame_bytes_max = frame_bytes_max
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._is_closed = False
        self._order = KeyOrder()

    async def connect(self) -> None:
        """Check that the server answers and accepts the API key; see ``Transport``."""
        try:
            await self.call("stats", GetStats(queue=""))
        except (errors.Disconnected, errors.Unauthenticated, errors.Closed):
            raise
        except errors.FairlaneError:
            pass  # the server accepts us; only the queue does not exist

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
            raise errors.PayloadTooLarge(f"The request has {len(data)} bytes; the limit is {most}.")
        call: Any = self._connected(self._target).unary_unary(f"/{method.containing_service.full_name}/{method.name}")
        timeout = self._timeout + wait_ms / 1000
        try:
            answered = await call(data, metadata=self._traced(), timeout=timeout)
        except grpc.aio.AioRpcError as error:
            raise _refusal(error, self._target) from error
        except asyncio.CancelledError:
            if self._is_closed:
                raise errors.Closed("The client was closed during the call.") from None
            raise
        message = GetMessageClass(method.output_type)()
        message.ParseFromString(answered)
        return answer_of(verb, message)

    def submit(self, verb: str, request: Shape, reply: Reply, *, wait_ms: int = 0) -> bool:  # noqa: ARG002
        """Return False: a gRPC call cannot be sent without waiting; see ``Transport``."""
        return False

    async def open(self, request: Consume, sink: Sink) -> GrpcChannel:
        """Open a channel, in a cluster at the node that owns the queue; see ``Transport``.

        Raises:
            QueueSplit: the queue has partitions; open a stream for each of them.
        """
        try:
            return await self._open(request, sink, self._target)
        except errors.QueueSplit as error:
            raise _of_each(request.queue, error) from error
        except errors.QueueElsewhere as error:
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
                    await call.read()  # raises the reason of the refusal
        except grpc.aio.AioRpcError as error:
            raise _refusal(error, target) from error
        except (asyncio.InvalidStateError, TimeoutError) as error:
            call.cancel()
            raise errors.Disconnected(f"No answer from {target} within {self._timeout:g} s.") from error
        return GrpcChannel(call, sink, target)

    async def close(self) -> None:
        """Close the connections. The servers then return the messages that streams hold."""
        self._is_closed = True
        for channel in self._channels.values():
            await channel.close()

    def _connected(self, target: str) -> grpc.aio.Channel:
        if self._is_closed:
            raise errors.Closed("The client is closed.")
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
    """A gRPC stream of deliveries; see ``Channel``."""

    def __init__(self, call: Any, sink: Sink, target: str) -> None:  # noqa: ANN401 - calls of bytes have no type
        self._call = call
        self._sink = sink
        self._target = target
        self._received = 0
        self._is_stopping = False
        self._reading = asyncio.get_running_loop().create_task(self._read())

    async def stop(self, unseen: Sequence[Delivery]) -> None:
        """Close the channel; see ``Channel``."""
        if self._is_stopping or self._call.done():
            return
        self._is_stopping = True
        request = broker_pb2.ConsumeRequest()
        request.stop.received = self._received
        request.stop.unseen.extend([delivery.id for delivery in unseen])
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # the server has already taken them back
            await self._call.write(request.SerializeToString())
            await self._call.done_writing()
        await self._reading

    async def widen(self, handlers: int) -> None:
        """Change the number of handlers; see ``Channel``."""
        request = broker_pb2.ConsumeRequest()
        request.widen.handlers = handlers
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # the stream has ended, and is opened again
            await self._call.write(request.SerializeToString())

    async def _read(self) -> None:
        try:
            while (data := await self._call.read()) is not grpc.aio.EOF:
                self._take(broker_pb2.ConsumeResponse.FromString(data))
            error: errors.FairlaneError = errors.Disconnected(f"{self._target} ended the stream.")
        except grpc.aio.AioRpcError as refused:
            error = _refusal(refused, self._target)
        except asyncio.CancelledError:
            error = errors.Disconnected("The client was closed.")
        if not self._is_stopping:
            self._sink.ended(error)

    def _take(self, response: broker_pb2.ConsumeResponse) -> None:
        if self._is_stopping:
            return  # the server takes back what it sent after a stop
        if response.deliveries:
            deliveries = msgspec.convert(told(response)["deliveries"], list[Delivery])
            self._received += len(deliveries)
            self._sink.deliver(deliveries)
        if response.cancelled:
            self._sink.cancelled(list(response.cancelled))
        if response.WhichOneof("response") == "ended":
            self._sink.ended(_error_of(response.ended))


def _checked(request: Shape, message: Any) -> None:  # noqa: ANN401 - message classes are created at run time
    try:
        write(request, message)
    except (TypeError, ValueError) as error:
        raise errors.InvalidArgument(f"Cannot encode the request: {error}.") from error


def _refusal(error: grpc.aio.AioRpcError, target: str) -> errors.FairlaneError:
    error_bytes = dict(error.trailing_metadata() or ()).get("fairlane-error-bin")
    if isinstance(error_bytes, bytes):
        refusal = _error_of(types_pb2.Error.FromString(error_bytes))
        return errors.Disconnected(refusal.cause) if isinstance(refusal, errors.Closed) else refusal
    if error.code() == grpc.StatusCode.UNIMPLEMENTED:
        return errors.RouteNotFound(f"{target} has no such method: {error.details()}")
    if error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED:
        if _TOO_LARGE in (error.details() or ""):
            return errors.PayloadTooLarge(f"{target} refused the request because of its size: {error.details()}")
        return errors.TooManyConnections(f"{target} serves too many calls: {error.details()}", retry_after_ms=1_000)
    return errors.Disconnected(f"No answer from {target}: {error.details()}.")


def _of_each(queue: str, error: errors.QueueSplit) -> errors.QueueSplit:
    first = partition_name(queue, 0)
    return errors.QueueSplit(
        f"Queue {queue!r} is split, and a gRPC stream reads one partition: open one for each, starting with {first!r}, "
        "or use the WebSocket transport, where one stream reads all of them.",
        partitions=error.partitions,
        made=error.made,
        by_message=error.by_message,
    )


def _error_of(message: types_pb2.Error) -> errors.FairlaneError:
    return error_of(msgspec.convert(told(message), ErrorBody))


def _target(address: str) -> tuple[str, bool]:
    parts = urlsplit(address)
    if parts.scheme not in _SCHEMES or not parts.netloc or parts.path.strip("/"):
        raise errors.InvalidArgument(
            f"Invalid server address {address!r}; expected a URL such as grpc://127.0.0.1:7421."
        )
    return parts.netloc, _SCHEMES[parts.scheme]
