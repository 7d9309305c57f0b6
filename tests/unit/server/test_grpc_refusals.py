"""The gRPC interface: how each error arrives, and what makes no sense."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest

from fairlane import errors
from fairlane.client.transport.grpc import GrpcTransport
from fairlane.errors import FairlaneError, QueueFull
from fairlane.model.message import NewMessage
from fairlane.model.policy import QueuePolicy
from fairlane.server.limits import CallLimits
from fairlane.verbs.messages import Enqueue
from fairlane.verbs.queues import GetStats
from fairlane.wire.errors import HTTP_STATUS
from fairlane.wire.grpc import admin_pb2 as admin
from fairlane.wire.grpc import broker_pb2 as broker
from fairlane.wire.grpc import types_pb2
from tests.unit.server.grpc_client import GrpcClient, called, refused, trailing
from tests.unit.server.local_server import run

STATUSES = {
    "invalid_argument": "INVALID_ARGUMENT",
    "hook_invalid": "INVALID_ARGUMENT",
    "not_a_dlq": "INVALID_ARGUMENT",
    "payload_too_large": "INVALID_ARGUMENT",
    "request_too_large": "INVALID_ARGUMENT",
    "unauthenticated": "UNAUTHENTICATED",
    "forbidden": "PERMISSION_DENIED",
    "queue_not_found": "NOT_FOUND",
    "message_not_found": "NOT_FOUND",
    "reader_not_found": "NOT_FOUND",
    "redrive_not_found": "NOT_FOUND",
    "schedule_not_found": "NOT_FOUND",
    "route_not_found": "NOT_FOUND",
    "queue_exists": "ALREADY_EXISTS",
    "lease_mismatch": "ABORTED",
    "state_mismatch": "ABORTED",
    "repeat_too_late": "FAILED_PRECONDITION",
    "not_pending": "FAILED_PRECONDITION",
    "out_of_order": "FAILED_PRECONDITION",
    "queue_elsewhere": "FAILED_PRECONDITION",
    "node_not_found": "NOT_FOUND",
    "queues_apart": "FAILED_PRECONDITION",
    "queue_split": "FAILED_PRECONDITION",
    "journal_mismatch": "ABORTED",
    "journal_trimmed": "OUT_OF_RANGE",
    "key_full": "RESOURCE_EXHAUSTED",
    "queue_full": "RESOURCE_EXHAUSTED",
    "global_full": "RESOURCE_EXHAUSTED",
    "store_full": "RESOURCE_EXHAUSTED",
    "too_many_waiters": "RESOURCE_EXHAUSTED",
    "too_many_connections": "RESOURCE_EXHAUSTED",
    "message_cancelled": "ABORTED",
    "message_dead": "ABORTED",
    "result_too_large": "INVALID_ARGUMENT",
    "upload_not_found": "NOT_FOUND",
    "upload_mismatch": "ABORTED",
    "payload_streamed": "ABORTED",
    "too_many_uploads": "RESOURCE_EXHAUSTED",
    "consumer_not_found": "NOT_FOUND",
    "claim_not_found": "NOT_FOUND",
    "consumer_fenced": "ABORTED",
    "sink_not_found": "NOT_FOUND",
    "stage_mismatch": "ABORTED",
    "rate_limited": "RESOURCE_EXHAUSTED",
    "too_much_unread": "RESOURCE_EXHAUSTED",
    "too_much_arriving": "RESOURCE_EXHAUSTED",
    "wrong_event_loop": "INTERNAL",
    "internal": "INTERNAL",
}
KINDS: dict[str, type[FairlaneError]] = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, FairlaneError) and "code" in vars(kind)
}


@pytest.mark.parametrize("code", HTTP_STATUS)
def test_every_error_has_its_status(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a verb is refused with arrives with its status, code, cause and remedy."""

    async def main() -> None:
        async with called() as caller:

            async def refuse(*_: object) -> None:
                raise KINDS[code]("It is só.")

            monkeypatch.setattr(caller.server.context, "call", refuse)
            error = await refused(caller.admin.ListQueues(admin.ListQueuesRequest()))
            assert error.code().name == STATUSES.get(code, "UNAVAILABLE")
            fields = trailing(error)
            told = types_pb2.Error.FromString(fields["fairlane-error-bin"])
            remedy = KINDS[code].remedy
            assert (told.code, told.cause, told.remedy) == (code, "It is só.", remedy)
            assert (fields["fairlane-code"], fields["fairlane-remedy"]) == (code, remedy)
            assert error.details() == f"It is só. {remedy}"

    run(main())


