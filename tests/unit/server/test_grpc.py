"""The gRPC door on a real connection: verbs, results, refusals, metadata, health and reflection."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from fairlead import errors
from fairlead.errors import FairleadError, QueueFull
from fairlead.model.message import NewMessage
from fairlead.model.policy import QueuePolicy
from fairlead.server.callers import Grant
from fairlead.server.doors import DoorLimits
from fairlead.server.grpc_door import SERVICES, VERB_OF, GrpcDoor
from fairlead.server.settings import ServerSettings, check, load
from fairlead.wire.errors import HTTP_STATUS
from fairlead.wire.grpc import admin_pb2 as admin
from fairlead.wire.grpc import admin_pb2_grpc, broker_pb2_grpc, types_pb2
from fairlead.wire.grpc import broker_pb2 as broker
from fairlead.wire.verbs import VERBS
from tests.unit.server.house import House, opened, run

NONE = 1 << 62


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
        door = GrpcDoor(house.doors)
        port = door.listen("127.0.0.1:0")
        await door.start()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                yield Caller(house, channel)
        finally:
            house.doors.closing.set()
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


# ---------------------------------------------------------------------------------------------------------------- verbs


def test_every_verb_has_a_method() -> None:
    """What can be asked over HTTP can be asked over gRPC."""
    assert set(VERB_OF.values()) == set(VERBS)


def test_a_message_goes_its_way() -> None:
    """Enqueue, lease, nack, lease again, extend and ack; everything that was said of it arrives."""

    async def main() -> None:
        async with called() as caller:
            request = broker.EnqueueRequest(queue="orders")
            new = request.messages.add(payload=b"\x00\xff", fairness_key=["acme", "web"], cost=3, priority="high")
            new.headers["a"] = "b"
            assert (await caller.broker.Enqueue(request)).results[0].id
            first = (await caller.broker.Lease(broker.LeaseRequest(queue="orders"))).deliveries[0]
            assert (first.payload, dict(first.headers), list(first.fairness_key)) == (
                b"\x00\xff",
                {"a": "b"},
                ["acme", "web"],
            )
            assert (first.cost, first.priority, first.attempt, first.queue) == (3, "high", 1, "orders")
            nack = broker.NackRequest(queue="orders", receipts=[receipt(first)], error="no", delay_ms=0)
            assert not (await caller.broker.Nack(nack)).results[0].HasField("error")
            again = (await caller.broker.Lease(broker.LeaseRequest(queue="orders", wait_ms=10_000))).deliveries[0]
            assert (again.attempt, again.failures, again.errors[0].error) == (2, 1, "no")
            extend = broker.ExtendRequest(queue="orders", receipts=[receipt(again)], visibility_ms=60_000)
            assert (await caller.broker.Extend(extend)).results[0].expires_ms > again.expires_ms
            acked = await caller.broker.Ack(broker.AckRequest(queue="orders", receipts=[receipt(again)]))
            assert len(acked.results) == 1
            assert not acked.results[0].HasField("error")
            assert (await caller.admin.Stats(admin.StatsRequest(queue="orders"))).waiting == 0

    run(main())


def test_each_item_of_a_batch_has_its_own_result() -> None:
    """One bad message, one stale receipt: the others are done, in order."""

    async def main() -> None:
        async with called() as caller:
            request = broker.EnqueueRequest(queue="orders")
            request.messages.add(payload=b"a")
            request.messages.add(payload=b"b", cost=0)
            request.messages.add(payload=b"c", priority="urgent")
            request.messages.add(payload=b"d")
            results = (await caller.broker.Enqueue(request)).results
            assert [result.error.code for result in results] == ["", "invalid_argument", "invalid_argument", ""]
            assert results[1].error.remedy
            assert not results[1].HasField("id")
            deliveries = (await caller.broker.Lease(broker.LeaseRequest(queue="orders", count=9))).deliveries
            assert [delivery.payload for delivery in deliveries] == [b"a", b"d"]
            stale = types_pb2.Receipt(id=deliveries[0].id, token=1)
            receipts = [receipt(deliveries[0]), stale, receipt(deliveries[1])]
            acked = await caller.broker.Ack(broker.AckRequest(queue="orders", receipts=receipts))
            assert [result.error.code for result in acked.results] == ["", "lease_mismatch", ""]

    run(main())


def test_forwarding_is_one_commit() -> None:
    """The message is done and the others are in their queue."""

    async def main() -> None:
        async with called() as caller:
            await caller.house.broker.create_queue("next")
            await caller.enqueue(b"a")
            delivery = (await caller.broker.Lease(broker.LeaseRequest(queue="orders"))).deliveries[0]
            request = broker.ForwardRequest(queue="orders", receipt=receipt(delivery))
            request.messages["next"].messages.add(payload=b"b")
            request.messages["next"].messages.add(payload=b"c", fairness_key=["acme"])
            assert len((await caller.broker.Forward(request)).ids) == 2
            got = (await caller.broker.Lease(broker.LeaseRequest(queue="next", count=2))).deliveries
            assert {(delivery.payload, *delivery.fairness_key) for delivery in got} >= {(b"c", "acme")}
            assert (await refused(caller.broker.Forward(request))).code() == grpc.StatusCode.NOT_FOUND

    run(main())


def test_workflow_state_is_kept_by_version() -> None:
    """It is written under a lease, read by anybody, and comes with the delivery that asks for it."""

    async def main() -> None:
        async with called() as caller:
            await caller.enqueue(b"a")
            delivery = (await caller.broker.Lease(broker.LeaseRequest(queue="orders"))).deliveries[0]
            write = broker.SetStateRequest(queue="orders", receipt=receipt(delivery), state=b"half")
            etag = (await caller.broker.SetState(write)).etag
            read = await caller.broker.GetState(broker.GetStateRequest(queue="orders", id=delivery.id))
            assert (read.state, read.etag) == (b"half", etag)
            assert (await refused(caller.broker.SetState(write))).code() == grpc.StatusCode.ABORTED
            nack = broker.NackRequest(queue="orders", receipts=[receipt(delivery)], intent="defer", delay_ms=0)
            await caller.broker.Nack(nack)
            lease = broker.LeaseRequest(queue="orders", wait_ms=10_000, with_state=True)
            assert (await caller.broker.Lease(lease)).deliveries[0].state == b"half"

    run(main())


def test_an_operator_has_all_verbs() -> None:
    """A queue is made, changed, paused, looked at, emptied and removed."""

    async def main() -> None:
        async with called() as caller:
            policy = admin.QueuePolicy(max_attempts=0, weights={"acme": 3}, fairness_key_from=["header:tenant"])
            await caller.admin.CreateQueue(admin.CreateQueueRequest(queue="jobs", policy=policy))
            update = admin.UpdateQueueRequest(queue="jobs", policy=admin.QueuePolicy(quantum=2), reset=["max_attempts"])
            await caller.admin.UpdateQueue(update)
            await caller.admin.PauseQueue(admin.PauseQueueRequest(queue="jobs", key=["acme", "web"]))
            view = await caller.admin.InspectQueue(admin.InspectQueueRequest(queue="jobs"))
            kept = view.policy
            assert (kept.max_attempts, kept.quantum, dict(kept.weights)) == (5, 2, {"acme": 3})
            assert list(kept.fairness_key_from) == ["header:tenant"]
            assert [list(key.names) for key in view.paused_keys] == [["acme", "web"]]
            await caller.admin.ResumeQueue(admin.ResumeQueueRequest(queue="jobs", key=["acme", "web"]))
            listed = (await caller.admin.ListQueues(admin.ListQueuesRequest())).queues
            assert {queue.name for queue in listed} >= {"jobs", "orders"}
            ids = await caller.enqueue(b"a", b"b", b"c")
            peek = admin.PeekRequest(queue="orders", count=2, with_body=True)
            peeked = (await caller.admin.Peek(peek)).messages
            assert [(message.id, message.payload, message.status) for message in peeked] == [
                (ids[0], b"a", "waiting"),
                (ids[1], b"b", "waiting"),
            ]
            got = await caller.admin.GetMessage(admin.GetMessageRequest(queue="orders", id=ids[2]))
            assert got.payload == b"c"
            explained = await caller.admin.Explain(admin.ExplainRequest(queue="orders", id=ids[0]))
            assert (explained.reason, bool(explained.words)) == ("no_consumer", True)
            cancelled = await caller.admin.Cancel(admin.CancelRequest(queue="orders", ids=[ids[0], "none"]))
            assert [result.HasField("error") for result in cancelled.results] == [False, True]
            assert (await caller.admin.PurgeQueue(admin.PurgeQueueRequest(queue="orders"))).count == 2
            await caller.admin.DeleteQueue(admin.DeleteQueueRequest(queue="jobs"))

    run(main())


def test_an_operator_sees_config_throttles_hooks_and_the_journal() -> None:
    """Values are set and removed together, scripts are tried, events are read and readers are known."""

    async def main() -> None:
        async with called() as caller:
            values = {"throttle:api:rate": "5", "a": "b"}
            await caller.admin.SetConfig(admin.SetConfigRequest(values=values))
            await caller.admin.SetConfig(admin.SetConfigRequest(remove=["a"]))
            listed = await caller.admin.ListConfig(admin.ListConfigRequest())
            assert dict(listed.values) == {"throttle:api:rate": "5"}
            throttle = (await caller.admin.ListThrottles(admin.ListThrottlesRequest())).throttles[0]
            assert (throttle.name, throttle.rate) == ("api", 5.0)
            script = "function on_enqueue(msg) return { fairness_key = 'x', weight = 2 } end"
            trial = await caller.admin.TryHook(admin.TryHookRequest(queue="orders", hook="on_enqueue", script=script))
            assert (list(trial.on_enqueue.fairness_key), trial.on_enqueue.weight) == (["x"], 2)
            script = "function on_failure(msg) return { action = 'dlq' } end"
            trial = await caller.admin.TryHook(admin.TryHookRequest(queue="orders", hook="on_failure", script=script))
            assert trial.on_failure.is_dead
            statistics = await caller.admin.HookStatistics(admin.HookStatisticsRequest(queue="orders"))
            assert statistics.is_open is False
            await caller.admin.SetReader(admin.SetReaderRequest(name="r", position=0))
            journal = await caller.admin.ReadJournal(admin.ReadJournalRequest(count=100))
            assert any('"kind":"config_set"' in event for event in journal.events)
            assert journal.position > 0
            assert [reader.name for reader in (await caller.admin.ListReaders(admin.ListReadersRequest())).readers] == [
                "r"
            ]
            await caller.admin.RemoveReader(admin.RemoveReaderRequest(name="r"))

    run(main())


def test_dead_letters_are_redriven() -> None:
    """A redrive is started, seen and found in the list."""

    async def main() -> None:
        async with called() as caller:
            await caller.enqueue(b"a")
            delivery = (await caller.broker.Lease(broker.LeaseRequest(queue="orders"))).deliveries[0]
            nack = broker.NackRequest(queue="orders", receipts=[receipt(delivery)], intent="dead", error="bad")
            await caller.broker.Nack(nack)
            peeked = await caller.admin.Peek(admin.PeekRequest(queue="orders.dlq"))
            assert (peeked.messages[0].dead.reason, peeked.messages[0].dead.origin) == ("requested", "orders")
            wanted = admin.DeadLetterFilter(error="bad")
            view = await caller.admin.Redrive(admin.RedriveRequest(queue="orders.dlq", wanted=wanted))
            seen = await caller.admin.GetRedrive(admin.GetRedriveRequest(id=view.id))
            assert (seen.id, seen.queue) == (view.id, "orders.dlq")
            assert len((await caller.admin.ListRedrives(admin.ListRedrivesRequest())).redrives) == 1
            assert (await caller.admin.StopRedrive(admin.StopRedriveRequest(id=view.id))).id == view.id
            none = admin.GetRedriveRequest(id="none")
            assert (await refused(caller.admin.GetRedrive(none))).code() == grpc.StatusCode.NOT_FOUND

    run(main())


# ------------------------------------------------------------------------------------------------------------- refusals

STATUSES = {
    "invalid_argument": "INVALID_ARGUMENT",
    "hook_invalid": "INVALID_ARGUMENT",
    "not_a_dlq": "INVALID_ARGUMENT",
    "payload_too_large": "INVALID_ARGUMENT",
    "unauthenticated": "UNAUTHENTICATED",
    "forbidden": "PERMISSION_DENIED",
    "queue_not_found": "NOT_FOUND",
    "message_not_found": "NOT_FOUND",
    "reader_not_found": "NOT_FOUND",
    "redrive_not_found": "NOT_FOUND",
    "route_not_found": "NOT_FOUND",
    "queue_exists": "ALREADY_EXISTS",
    "lease_mismatch": "ABORTED",
    "state_mismatch": "ABORTED",
    "not_pending": "FAILED_PRECONDITION",
    "journal_trimmed": "OUT_OF_RANGE",
    "key_full": "RESOURCE_EXHAUSTED",
    "queue_full": "RESOURCE_EXHAUSTED",
    "global_full": "RESOURCE_EXHAUSTED",
    "too_many_waiters": "RESOURCE_EXHAUSTED",
    "consumer_not_found": "NOT_FOUND",
    "claim_not_found": "NOT_FOUND",
    "consumer_fenced": "ABORTED",
    "sink_not_found": "NOT_FOUND",
    "stage_mismatch": "ABORTED",
    "wrong_event_loop": "INTERNAL",
    "internal": "INTERNAL",
}
KINDS: dict[str, type[FairleadError]] = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, FairleadError) and "code" in vars(kind)
}


@pytest.mark.parametrize("code", HTTP_STATUS)
def test_every_error_has_its_status(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a verb is refused with arrives with its status, code, cause and remedy."""

    async def main() -> None:
        async with called() as caller:

            async def refuse(*_: object) -> None:
                raise KINDS[code]("It is só.")

            monkeypatch.setattr(caller.house.doors, "call", refuse)
            error = await refused(caller.admin.ListQueues(admin.ListQueuesRequest()))
            assert error.code().name == STATUSES.get(code, "UNAVAILABLE")
            fields = trailing(error)
            told = types_pb2.Error.FromString(fields["fairlead-error-bin"])
            remedy = KINDS[code].remedy
            assert (told.code, told.cause, told.remedy) == (code, "It is só.", remedy)
            assert (fields["fairlead-code"], fields["fairlead-remedy"]) == (code, remedy)
            assert error.details() == f"It is só. {remedy}"

    run(main())


