"""The contract of a client on work in batches: registered consumers with their claims, and sinks."""

from __future__ import annotations

from fairlane.client import AsyncClient, NewMessage
from fairlane.errors import (
    ClaimNotFound,
    ConsumerFenced,
    ConsumerNotFound,
    InvalidArgument,
    QueueFull,
    SinkNotFound,
    StageMismatch,
)
from tests.kit.transports.contract import TransportContract, check_refused, check_same


class BatchContract(TransportContract):
    """What is done batch by batch, and can be repeated. Each test has its own empty server."""

    def test_a_claim_lives_from_one_call_to_the_next(self) -> None:
        """A claim is read twice alike, in part and as a whole, and gone with the next that says it is done."""

        async def scenario(client: AsyncClient) -> None:
            await client.enqueue_many("jobs", [NewMessage(payload=b"%d" % at, headers={"a": "ä"}) for at in range(5)])
            view = await client.register_consumer("jobs", "etl", idle_ms=60_000)
            check_same((view.claimed, view.done, view.idle_ms), (0, 0, 60_000), "consumer")
            claim = await client.claim("jobs", "etl", epoch=view.epoch, done=0, count=3)
            check_same((claim.number, claim.count, claim.size_bytes), (1, 3, 3), "claim")
            whole = await client.read_claim("jobs", "etl", claim=1)
            check_same([one.payload for one in whole.deliveries], [b"0", b"1", b"2"], "messages")
            part = await client.read_claim("jobs", "etl", claim=1, start=1, count=1)
            check_same((part.deliveries, part.total), (whole.deliveries[1:2], 3), "part")
            check_same(await client.claim("jobs", "etl", epoch=view.epoch, done=0), claim, "claim as repeated")
            check_same((await client.claim("jobs", "etl", epoch=view.epoch, done=1)).count, 2, "the next")
            await check_refused(ClaimNotFound, client.read_claim("jobs", "etl", claim=1))
            check_same((await client.queue("jobs")).claimed, 2, "claimed")

        self.run(scenario)

    def test_a_consumer_is_fenced_and_released(self) -> None:
        """An old epoch and an unknown name are refused, and a release gives back what was claimed."""

        async def scenario(client: AsyncClient) -> None:
            await client.enqueue("jobs", b"x")
            old = await client.register_consumer("jobs", "etl")
            new = await client.register_consumer("jobs", "etl")
            await check_refused(ConsumerFenced, client.claim("jobs", "etl", epoch=old.epoch, done=0))
            await check_refused(ConsumerNotFound, client.claim("jobs", "none", epoch=1, done=0))
            await check_refused(InvalidArgument, client.claim("jobs", "etl", epoch=new.epoch, done=1))
            check_same((await client.claim("jobs", "etl", epoch=new.epoch, done=0)).count, 1, "claim")
            (view,) = await client.consumers("jobs")
            check_same((view.name, view.epoch, view.open_messages), ("etl", new.epoch, 1), "consumer")
            check_same(await client.release_consumer("jobs", "etl"), 1, "given back")
            (message,) = await client.lease("jobs")
            check_same((message.failures, await client.consumers("jobs")), (0, []), "failures, and consumers left")

        self.run(scenario)

    def test_a_message_of_a_claim_is_settled_on_its_own(self) -> None:
        """A poisonous message goes to the dead letters, and the end of its claim acks the others only."""

        async def scenario(client: AsyncClient) -> None:
            await client.enqueue_many("jobs", [NewMessage(payload=b"good"), NewMessage(payload=b"poison")])
            epoch = (await client.register_consumer("jobs", "etl")).epoch
            await client.claim("jobs", "etl", epoch=epoch, done=0)
            good, poison = (await client.read_claim("jobs", "etl", claim=1)).deliveries
            await client.nack(poison, intent="dead", error="can't be parsed")
            check_same((await client.read_claim("jobs", "etl", claim=1)).deliveries, [good], "what is left of it")
            await client.claim("jobs", "etl", epoch=epoch, done=1)
            check_same([view.id for view in await client.peek("jobs.dlq")], [poison.id], "dead letters")
            check_same((await client.queue("jobs")).leased, 0, "leased")

        self.run(scenario)

    def test_a_batch_is_published_once(self) -> None:
        """What is staged, some of it twice, is in the queue once published, once; the rest is dropped."""

        async def scenario(client: AsyncClient) -> None:
            news = [NewMessage(payload=b"%d" % at, headers={"a": "ä"}) for at in range(3)]
            for at, messages in ((0, news[:2]), (0, news[:2]), (2, news[2:])):
                staged = await client.stage("jobs", "out", batch=0, part="t1", at=at, messages=messages)
            check_same(staged.count, 3, "staged")
            await client.stage("jobs", "out", batch=0, part="t1-failed", at=0, messages=news)
            check_same((await client.lease("jobs"), (await client.queue("jobs")).staged), ([], 6), "before")
            published = await client.publish("jobs", "out", batch=0, parts=["t1"])
            check_same((published.count, published.was_published), (3, False), "published")
            again = await client.publish("jobs", "out", batch=0, parts=["t1"])
            check_same((again.count, again.was_published), (3, True), "published again")
            payloads = [message.payload for message in await client.lease("jobs", 10)]
            check_same(payloads, [b"0", b"1", b"2"], "payloads")
            (view,) = await client.sinks("jobs")
            check_same((view.name, view.batch, view.staged_messages), ("out", 0, 0), "sink")

        self.run(scenario)

    def test_a_sink_refuses_what_does_not_fit(self) -> None:
        """A gap, a missing part, an invalid message, a full queue and what no queue could hold raise an error each."""

        async def scenario(client: AsyncClient) -> None:
            await client.create_queue("small", {"waiting_max": 1})
            await client.enqueue("small", b"full")
            sound, unsound = NewMessage(payload=b"x"), NewMessage(cost=-1)
            for kind, queue, at, messages in (
                (StageMismatch, "jobs", 5, [sound]),
                (InvalidArgument, "jobs", 0, [sound, unsound]),
                (QueueFull, "small", 0, [sound]),
                (InvalidArgument, "small", 0, [sound, sound]),
            ):
                stage = client.stage(queue, "out", batch=1, part="p", at=at, messages=messages, wait_ms=0)
                await check_refused(kind, stage)
            await check_refused(StageMismatch, client.publish("jobs", "out", batch=1, parts=["p"]))
            await check_refused(SinkNotFound, client.drop_sink("jobs", "out"))
            await client.stage("jobs", "out", batch=1, part="p", at=0, messages=[sound])
            check_same(await client.drop_sink("jobs", "out"), 1, "dropped")
            check_same(await client.sinks("jobs"), [], "sinks")

        self.run(scenario)
