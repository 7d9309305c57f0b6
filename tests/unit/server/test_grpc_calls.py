"""The gRPC interface: keys, correlation ids, draining, and clients that disconnect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fairlane.model.message import NewMessage
from fairlane.server.interfaces.grpc_server import SERVICES
from fairlane.verbs.keys import Grant
from fairlane.wire.grpc import admin_pb2 as admin
from fairlane.wire.grpc import broker_pb2 as broker
from tests.unit.server.grpc_client import GrpcClient, called, receipt, refused, stub, trailing
from tests.unit.server.local_server import run

if TYPE_CHECKING:
    import pytest


def test_a_key_is_asked_for_and_its_rights_hold() -> None:
    """None, a bad one, one without the right and a good one."""

    async def main() -> None:
        async with called(requires_auth=True) as caller:
            key = await caller.server.key(Grant(right="consume", queues="orders"))
            lease = broker.LeaseRequest(queue="orders")
            good = (("authorization", f"Bearer {key}"),)
            assert (await refused(caller.broker.Lease(lease))).code() == grpc.StatusCode.UNAUTHENTICATED
            bad = caller.broker.Lease(lease, metadata=(("authorization", "Bearer fl_no_no"),))
            assert (await refused(bad)).code() == grpc.StatusCode.UNAUTHENTICATED
            assert not (await caller.broker.Lease(lease, metadata=good)).deliveries
            produce = caller.broker.Enqueue(broker.EnqueueRequest(queue="orders"), metadata=good)
            assert (await refused(produce)).code() == grpc.StatusCode.PERMISSION_DENIED
            listing = caller.admin.ListQueues(admin.ListQueuesRequest(), metadata=good)
            assert (await refused(listing)).code() == grpc.StatusCode.PERMISSION_DENIED

    run(main())


def test_a_correlation_id_goes_along() -> None:
    """It is on the message, on the answer, on the lease of it, and on a refusal."""

    async def main() -> None:
        async with called() as caller:
            given = (("x-correlation-id", "trace-7"),)
            request = broker.EnqueueRequest(queue="orders")
            request.messages.add()
            call = caller.broker.Enqueue(request, metadata=given)
            await call
            assert dict(await call.trailing_metadata())["x-correlation-id"] == "trace-7"
            leasing = caller.broker.Lease(broker.LeaseRequest(queue="orders"))
            assert (await leasing).deliveries[0].correlation_id == "trace-7"
            assert dict(await leasing.trailing_metadata())["x-correlation-id"] == "trace-7"
            error = await refused(caller.broker.Lease(broker.LeaseRequest(queue="none"), metadata=given))
            assert trailing(error)["x-correlation-id"] == "trace-7"

    run(main())


def test_a_server_that_goes_down_takes_no_new_work() -> None:
    """Enqueues are refused, acks are taken, and health says that nobody should come."""

    async def main() -> None:
        async with called() as caller:
            await caller.enqueue(b"a")
            delivery = (await caller.broker.Lease(broker.LeaseRequest(queue="orders"))).deliveries[0]
            health = stub(health_pb2_grpc.HealthStub, caller.channel)
            watching = health.Watch(health_pb2.HealthCheckRequest(service=SERVICES[0]))
            assert (await watching.read()).status == health_pb2.HealthCheckResponse.SERVING
            caller.server.context.draining.set()
            assert (await watching.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
            watching.cancel()
            error = await refused(caller.broker.Enqueue(broker.EnqueueRequest(queue="orders")))
            assert (error.code(), trailing(error)["fairlane-code"]) == (grpc.StatusCode.UNAVAILABLE, "closed")
            acked = await caller.broker.Ack(broker.AckRequest(queue="orders", receipts=[receipt(delivery)]))
            assert not acked.results[0].HasField("error")

    run(main())


def test_a_lease_that_is_called_off_takes_nothing() -> None:
    """Who waits and gives up leaves the message to the next."""

    async def main() -> None:
        async with called() as caller:
            waiting = caller.broker.Lease(broker.LeaseRequest(queue="orders", wait_ms=60_000))
            while not (await caller.server.broker.queue("orders")).waiters:
                pass
            waiting.cancel()
            while any(not waiter.reply.done() for waiter in _waiters(caller)):
                await caller.server.broker.queue("orders")
            await caller.enqueue(b"a")
            lease = broker.LeaseRequest(queue="orders", wait_ms=10_000)
            assert (await caller.broker.Lease(lease)).deliveries[0].attempt == 1

    run(main())


def _waiters(caller: GrpcClient) -> list[Any]:
    line = caller.server.broker._engine.consumers.lines.get("orders", ())
    return list(line)


def test_what_was_leased_for_nobody_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that can't be sent any more gives its messages to the next, and no attempt is counted as failed."""

    async def main() -> None:
        async with called() as caller:
            await caller.server.broker.enqueue_many("orders", [NewMessage(payload=b"a")])

            def fail(*_: object) -> None:
                raise ConnectionError("gone")

            with monkeypatch.context() as patch:
                patch.setattr("fairlane.server.interfaces.grpc_calls._encoded", fail)
                await refused(caller.broker.Lease(broker.LeaseRequest(queue="orders")))
            again = await caller.broker.Lease(broker.LeaseRequest(queue="orders", wait_ms=10_000))
            assert again.deliveries[0].failures == 0

    run(main())