def test_when_to_come_back_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal that time mends says how much of it."""

    async def main() -> None:
        async with called() as caller:

            async def refuse(*_: object) -> None:
                raise QueueFull("It is full.", retry_after_ms=250)

            monkeypatch.setattr(caller.server.context, "call", refuse)
            fields = trailing(await refused(caller.admin.ListQueues(admin.ListQueuesRequest())))
            assert fields["fairlane-retry-after-ms"] == "250"
            assert types_pb2.Error.FromString(fields["fairlane-error-bin"]).retry_after_ms == 250

    run(main())


def test_a_full_queue_says_so_for_each_message() -> None:
    """The call succeeds, and the message that has no room has an error with a time to come back."""

    async def main() -> None:
        async with called() as caller:
            await caller.server.broker.create_queue("small", policy=QueuePolicy(waiting_max=1))
            request = broker.EnqueueRequest(queue="small", wait_ms=0)
            for _ in range(2):
                request.messages.add()
            results = (await caller.broker.Enqueue(request)).results
            assert [result.error.code for result in results] == ["", "queue_full"]
            assert results[1].error.retry_after_ms > 0

    run(main())


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda c: c.broker.Lease(broker.LeaseRequest(queue="none")), "queue_not_found"),
        (lambda c: c.broker.Lease(broker.LeaseRequest()), "invalid_argument"),
        (lambda c: c.broker.Lease(broker.LeaseRequest(queue="orders", count=0)), "invalid_argument"),
        (lambda c: c.broker.Lease(broker.LeaseRequest(queue="orders", wait_ms=-1)), "invalid_argument"),
        (lambda c: c.broker.Enqueue(broker.EnqueueRequest(queue="none")), "queue_not_found"),
        (lambda c: c.broker.Nack(broker.NackRequest(queue="orders", intent="maybe")), "invalid_argument"),
        (lambda c: c.broker.Forward(broker.ForwardRequest(queue="orders")), "invalid_argument"),
        (lambda c: c.admin.CreateQueue(admin.CreateQueueRequest(queue="orders")), "queue_exists"),
        (
            lambda c: c.admin.CreateQueue(
                admin.CreateQueueRequest(queue="a", policy=admin.QueuePolicy(backpressure="no"))
            ),
            "invalid_argument",
        ),
        (lambda c: c.admin.UpdateQueue(admin.UpdateQueueRequest(queue="orders", reset=["no"])), "invalid_argument"),
        (lambda c: c.admin.Redrive(admin.RedriveRequest(queue="orders")), "not_a_dlq"),
        (lambda c: c.admin.SetConfig(admin.SetConfigRequest(values={"_": ""})), None),
        (lambda c: c.raw("/fairlane.v1.Broker/Lease", b"\xff\xff\xff"), "invalid_argument"),
        (lambda c: c.raw("/fairlane.v1.Broker/Enqueue", b"\x0a\x02\xff\xfe"), "invalid_argument"),
        (lambda c: c.raw("/fairlane.v1.Broker/Lease", b"\x0a\x06orders\xf8\x07\x01"), "invalid_argument"),
        (lambda c: c.raw("/fairlane.v1.Broker/Enqueue", b"\x0a\x06orders\x12\x03\xf8\x07\x01"), "invalid_argument"),
    ],
)
def test_what_makes_no_sense_is_refused(call: Callable[[GrpcClient], Any], code: str | None) -> None:
    """Wrong values, bytes that are no message, and fields that nobody knows, also deep inside."""

    async def main() -> None:
        async with called() as caller:
            if code is None:
                await call(caller)
                return
            assert trailing(await refused(call(caller)))["fairlane-code"] == code
            assert await caller.enqueue(b"goes on")

    run(main())


def test_a_message_written_in_another_way_is_read() -> None:
    """A default that is written out makes a request longer but no less known."""

    async def main() -> None:
        async with called() as caller:
            data = b"\x0a\x06orders\x18\x00"
            assert broker.LeaseRequest.FromString(data) == broker.LeaseRequest(queue="orders")
            assert await caller.raw("/fairlane.v1.Broker/Lease", data) == b""

    run(main())


def test_a_method_that_is_not_there_is_not_implemented() -> None:
    """Nobody answers for it."""

    async def main() -> None:
        async with called() as caller:
            error = await refused(caller.raw("/fairlane.v1.Broker/Nothing", b""))
            assert error.code() == grpc.StatusCode.UNIMPLEMENTED

    run(main())


def test_a_request_that_is_too_large_is_not_taken() -> None:
    """The limit on bodies applies to all interfaces."""

    async def main() -> None:
        async with called(limits=CallLimits(body_bytes_max=1000)) as caller:
            request = broker.EnqueueRequest(queue="orders")
            request.messages.add(payload=b"x" * 2000)
            assert (await refused(caller.broker.Enqueue(request))).code() == grpc.StatusCode.RESOURCE_EXHAUSTED

    run(main())


def test_a_client_is_told_whether_its_request_or_the_server_is_the_problem() -> None:
    """gRPC refuses a request that is too large and one call too many with one status; the client keeps them apart."""

    async def main() -> None:
        limits = CallLimits(body_bytes_max=1000, connections_max=2)
        async with called(limits=limits) as caller, AsyncExitStack() as stack:
            transport = GrpcTransport(f"grpc://{caller.address}")
            stack.push_async_callback(transport.close)
            with pytest.raises(errors.PayloadTooLarge, match="because of its size"):
                await transport.call("enqueue", Enqueue(queue="orders", messages=[NewMessage(payload=b"x" * 2000)]))
            for _ in range(8):  # all that two connections may have
                consuming = caller.broker.Consume()
                stack.callback(consuming.cancel)
                await consuming.write(broker.ConsumeRequest(open=broker.ConsumeOpen(queue="orders")))
                await consuming.initial_metadata()
            with pytest.raises(errors.TooManyConnections, match="too many calls"):
                await transport.call("stats", GetStats(queue="orders"))

    run(main())


def test_a_large_message_arrives_whole() -> None:
    """What gRPC refuses by default is taken up to the broker's own limit."""

    async def main() -> None:
        async with called() as caller:
            payload = b"x" * (8 * 1024 * 1024)
            assert (await caller.enqueue(payload))[0]
            got = (await caller.admin.Peek(admin.PeekRequest(queue="orders"))).messages[0]
            assert got.size == len(payload)

    run(main())


def test_a_fault_of_ours_is_an_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It tells its kind and no more."""

    async def main() -> None:
        async with called() as caller:

            async def fail(*_: object) -> None:
                raise ZeroDivisionError("secret")

            monkeypatch.setattr(caller.server.context, "call", fail)
            error = await refused(caller.admin.ListQueues(admin.ListQueuesRequest()))
            assert error.code() == grpc.StatusCode.INTERNAL
            assert "secret" not in (error.details() or "")

    run(main())
