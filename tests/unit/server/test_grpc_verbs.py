"""The gRPC interface on a real connection: every verb, with what is asked and answered."""

from __future__ import annotations

import grpc

from fairlane.verbs.table import METHODS, VERBS
from fairlane.wire.grpc import admin_pb2 as admin
from fairlane.wire.grpc import broker_pb2 as broker
from fairlane.wire.grpc import types_pb2
from tests.unit.server.grpc_client import called, receipt, refused
from tests.unit.server.local_server import run


def test_every_verb_has_a_method() -> None:
    """What can be asked over HTTP can be asked over gRPC."""
    assert {verb.name for verb in METHODS.values()} == set(VERBS)


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
            assert (await caller.admin.GetStats(admin.GetStatsRequest(queue="orders"))).waiting == 0

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
            await caller.server.broker.create_queue("next")
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
            wanted = admin.QueuePolicy(max_attempts=9, fairness_key_from=["header:tenant"])
            ensured = await caller.admin.EnsureQueue(admin.EnsureQueueRequest(queue="jobs", policy=wanted))
            assert (ensured.is_created, list(ensured.differing)) == (False, ["max_attempts"])
            assert ensured.policy.weights == {"acme": 3}
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
            change = admin.SetConfigRequest(remove=["throttle:api:rate"], reason="test", expire_after_ms=60_000)
            await caller.admin.SetConfig(change)
            listed = await caller.admin.ListConfig(admin.ListConfigRequest())
            assert [(one.key, one.before, one.reason) for one in listed.temporary] == [
                ("throttle:api:rate", "5", "test")
            ]
            await caller.admin.SetConfig(admin.SetConfigRequest(values={"throttle:api:rate": "5"}))
            throttle = (await caller.admin.ListThrottles(admin.ListThrottlesRequest())).throttles[0]
            assert (throttle.name, throttle.rate) == ("api", 5.0)
            script = "function on_enqueue(msg) return { fairness_key = 'x', weight = 2 } end"
            trial = await caller.admin.TryHook(admin.TryHookRequest(queue="orders", hook="on_enqueue", script=script))
            assert (list(trial.on_enqueue.fairness_key), trial.on_enqueue.weight) == (["x"], 2)
            script = "function on_failure(msg) return { action = 'dlq' } end"
            trial = await caller.admin.TryHook(admin.TryHookRequest(queue="orders", hook="on_failure", script=script))
            assert trial.on_failure.is_dead
            statistics = await caller.admin.GetHookStatistics(admin.GetHookStatisticsRequest(queue="orders"))
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
