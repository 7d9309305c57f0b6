"""Health checks and reflection over gRPC.

Health checks need no API key, so that a load balancer can make them; their messages are small, and few are read at a
time. Reflection needs an API key where the server requires one, like every other method.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from fairlane.errors import FairlaneError
from fairlane.server.context import ServerContext
from fairlane.server.interfaces.grpc_calls import Call
from fairlane.server.interfaces.grpc_reads import STRANGER, Context, MessageReads

_NAME_BYTES_MAX: Final = 1_024
"""Bytes of a health check: it has the name of a service."""


class HealthChecks:
    """The service ``grpc.health.v1.Health``."""

    def __init__(self, reads: MessageReads) -> None:
        self._reads = reads
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
        return await self.servicer.Check(await self._request(context), context)

    async def _watch(self, _requests: object, context: Context) -> None:
        await self.servicer.Watch(await self._request(context), context)

    async def _request(self, context: Context) -> health_pb2.HealthCheckRequest:
        request = await self._read(context)
        if request is None:  # the error of the abort must not keep what was read
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "The request is not the name of a service.")
            raise AssertionError("abort raises")
        return request

    async def _read(self, context: Context) -> health_pb2.HealthCheckRequest | None:
        try:
            data = await self._reads.read(context, STRANGER)
            return health_pb2.HealthCheckRequest.FromString(data) if len(data) <= _NAME_BYTES_MAX else None
        except (FairlaneError, DecodeError):
            return None


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
            call.caller()
        except FairlaneError as error:
            await call.refuse(error)
        responses: Any = self._servicer.ServerReflectionInfo(requests, context)  # an iterator, unlike its types say
        async for response in responses:
            await context.write(response)
