"""Waits over HTTP and gRPC: a wait that is too long is shortened."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fairlane.assembly import open_async_broker
from fairlane.server.limits import CallLimits
from fairlane.server.listener import listen
from fairlane.server.settings import ServerSettings
from fairlane.verbs.leases import Lease
from fairlane.verbs.messages import Enqueue
from fairlane.wire.grpc import broker_pb2 as broker

from .grpc_client import called
from .local_server import LocalServer, opened, run

YEARS_MS = 1 << 62
SHORT = CallLimits(wait_ms_max=20)


async def _lease(server: LocalServer) -> int:
    answer = await server.post("queue/lease", {"queue": "orders", "wait_ms": YEARS_MS})
    assert answer.json() == {"deliveries": []}
    return answer.status_code


async def _raw_lease(server: LocalServer) -> int:
    body = {"queue": "orders", "wait_ms": YEARS_MS}
    return (await server.post("queue/dequeue", body, accept="application/octet-stream")).status_code


async def _enqueue(server: LocalServer) -> int:
    policy = {"waiting_max": 1, "backpressure": "wait"}
    await server.broker.update_queue("orders", policy)
    body = {"queue": "orders", "messages": [{}, {}], "wait_ms": YEARS_MS}
    return (await server.post("queue/enqueue", body)).status_code


@pytest.mark.parametrize(("waiting", "status"), [(_lease, 200), (_raw_lease, 204), (_enqueue, 207)])
def test_a_long_wait_over_http_is_shortened(
    waiting: Callable[[LocalServer], Coroutine[Any, Any, int]], status: int
) -> None:
    """A request that would wait for years is answered after ``wait_ms_max``, as if it had asked for that."""

    async def main() -> None:
        async with opened(limits=SHORT) as server:
            assert await waiting(server) == status

    run(main())


def test_a_long_wait_over_grpc_is_shortened() -> None:
    """A lease over gRPC that would wait for years is answered after ``wait_ms_max``."""

    async def main() -> None:
        async with called(limits=SHORT) as caller:
            leased = await caller.broker.Lease(broker.LeaseRequest(queue="orders", wait_ms=YEARS_MS))
            assert list(leased.deliveries) == []

    run(main())


def test_the_limit_leaves_shorter_waits_alone() -> None:
    """A wait up to the limit is passed on, and one hour is within the default."""
    limits = CallLimits()
    for request in (Lease(queue="orders", wait_ms=3_600_000), Enqueue(queue="orders", messages=[])):
        assert limits.shortened(request) is request
    assert limits.shortened(Lease(queue="orders", wait_ms=3_600_001)).wait_ms == 3_600_000


def test_a_broker_shortens_a_wait_of_many_years() -> None:
    """A wait that no clock can measure is none to refuse: the consumer gets the next message."""

    async def main() -> None:
        async with await open_async_broker() as broker:
            await broker.create_queue("orders")
            async with asyncio.TaskGroup() as group:
                leasing = group.create_task(broker.lease("orders", wait_ms=YEARS_MS))
                while not (await broker.queue("orders")).waiters:
                    pass
                sent = await broker.enqueue("orders", b"x")
            assert [delivery.id for delivery in leasing.result()] == [sent]

    run(main())


def test_a_client_that_vanished_is_noticed() -> None:
    """Accepted connections have TCP probes, so a long poll of a dead client ends within 40 seconds."""
    with listen(ServerSettings(port=0)) as listener, socket.create_connection(listener.getsockname()):
        listener.settimeout(5)
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            idle_s, every_s, count = (
                accepted.getsockopt(socket.IPPROTO_TCP, option)
                for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            )
            assert idle_s + every_s * count == 40
