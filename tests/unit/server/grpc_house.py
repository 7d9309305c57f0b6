"""A house with a gRPC door on a real connection, and a client in front of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from fairlane.server.interfaces.grpc_server import GrpcInterface
from fairlane.wire.grpc import admin_pb2_grpc, broker_pb2_grpc, types_pb2
from fairlane.wire.grpc import broker_pb2 as broker
from tests.unit.server.house import House, opened


def stub(kind: Any, channel: grpc.aio.Channel) -> Any:
    """Return a stub, of whose methods types know nothing."""
    return kind(channel)


class Caller:
    """A house with a gRPC door, and a client in front of it."""

    def __init__(self, house: House, channel: grpc.aio.Channel) -> None:
        self.house = house
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
async def called(**options: Any) -> AsyncIterator[Caller]:
    """Open a house with a gRPC door."""
    async with opened(**options) as house:
        door = GrpcInterface(house.server)
        port = door.listen("127.0.0.1:0")
        await door.start()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                yield Caller(house, channel)
        finally:
            house.server.closing.set()
            await door.stop()


def receipt(delivery: Any) -> types_pb2.Receipt:
    """Return the right to a delivery."""
    return types_pb2.Receipt(id=delivery.id, token=delivery.token)


async def refused(call: Any) -> grpc.aio.AioRpcError:
    """Return how a call is refused."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


def trailing(error: grpc.aio.AioRpcError) -> dict[str, Any]:
    """Return the metadata at the end of a refused call."""
    return dict(error.trailing_metadata() or ())