def test_when_to_come_back_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal that time mends says how much of it."""

    async def main() -> None:
        async with called() as caller:

            async def refuse(*_: object) -> None:
                raise QueueFull("It is full.", retry_after_ms=250)

            monkeypatch.setattr(caller.house.doors, "call", refuse)
            fields = trailing(await refused(caller.admin.ListQueues(admin.ListQueuesRequest())))
            assert fields["fairlead-retry-after-ms"] == "250"
            assert types_pb2.Error.FromString(fields["fairlead-error-bin"]).retry_after_ms == 250

    run(main())


def test_a_full_queue_says_so_for_each_message() -> None:
    """The call succeeds, and the message that has no room has an error with a time to come back."""

    async def main() -> None:
        async with called() as caller:
            await caller.house.broker.create_queue("small", policy=QueuePolicy(waiting_max=1))
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
        (lambda c: c.broker.Lease(broker.LeaseRequest(queue="orders", wait_ms=NONE)), "invalid_argument"),
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
        (lambda c: c.raw("/fairlead.v1.Broker/Lease", b"\xff\xff\xff"), "invalid_argument"),
        (lambda c: c.raw("/fairlead.v1.Broker/Enqueue", b"\x0a\x02\xff\xfe"), "invalid_argument"),
        (lambda c: c.raw("/fairlead.v1.Broker/Lease", b"\x0a\x06orders\xf8\x07\x01"), "invalid_argument"),
        (lambda c: c.raw("/fairlead.v1.Broker/Enqueue", b"\x0a\x06orders\x12\x03\xf8\x07\x01"), "invalid_argument"),
    ],
)
def test_what_makes_no_sense_is_refused(call: Callable[[Caller], Any], code: str | None) -> None:
    """Wrong values, bytes that are no message, and fields that nobody knows, also deep inside."""

    async def main() -> None:
        async with called() as caller:
            if code is None:
                await call(caller)
                return
            assert trailing(await refused(call(caller)))["fairlead-code"] == code
            assert await caller.enqueue(b"goes on")

    run(main())


def test_a_message_written_in_another_way_is_read() -> None:
    """A default that is written out makes a request longer but no less known."""

    async def main() -> None:
        async with called() as caller:
            data = b"\x0a\x06orders\x18\x00"
            assert broker.LeaseRequest.FromString(data) == broker.LeaseRequest(queue="orders")
            assert await caller.raw("/fairlead.v1.Broker/Lease", data) == b""

    run(main())


def test_a_method_that_is_not_there_is_not_implemented() -> None:
    """Nobody answers for it."""

    async def main() -> None:
        async with called() as caller:
            error = await refused(caller.raw("/fairlead.v1.Broker/Nothing", b""))
            assert error.code() == grpc.StatusCode.UNIMPLEMENTED

    run(main())


def test_a_request_that_is_too_large_is_not_taken() -> None:
    """The limit on bodies is that of all doors."""

    async def main() -> None:
        async with called(limits=DoorLimits(body_bytes_max=1000)) as caller:
            request = broker.EnqueueRequest(queue="orders")
            request.messages.add(payload=b"x" * 2000)
            assert (await refused(caller.broker.Enqueue(request))).code() == grpc.StatusCode.RESOURCE_EXHAUSTED

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

            monkeypatch.setattr(caller.house.doors, "call", fail)
            error = await refused(caller.admin.ListQueues(admin.ListQueuesRequest()))
            assert error.code() == grpc.StatusCode.INTERNAL
            assert "secret" not in (error.details() or "")

    run(main())


# ------------------------------------------------------------------------------------------ keys, correlation, draining


def test_a_key_is_asked_for_and_its_rights_hold() -> None:
    """None, a bad one, one without the right and a good one."""

    async def main() -> None:
        async with called(asks_for_keys=True) as caller:
            key = await caller.house.key(Grant(right="consume", queues="orders"))
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
    """It is on the message, on the answer, on the lease of it, and on a refusal; a bad one is refused."""

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
            bad = (("x-correlation-id", "x" * 129),)
            error = await refused(caller.broker.Lease(broker.LeaseRequest(queue="orders"), metadata=bad))
            assert trailing(error)["fairlead-code"] == "invalid_argument"

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
            caller.house.doors.draining.set()
            assert (await watching.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
            watching.cancel()
            error = await refused(caller.broker.Enqueue(broker.EnqueueRequest(queue="orders")))
            assert (error.code(), trailing(error)["fairlead-code"]) == (grpc.StatusCode.UNAVAILABLE, "closed")
            acked = await caller.broker.Ack(broker.AckRequest(queue="orders", receipts=[receipt(delivery)]))
            assert not acked.results[0].HasField("error")

    run(main())


def test_a_lease_that_is_called_off_takes_nothing() -> None:
    """Who waits and gives up leaves the message to the next."""

    async def main() -> None:
        async with called() as caller:
            waiting = caller.broker.Lease(broker.LeaseRequest(queue="orders", wait_ms=60_000))
            while not (await caller.house.broker.queue("orders")).waiters:
                pass
            waiting.cancel()
            while any(not waiter.reply.done() for waiter in _waiters(caller)):
                await caller.house.broker.queue("orders")
            await caller.enqueue(b"a")
            lease = broker.LeaseRequest(queue="orders", wait_ms=10_000)
            assert (await caller.broker.Lease(lease)).deliveries[0].attempt == 1

    run(main())


def _waiters(caller: Caller) -> list[Any]:
    line = caller.house.broker._engine.dispatcher._lines.get("orders", ())
    return list(line)


# ------------------------------------------------------------------------------------------------ health and reflection


def test_health_is_told_without_a_key() -> None:
    """The server and each service are well; of others nothing is known."""

    async def main() -> None:
        async with called(asks_for_keys=True) as caller:
            health = stub(health_pb2_grpc.HealthStub, caller.channel)
            for name in ("", *SERVICES):
                answer = await health.Check(health_pb2.HealthCheckRequest(service=name))
                assert answer.status == health_pb2.HealthCheckResponse.SERVING
            error = await refused(health.Check(health_pb2.HealthCheckRequest(service="none")))
            assert error.code() == grpc.StatusCode.NOT_FOUND

    run(main())


async def reflected(channel: grpc.aio.Channel, **request: str) -> Any:
    """Ask the reflection service one thing."""
    call = stub(reflection_pb2_grpc.ServerReflectionStub, channel).ServerReflectionInfo()
    asked: Any = reflection_pb2.ServerReflectionRequest
    await call.write(asked(**request))
    await call.done_writing()
    return await call.read()


def test_a_client_that_knows_nothing_can_call() -> None:
    """As grpcurl does: list the services, ask for their files, build the messages, call."""

    async def main() -> None:
        async with called() as caller:
            await caller.enqueue(b"a", b"b")
            listed = await reflected(caller.channel, list_services="")
            names = {service.name for service in listed.list_services_response.service}
            assert names >= {*SERVICES, "grpc.health.v1.Health"}
            found = await reflected(caller.channel, file_containing_symbol="fairlead.v1.Admin")
            pool = DescriptorPool()
            files = [
                descriptor_pb2.FileDescriptorProto.FromString(data)
                for data in found.file_descriptor_response.file_descriptor_proto
            ]
            missing = {name for file in files for name in file.dependency} - {file.name for file in files}
            for name in missing:
                more = await reflected(caller.channel, file_by_filename=name)
                data = more.file_descriptor_response.file_descriptor_proto[0]
                files.insert(0, descriptor_pb2.FileDescriptorProto.FromString(data))
            for file in sorted(files, key=lambda file: len(file.dependency)):
                pool.Add(file)
            method = pool.FindServiceByName("fairlead.v1.Admin").FindMethodByName("Stats")
            request: Any = GetMessageClass(method.input_type)()
            request.queue = "orders"
            data = await caller.raw("/fairlead.v1.Admin/Stats", request.SerializeToString())
            answer: Any = GetMessageClass(method.output_type).FromString(data)
            assert answer.waiting == 2

    run(main())


def test_a_port_that_is_taken_is_refused() -> None:
    """Two servers never share a port without knowing."""

    async def main() -> None:
        async with opened() as house:
            one, other = GrpcDoor(house.doors), GrpcDoor(house.doors)
            port = one.listen("127.0.0.1:0")
            await one.start()
            with pytest.raises(errors.InvalidArgument, match=str(port)):
                other.listen(f"127.0.0.1:{port}")
            await one.stop()
            await other.stop()

    run(main())


def test_what_was_leased_for_nobody_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that can't be sent any more gives its messages to the next, and no attempt is counted as failed."""

    async def main() -> None:
        async with called() as caller:
            await caller.house.broker.enqueue_many("orders", [NewMessage(payload=b"a")])

            def fail(*_: object) -> None:
                raise ConnectionError("gone")

            with monkeypatch.context() as patch:
                patch.setattr("fairlead.server.grpc_calls._encoded", fail)
                await refused(caller.broker.Lease(broker.LeaseRequest(queue="orders")))
            again = await caller.broker.Lease(broker.LeaseRequest(queue="orders", wait_ms=10_000))
            assert again.deliveries[0].failures == 0

    run(main())


@pytest.mark.parametrize("port", [-1, 65_536])
def test_a_port_that_is_none_is_refused(port: int) -> None:
    """Settings say what is wrong before anything is opened."""
    with pytest.raises(errors.InvalidArgument, match="A port is a number"):
        check(ServerSettings(grpc_port=port))


def test_a_port_comes_from_everywhere_and_by_default_there_is_none() -> None:
    """Nobody who does without gRPC needs grpcio."""
    assert load(None, {}, {}).grpc_port is None
    assert load("grpc_port = 1", {}, {}).grpc_port == 1
    assert load("grpc_port = 1", {"FAIRLEAD_GRPC_PORT": "2"}, {}).grpc_port == 2
    assert load(None, {"FAIRLEAD_GRPC_PORT": "2"}, {"grpc_port": "3"}).grpc_port == 3


def test_without_grpcio_it_is_told_what_to_install() -> None:
    """The door says which packages it needs."""
    script = "import sys; sys.modules['grpc'] = None; import fairlead.server.grpc_door"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "install fairlead[grpc]" in result.stderr
