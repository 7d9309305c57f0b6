"""Long polls, channels and subscriptions of one caller are bounded, so that they leave others theirs."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from fairlane.errors import TooManyWaiters
from fairlane.server.limits import CallLimits
from fairlane.server.waiters import CallerWaits
from fairlane.verbs.keys import Grant
from fairlane.wire.frames import Refused
from fairlane.wire.grpc import broker_pb2 as broker
from tests.kit.waiting import until
from tests.unit.server.grpc_client import called, refused
from tests.unit.server.local_server import LocalServer, connected, opened, run

TWO = CallLimits(waiters_per_caller_max=2)
POLL = {"queue": "orders", "wait_ms": 30_000}


def waits(server: LocalServer) -> int:
    """Return what all callers wait for."""
    return server.context.waiters._waits.total()


def test_each_caller_has_its_own_count() -> None:
    """One caller at its limit is refused with the setting's name, another is not, and what ends makes place."""
    counted = CallerWaits(1)
    counted.begin("ann")
    counted.begin("bob")
    with pytest.raises(TooManyWaiters, match="waiters_per_caller_max is 1"):
        counted.begin("ann")
    counted.end("ann")
    with counted.counted("ann"), pytest.raises(TooManyWaiters):
        counted.begin("ann")
    counted.begin("ann")
    for _ in range(3):
        counted.begin(None)  # other nodes are not counted


def test_channels_of_one_api_key_leave_waiters_to_others() -> None:
    """A connection over the limit of channels is refused, and another tenant's long poll waits and is served."""

    async def main() -> None:
        async with opened(requires_auth=True, limits=TWO) as server:
            await server.broker.create_queue("bills")
            ann, bob = [await server.key(Grant(right="consume", queues=name)) for name in ("orders", "bills")]
            async with connected(server, key=ann) as socket:
                for _ in range(2):
                    await socket.answer("consume", {"queue": "orders"}, dict)
                number = socket.call("consume", {"queue": "orders"})
                told = await socket.next(Refused)
                assert (told.number, told.error.code) == (number, "too_many_waiters")
                assert (await server.post("queue/lease", POLL, key=ann)).status_code == 429
                poll = asyncio.create_task(server.post("queue/lease", POLL | {"queue": "bills"}, key=bob))
                await until(lambda: waits(server) == 3, "the other tenant waits")
                await server.broker.enqueue("bills", b"x")
                assert len((await poll).json()["deliveries"]) == 1
            assert waits(server) == 0

    run(main())


def test_long_polls_on_a_stream_count() -> None:
    """They count until they are answered or withdrawn, or the connection ends."""

    async def main() -> None:
        async with opened(limits=TWO) as server:
            async with connected(server) as socket:
                first, _ = [socket.call("lease", POLL) for _ in range(2)]
                refused = socket.call("lease", POLL)
                assert (await socket.next(Refused)).number == refused
                await socket.answer("withdraw", {"call": first}, dict)
                assert waits(server) == 1
                socket.call("lease", POLL)
                await until(lambda: waits(server) == 2, "another waits in its place")
            assert waits(server) == 0

    run(main())


def test_long_polls_and_subscriptions_over_http_count() -> None:
    """One subscription and one long poll are two; both end when their clients leave."""

    async def main() -> None:
        async with opened(limits=TWO) as server:
            polls = [asyncio.create_task(server.post("queue/lease", POLL)) for _ in range(2)]
            await until(lambda: waits(server) == 2, "both wait")
            answer = await server.post("queue/subscribe", {"queue": "orders"})
            assert (answer.status_code, answer.json()["error"]["code"]) == (429, "too_many_waiters")
            assert (await server.post("queue/lease", {"queue": "orders"})).status_code == 200
            await server.broker.enqueue("orders", b"x")
            await server.broker.enqueue("orders", b"x")
            assert [len((await poll).json()["deliveries"]) for poll in polls] == [1, 1]
            assert waits(server) == 0

    run(main())


def test_long_polls_over_grpc_count() -> None:
    """They count by the address of the client, without its port."""

    async def main() -> None:
        async with called(limits=TWO) as caller:
            request = broker.LeaseRequest(queue="orders", wait_ms=30_000)
            polls = [caller.broker.Lease(request) for _ in range(2)]
            await until(lambda: waits(caller.server) == 2, "both wait")
            assert (await refused(caller.broker.Lease(request))).code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            await caller.enqueue(b"x", b"x")
            assert [len((await poll).deliveries) for poll in polls] == [1, 1]
            await until(lambda: waits(caller.server) == 0, "nobody waits")

    run(main())
