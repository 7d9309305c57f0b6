"""A server with gRPC on a real connection, and a client in front of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from fairlane.server.interfaces.grpc_server import GrpcInterface
from fairlane.wire.grpc import admin_pb2_grpc, broker_pb2_grpc, types_pb2
from fairlane.wire.grpc import broker_pb2 as broker
from tests.unit.server.local_server import LocalServer, opened


def stub(kind: Any, channel: grpc.aio.Channel) -> Any:
    """Return a stub, whose methods have no types."""
    return kind(channel)


class GrpcClient:
    """A server with gRPC, and a client in front of it."""

    def __init__(self, server: LocalServer, address: str, channel: grpc.aio.Channel) -> None:
        self.server = server
        self.address = address
        self.channel = channel
        self.broker = stub(broker_pb2_grpc.BrokerStub, channel)
        self.admin = stub(admin_pb2_grpc.AdminStub, channel)

    async def raw(self, path: str, data: bytes) -> bytes:
        """Send bytes to a method."""
        method: Any = self.channel.unary_unary(path)
        answer: bytes = await method(data)
        return answer

    async def enqueue(self, *payloads: bytes) -> list[str]:
        """Enqueue messages to ``orders``, and return their ids."""
        request = broker.EnqueueRequest(queue="orders")
        for payload in payloads:
            request.messages.add().payload = payload
        return [result.id for result in (await self.broker.Enqueue(request)).results]


@asynccontextmanager
async def called(**options: Any) -> AsyncIterator[GrpcClient]:
    """Open a server with gRPC, and a client of it."""
    async with opened(**options) as server:
        interface = GrpcInterface(server.context)
        address = f"127.0.0.1:{interface.listen('127.0.0.1:0')}"
        await interface.start()
        try:
            async with grpc.aio.insecure_channel(address) as channel:
                yield GrpcClient(server, address, channel)
        finally:
            server.context.closing.set()
            await interface.stop()


def receipt(delivery: Any) -> types_pb2.Receipt:
    """Return the receipt of a delivery."""
    return types_pb2.Receipt(id=delivery.id, token=delivery.token)


async def refused(call: Any) -> grpc.aio.AioRpcError:
    """Return the error of a call that is refused."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


def trailing(error: grpc.aio.AioRpcError) -> dict[str, Any]:
    """Return the metadata at the end of a refused call."""
    return dict(error.trailing_metadata() or ())
