"""Health checks and reflection over gRPC.

Health checks need no API key, so that a load balancer can make them. Their messages are small, and are read in turns of
their own: one at a time of each address, so that a client that stalls delays neither the checks of others nor calls.
Reflection needs an API key where the server requires one, like every other method.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from fairlane.errors import FairlaneError, InvalidArgument
from fairlane.gateway.caller import ANYBODY
from fairlane.server.context import ServerContext
from fairlane.server.interfaces.grpc_calls import Call
from fairlane.server.interfaces.grpc_reads import Context, MessageReads

_NAME_BYTES_MAX: Final = 1_024
"""Bytes of a health check: it has the name of a service."""
_CALLS_MAX: Final = 64
"""Health checks of one address whose message has not arrived."""
_READS_MAX: Final = 4
_READ_S_MAX: Final = 5.0


class HealthChecks:
    """The service ``grpc.health.v1.Health``."""

    def __init__(self, server: ServerContext) -> None:
        self._server = server
        self._reads = MessageReads(
            calls_max=_CALLS_MAX, reads_max=_READS_MAX, caller_reads_max=1, seconds_max=_READ_S_MAX
        )
        self.servicer = health.aio.HealthServicer()

    def handler(self) -> grpc.GenericRpcHandler:
        """Return what serves the methods."""
        encode = health_pb2.HealthCheckResponse.SerializeToString
        methods: dict[str, Any] = {
            "Check": grpc.stream_unary_rpc_method_handler(self._check, response_serializer=encode),
            "Watch": grpc.stream_stream_rpc_method_handler(self._watch, response_serializer=encode),
        }
        return grpc.method_handlers_generic_handler(health.SERVICE_NAME, methods)

    async def _check(self, _requests: object, context: Context) -> health_pb2.HealthCheckResponse:
        call = Call(self._server, context, "health check")
        try:
            request = await self._read(call, context)
        except FairlaneError as error:
            await call.refuse(error)
        return await self.servicer.Check(request, context)

    async def _watch(self, _requests: object, context: Context) -> None:
        call = Call(self._server, context, "health watch")
        try:
            request = await self._read(call, context)
            with self._server.waiters.counted(call.holder(ANYBODY)):
                await self.servicer.Watch(request, context)
        except FairlaneError as error:
            await call.refuse(error)

    async def _read(self, call: Call, context: Context) -> health_pb2.HealthCheckRequest:
        """Return the request of a call. Raises InvalidArgument, WaitTimedOut or TooManyWaiters if there is none."""
        data = await self._reads.read(context, call.holder(ANYBODY))
        if len(data) > _NAME_BYTES_MAX:
            del data  # the traceback of the error must not keep it
            raise InvalidArgument(f"A health check can have at most {_NAME_BYTES_MAX} bytes.")
        try:
            return health_pb2.HealthCheckRequest.FromString(data)
        except DecodeError as error:
            raise InvalidArgument("The request is not the name of a service.") from error


class Reflection:
    """The service of reflection."""

    def __init__(self, server: ServerContext, names: Sequence[str]) -> None:
        self._server = server
        self._servicer = reflection.aio.ReflectionServicer(names)

    def handler(self) -> grpc.GenericRpcHandler:
        """Return what serves the method."""
        method: Any = grpc.stream_stream_rpc_method_handler(
            self._serve,
            request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
            response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
        )
        return grpc.method_handlers_generic_handler(reflection.SERVICE_NAME, {"ServerReflectionInfo": method})

    async def _serve(self, requests: AsyncIterator[Any], context: Context) -> None:
        call = Call(self._server, context, "reflection")
        try:
            caller = call.caller()
            call.begin(caller)
            with self._server.waiters.counted(call.holder(caller)):
                responses: Any = self._servicer.ServerReflectionInfo(requests, context)  # its types are wrong
                async for response in responses:
                    await context.write(response)
        except FairlaneError as error:
            await call.refuse(error)
