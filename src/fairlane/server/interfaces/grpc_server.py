"""The gRPC interface: the services of ``fairlane.wire.grpc``, with health checks and reflection.

Every method is a verb of the table behind all interfaces. The caller's API key and rights are checked before its
message is read. Requests arrive as bytes, so that a malformed one is refused with the same kind of error as everywhere
else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from fairlane.errors import InvalidArgument
from fairlane.server.connections import CALLS_PER_CONNECTION
from fairlane.server.context import ServerContext
from fairlane.server.settings import ServerSettings

try:
    import grpc
    from google.protobuf.message_factory import GetMessageClass
    from grpc_health.v1 import health, health_pb2
    from grpc_reflection.v1alpha import reflection
except ImportError as error:
    raise ImportError(
        "gRPC needs grpcio, grpcio-health-checking and grpcio-reflection: install fairlane[grpc]."
    ) from error

from fairlane.server.interfaces import grpc_messages as messages
from fairlane.server.interfaces import grpc_shapes as shapes
from fairlane.server.interfaces.grpc_calls import Method, answer, hand_over
from fairlane.server.interfaces.grpc_consume import consume
from fairlane.server.interfaces.grpc_health import HealthChecks, Reflection
from fairlane.server.interfaces.grpc_reads import READ_S_MAX, Context, MessageReads
from fairlane.server.interfaces.grpc_shapes import Read, Write
from fairlane.verbs.table import METHODS
from fairlane.wire.grpc import admin_pb2, batches_pb2, broker_pb2
from fairlane.wire.protobuf import write

BROKER: Final = broker_pb2.DESCRIPTOR.services_by_name["Broker"]
ADMIN: Final = admin_pb2.DESCRIPTOR.services_by_name["Admin"]
BATCHES: Final = batches_pb2.DESCRIPTOR.services_by_name["Batches"]
SERVICES: Final = (BROKER.full_name, ADMIN.full_name, BATCHES.full_name)
_CONSUME: Final = "Consume"
_LEASE: Final = "lease"
_GRACE_S: Final = 5
_KEEPALIVE_MS: Final = 20_000

_READS: Final[Mapping[str, Read]] = {
    "enqueue": messages.read_enqueue,
    "stage": messages.read_stage,
    "ack": messages.read_ack,
    "forward": messages.read_forward,
    "fan_out": messages.read_fan_out,
    "create_queue": shapes.read_policy,
    "ensure_queue": shapes.read_policy,
    "update_queue": shapes.read_policy,
    "set_config": shapes.read_config,
}
_WRITES: Final[Mapping[str, Write]] = {
    "enqueue": messages.write_enqueued,
    "lease": messages.write_leased,
    "read_claim": messages.write_claimed,
    "ack": messages.write_results,
    "nack": messages.write_results,
    "extend": messages.write_results,
    "cancel": messages.write_results,
    "try_hook": shapes.write_trial,
    "read_journal": shapes.write_events,
}


class GrpcInterface:
    """The gRPC server."""

    def __init__(self, server: ServerContext, *, read_s_max: float = READ_S_MAX) -> None:
        """Serve nothing before ``start``. The message of a call may take ``read_s_max`` seconds to arrive."""
        limits = server.limits
        self._context = server
        calls_max = CALLS_PER_CONNECTION * limits.connections_max
        self._reads = MessageReads(calls_max=calls_max // 2, seconds_max=read_s_max)
        self._server = grpc.aio.server(
            maximum_concurrent_rpcs=calls_max,
            options=[
                ("grpc.max_receive_message_length", limits.body_bytes_max),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_concurrent_streams", limits.calls_max),
                ("grpc.so_reuseport", 0),  # a second server on the same port is a mistake
                ("grpc.keepalive_time_ms", _KEEPALIVE_MS),  # detects clients that vanished
                ("grpc.keepalive_timeout_ms", _KEEPALIVE_MS),
                ("grpc.http2.max_pings_without_data", 0),
                ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
                ("grpc.max_allowed_incoming_connections", limits.connections_max),
                ("grpc.server_handshake_timeout_ms", limits.handshake_timeout_ms),
                ("grpc.max_connection_idle_ms", limits.idle_timeout_ms),
            ],
        )
        self._checks = HealthChecks(server)
        self._health = self._checks.servicer
        self._draining: asyncio.Task[None] | None = None
        self._add_services()

    def _add_services(self) -> None:
        for service in (BROKER, ADMIN, BATCHES):
            handlers = {method.name: self._handler(method) for method in service.methods}
            generic = grpc.method_handlers_generic_handler(service.full_name, handlers)
            self._server.add_generic_rpc_handlers((generic,))
        names = (*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME)
        self._server.add_generic_rpc_handlers((self._checks.handler(), Reflection(self._context, names).handler()))

    def _handler(self, method: Any) -> grpc.RpcMethodHandler[Any, Any]:  # noqa: ANN401 - a descriptor
        if method.name == _CONSUME:
            return grpc.stream_stream_rpc_method_handler(self._consume)
        verb = METHODS[method.name].name
        one = Method(
            verb=verb,
            request=GetMessageClass(method.input_type),
            response=GetMessageClass(method.output_type),
            read=_READS.get(verb, shapes.read),
            write=_WRITES.get(verb, write),
        )
        # As if clients sent streams: a unary handler is called only when gRPC has read the message.
        if verb == _LEASE:
            return grpc.stream_stream_rpc_method_handler(partial(hand_over, self._context, one, self._reads))
        return grpc.stream_unary_rpc_method_handler(partial(answer, self._context, one, self._reads))

    async def _consume(self, _requests: object, context: Context) -> None:
        await consume(self._context, self._reads, context)

    def listen(self, address: str, credentials: grpc.ServerCredentials | None = None) -> int:
        """Listen on an address, and return the port. Raises InvalidArgument if the address cannot be bound."""
        try:
            if credentials is None:
                return self._server.add_insecure_port(address)
            return self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise InvalidArgument(
                f"Cannot listen on {address} for gRPC: the port is in use, or the address is not local."
            ) from error

    async def start(self) -> None:
        """Start to serve."""
        for name in ("", *SERVICES):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        await self._server.start()
        self._draining = asyncio.create_task(self._drain())

    async def _drain(self) -> None:
        await self._context.draining.wait()
        await self._health.enter_graceful_shutdown()

    async def stop(self) -> None:
        """Stop, after the calls in progress have been answered."""
        if self._draining is not None:
            self._draining.cancel()
        await self._server.stop(_GRACE_S)


@asynccontextmanager
async def grpc_opened(server: ServerContext, settings: ServerSettings) -> AsyncIterator[str | None]:
    """Serve gRPC while the context lasts, if it is enabled, and yield its address.

    Raises:
        InvalidArgument: the address cannot be bound.
    """
    if settings.grpc_port is None:
        yield None
        return
    interface = GrpcInterface(server)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    port = interface.listen(f"{host}:{settings.grpc_port}", _credentials(server, settings))
    await interface.start()
    try:
        yield f"{host}:{port}"
    finally:
        await interface.stop()


def _credentials(server: ServerContext, settings: ServerSettings) -> grpc.ServerCredentials | None:
    if settings.tls_certificate is None or settings.tls_key is None:
        return None
    renewals = server.tls_renewals

    def renewed() -> grpc.ServerCertificateConfiguration | None:
        """Return the certificates for a handshake if the files are to be read again; None for those in use."""
        nonlocal renewals
        if renewals == server.tls_renewals:
            return None
        renewals = server.tls_renewals
        return _certificates(settings)

    return grpc.dynamic_ssl_server_credentials(
        _certificates(settings),
        renewed,  # type: ignore[arg-type] # its stubs forget None, which keeps what is in use
        require_client_authentication=settings.tls_client_ca is not None,
    )


def _certificates(settings: ServerSettings) -> grpc.ServerCertificateConfiguration:
    pair = (Path(settings.tls_key or "").read_bytes(), Path(settings.tls_certificate or "").read_bytes())
    ca = Path(settings.tls_client_ca).read_bytes() if settings.tls_client_ca is not None else None
    return grpc.ssl_server_certificate_configuration([pair], ca)
