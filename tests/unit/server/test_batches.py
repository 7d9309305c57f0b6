"""Claims and sinks through the interfaces: as JSON over HTTP, as messages over gRPC, and when the server shuts down."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from fairlane.model.message import NEVER_MS, NewMessage
from fairlane.server.shutdown import settled
from fairlane.verbs.keys import Grant
from fairlane.wire.grpc import batches_pb2 as batches
from fairlane.wire.grpc import batches_pb2_grpc
from tests.kit.waiting import PATIENCE_S
from tests.unit.server.grpc_client import called, refused, stub, trailing
from tests.unit.server.local_server import opened, run


def test_a_claim_over_http() -> None:
    """Register, claim, read and release in JSON; the message of a claim takes the correlation id of its enqueue."""

    async def main() -> None:
        async with opened() as server:
            sent = {"queue": "orders", "messages": [{"payload": "eA=="}]}
            await server.post("queue/enqueue", sent, x_correlation_id="c-1")
            named = {"queue": "orders", "consumer": "etl"}
            view = (await server.post("queue/consumer/register", named)).json()
            claim = (await server.post("queue/consumer/claim", {**named, "epoch": view["epoch"], "done": 0})).json()
            assert claim == {"number": 1, "count": 1, "size_bytes": 1}
            found = (await server.post("queue/consumer/read", {**named, "claim": 1})).json()
            (delivery,) = found["deliveries"]
            assert (delivery["payload"], delivery["correlation_id"], found["total"]) == ("eA==", "c-1", 1)
            fenced = await server.post("queue/consumer/claim", {**named, "epoch": 1, "done": 0})
            assert (fenced.status_code, fenced.json()["error"]["code"]) == (409, "consumer_fenced")
            unknown = await server.post("queue/consumer/read", {**named, "claim": 9})
            assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "claim_not_found")
            assert (await server.post("queue/consumer/release", named)).json() == {"count": 1}

    run(main())


def test_a_batch_over_http() -> None:
    """Stage and publish in JSON; each message takes the correlation id of its request."""

    async def main() -> None:
        async with opened() as server:
            part = {"queue": "orders", "sink": "s", "batch": 0, "part": "p", "at": 0, "messages": [{}], "wait_ms": 100}
            staged = await server.post("queue/sink/stage", part, x_correlation_id="c-2")
            assert staged.json() == {"count": 1}
            mismatch = await server.post("queue/sink/stage", {**part, "at": 5})
            assert (mismatch.status_code, mismatch.json()["error"]["code"]) == (409, "stage_mismatch")
            answer = await server.post(
                "queue/sink/publish", {"queue": "orders", "sink": "s", "batch": 0, "parts": ["p"]}
            )
            assert answer.json() == {"count": 1, "was_published": False}
            (delivery,) = await server.broker.lease("orders")
            assert delivery.correlation_id == "c-2"

    run(main())


def test_a_producer_of_some_keys_stages_for_these_only() -> None:
    """The right to produce for fairness keys counts for what is staged as for what is enqueued."""

    async def main() -> None:
        async with opened(requires_auth=True) as server:
            key = await server.key(Grant(right="produce", keys=("acme",), sinks=("s",)))
            part = {"queue": "orders", "sink": "s", "batch": 0, "part": "p", "at": 0}
            for tenant, status in (("acme", 200), ("other", 403)):
                body = {**part, "part": tenant, "messages": [{"fairness_key": tenant}]}
                assert (await server.post("queue/sink/stage", body, key=key)).status_code == status

    run(main())


def test_batches_over_grpc() -> None:
    """Every method of the service does what its verb does, zeros included."""

    async def main() -> None:
        async with called() as caller:
            service = stub(batches_pb2_grpc.BatchesStub, caller.channel)
            stage = batches.StageRequest(queue="orders", sink="s", batch=0, part="p", at=0)
            stage.messages.add(payload=b"1", fairness_key=["acme", "web"])
            assert (await service.Stage(stage)).count == 1
            (sink,) = (await service.ListSinks(batches.ListSinksRequest(queue="orders"))).sinks
            assert (sink.name, sink.HasField("batch"), sink.staged_messages) == ("s", False, 1)
            publish = batches.PublishRequest(queue="orders", sink="s", batch=0, parts=["p"])
            assert (await service.Publish(publish)).count == 1
            named: dict[str, Any] = {"queue": "orders", "consumer": "etl"}
            view = await service.RegisterConsumer(batches.RegisterConsumerRequest(**named, idle_ms=60_000))
            claim = await service.MakeClaim(batches.MakeClaimRequest(**named, epoch=view.epoch, done=0))
            assert (claim.number, claim.count, claim.size_bytes) == (1, 1, 1)
            found = await service.ReadClaim(batches.ReadClaimRequest(**named, claim=1))
            (delivery,) = found.deliveries
            assert (delivery.payload, list(delivery.fairness_key), delivery.expires_ms) == (
                b"1",
                ["acme", "web"],
                NEVER_MS,
            )
            (known,) = (await service.ListConsumers(batches.ListConsumersRequest(queue="orders"))).consumers
            assert (known.open_messages, known.idle_ms) == (1, 60_000)
            assert (await service.ReleaseConsumer(batches.ReleaseConsumerRequest(**named))).count == 1
            assert (await service.DropSink(batches.DropSinkRequest(queue="orders", sink="s"))).count == 0
            error = await refused(service.MakeClaim(batches.MakeClaimRequest(**named, epoch=view.epoch)))
            assert trailing(error)["fairlane-code"] == "invalid_argument"

    run(main())


def test_a_server_that_goes_down_waits_for_no_claim() -> None:
    """New claims and stagings are refused, what has begun may be published, and nobody waits for what is claimed."""

    async def main() -> None:
        async with opened() as server:
            broker = server.broker
            await broker.enqueue("orders", b"x")
            epoch = (await broker.register_consumer("orders", "etl")).epoch
            await broker.claim("orders", "etl", epoch=epoch, done=0)
            await broker.stage("orders", "s", batch=0, part="p", at=0, messages=[NewMessage()])
            server.context.draining.set()
            async with asyncio.timeout(PATIENCE_S):
                await settled(server.context, quiet_s=3_600)
            claim = {"queue": "orders", "consumer": "etl", "epoch": epoch, "done": 0}
            assert (await server.post("queue/consumer/claim", claim)).status_code == 503
            publish = {"queue": "orders", "sink": "s", "batch": 0, "parts": ["p"]}
            assert msgspec.json.decode((await server.post("queue/sink/publish", publish)).content)["count"] == 1

    run(main())
