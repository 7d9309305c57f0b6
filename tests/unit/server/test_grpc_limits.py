"""How many calls and connections over gRPC one caller may have."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from fairlane.server.connections import CALLS_PER_CONNECTION
from fairlane.server.limits import CallLimits
from fairlane.verbs.keys import Grant
from fairlane.wire.grpc import broker_pb2, broker_pb2_grpc
from tests.unit.server.grpc_client import GrpcClient, called, refused, stub, trailing
from tests.unit.server.local_server import run

ONE = CallLimits(connections_per_key_max=1, connections_per_address_max=1)


class KeyHolder:
    """A client with an API key."""

    def __init__(self, client: GrpcClient, key: str) -> None:
        self._client = client
        self._metadata = (("authorization", f"Bearer {key}"),)

    def lease(self, *, wait_ms: int = 0, channel: grpc.aio.Channel | None = None) -> Any:
        """Start to lease, over another connection if one is given."""
        broker = self._client.broker if channel is None else stub(broker_pb2_grpc.BrokerStub, channel)
        return broker.Lease(broker_pb2.LeaseRequest(queue="orders", wait_ms=wait_ms), metadata=self._metadata)

    async def waiting(self, count: int) -> list[Any]:
        """Return leases that wait at the broker."""
        before = (await self._client.server.broker.queue("orders")).waiters
        calls = [self.lease(wait_ms=60_000) for _ in range(count)]
        while (await self._client.server.broker.queue("orders")).waiters < before + count:
            pass
        return calls


@asynccontextmanager
async def held(limits: CallLimits) -> AsyncIterator[tuple[GrpcClient, KeyHolder, KeyHolder]]:
    """Open a server for two callers, each with an API key of its own."""
    async with called(requires_auth=True, limits=limits) as client:
        ann, bob = [KeyHolder(client, await client.server.key(Grant(right="consume"))) for _ in range(2)]
        yield client, ann, bob


def own_connection(client: GrpcClient) -> grpc.aio.Channel:
    """Return a channel that shares no connection with others of this process."""
    return grpc.aio.insecure_channel(client.address, options=[("grpc.use_local_subchannel_pool", 1)])


def test_an_api_key_has_a_bounded_number_of_calls() -> None:
    """A caller with as many calls as it may have is refused another until one ends; others are not affected."""

    async def main() -> None:
        async with held(ONE) as (_, ann, bob):
            waiting = await ann.waiting(CALLS_PER_CONNECTION)
            error = await refused(ann.lease())
            assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert trailing(error)["fairlane-code"] == "too_many_connections"
            assert "4 gRPC calls are in progress; 4 times connections_per_key_max is the most" in str(error.details())
            assert not (await bob.lease()).deliveries
            waiting.pop().cancel()
            while waiting:
                call = ann.lease()
                if await call.code() == grpc.StatusCode.OK:  # the server has noticed the cancelled one
                    break
            for each in waiting:
                each.cancel()

    run(main())


def test_an_api_key_has_a_bounded_number_of_connections_with_calls() -> None:
    """A call on a second connection is refused while one is in progress on the first, and served afterwards."""

    async def main() -> None:
        async with held(ONE) as (client, ann, bob), own_connection(client) as other:
            assert not (await ann.lease(channel=other)).deliveries  # whose call has ended
            waiting = await ann.waiting(1)
            error = await refused(ann.lease(channel=other))
            assert "1 gRPC connections have calls in progress; connections_per_key_max is 1" in str(error.details())
            assert not (await bob.lease(channel=other)).deliveries
            assert not (await ann.lease()).deliveries
            await client.server.broker.enqueue("orders", b"x")
            assert len((await waiting[0]).deliveries) == 1
            assert not (await ann.lease(channel=other)).deliveries

    run(main())


def test_consumers_count_and_so_does_an_address_without_authentication() -> None:
    """A Consume call is a call in progress; without API keys calls count against the address they come from."""

    async def main() -> None:
        async with called(limits=ONE) as client:
            opening = broker_pb2.ConsumeRequest(open=broker_pb2.ConsumeOpen(queue="orders", credit=1))
            consumers = [client.broker.Consume() for _ in range(CALLS_PER_CONNECTION)]
            for consumer in consumers:
                await consumer.write(opening)
                await consumer.initial_metadata()
            error = await refused(client.broker.Lease(broker_pb2.LeaseRequest(queue="orders")))
            assert "This address: 4 gRPC calls are in progress" in str(error.details())
            for consumer in consumers:
                consumer.cancel()

    run(main())
