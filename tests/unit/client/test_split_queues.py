"""A queue that is split is used by its plain name as before: calls go to its partitions, wherever these are."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlane.client import AsyncClient, Client, NewMessage, Retries
from fairlane.client.transport.http import HttpTransport
from fairlane.errors import FairlaneError, InvalidArgument, QueueMoving, QueueNotFound, QueuesApart, QueueSplit
from fairlane.model.partitions import partition_of_id, partition_of_key, served_name
from fairlane.model.policy import QueuePolicy
from tests.kit.waiting import until, until_answered
from tests.unit.cluster.in_process import Cluster

from .splitting import QUICK, TENANTS, addresses, calls, messages, numbers, of_partition, run, send_away, split


def test_a_batch_goes_to_the_partitions_of_its_keys_and_its_answer_keeps_the_order() -> None:
    """Each message of a batch is in the partition of its key, and its id comes at its place in the batch."""

    async def scenario(cluster: Cluster, client: AsyncClient) -> None:
        ids = await client.enqueue_many("orders", messages(48))
        for number, message_id in enumerate(ids):
            assert isinstance(message_id, str)
            assert partition_of_id(message_id) == partition_of_key(TENANTS[number % 12], 4)
            assert (await client.get("orders", message_id)).payload == b"%d" % number
        before = calls(cluster, "enqueue")
        await client.enqueue_many("orders", messages(48))
        assert calls(cluster, "enqueue") == before + 4

    run(scenario)


def test_what_is_enqueued_and_acked_one_by_one_is_gathered_by_partition() -> None:
    """Many tasks that enqueue and ack one message each cost a few calls, and each message is done."""

    async def scenario(cluster: Cluster, client: AsyncClient) -> None:
        await client.enqueue_many("orders", messages(12))
        before = calls(cluster, "enqueue")
        ids = await asyncio.gather(*(client.enqueue("orders", message) for message in messages(120)))
        assert len(set(ids)) == 120
        assert calls(cluster, "enqueue") == before + 4
        held = [message for _ in range(4) for message in await client.lease("orders", 1_000)]
        assert {message.queue for message in held} == {"orders"}
        assert len(held) == 132
        await asyncio.gather(*(message.ack() for message in held[:66]))
        for message in held[66:]:
            message.ack_soon()
        assert await client.flush() == []
        assert await client.lease("orders", 1_000) == []
        assert calls(cluster, "ack") <= 10

    run(scenario)


def test_leased_messages_are_settled_where_they_are() -> None:
    """Acks, nacks and extensions of one call go to several partitions, and each item gets its own result."""

    async def scenario(_: Cluster, client: AsyncClient) -> None:
        await client.enqueue_many("orders", messages(36))
        held = [message for _ in range(4) for message in await client.lease("orders", 100)]
        assert len(held) == 36
        ends = await client.extend_many("orders", held, visibility_ms=60_000)
        assert all(isinstance(end, int) for end in ends)
        assert await client.ack_many("orders", held[:12]) == [None] * 12
        assert await client.nack_many("orders", held[12:], intent="defer", delay_ms=0) == ["waiting"] * 24
        again = await client.ack_many("orders", held)
        assert {type(error).__name__ for error in again[:12]} == {"MessageNotFound"}
        assert all(isinstance(error, FairlaneError) for error in again)
        left = [message for _ in range(4) for message in await client.lease("orders", 100)]
        assert numbers([message.payload for message in left]) == numbers([message.payload for message in held[12:]])

    run(scenario)


def test_a_lease_waits_for_whichever_partition_gets_something() -> None:
    """A lease that waits gets the message that comes, whatever its key, under the plain name."""

    async def scenario(_: Cluster, client: AsyncClient) -> None:
        for tenant in TENANTS[:6]:
            waiting = asyncio.ensure_future(client.lease("orders", 10, wait_ms=20_000))
            await asyncio.sleep(0)
            await client.enqueue("orders", b"x", fairness_key=tenant)
            [message] = await waiting
            assert (message.queue, message.fairness_key) == ("orders", tenant)
            await message.ack()

    run(scenario)


def test_a_lease_that_nobody_waits_for_any_more_is_given_back() -> None:
    """What comes to a cancelled lease waits again at once, as no failed attempt, in whichever partition it is."""

    async def scenario(cluster: Cluster, client: AsyncClient) -> None:
        for tenant in TENANTS[:6]:
            before = calls(cluster, "lease")
            waiting = asyncio.ensure_future(client.lease("orders", 10, wait_ms=20_000))
            await until(lambda seen=before: calls(cluster, "lease") > seen, "a node waits")  # type: ignore[misc] # bound now
            waiting.cancel()
            await asyncio.wait([waiting])
            await client.enqueue("orders", b"x", fairness_key=tenant)
            [held] = await client.lease("orders", 1, wait_ms=10_000)  # a node gives it back first
            assert (held.fairness_key, held.failures) == (tenant, 0)
            await held.ack()

    run(scenario)


def test_all_partitions_are_asked_in_turn() -> None:
    """Leases of one message each come from all partitions in turn, not from the first until it is empty."""

    async def scenario(_: Cluster, client: AsyncClient) -> None:
        ids = await client.enqueue_many("orders", messages(48))
        assert {partition_of_id(str(message_id)) for message_id in ids} == {0, 1, 2, 3}
        await client.ack((await client.lease("orders", 1))[0])  # by now it knows of the split
        seen = [partition_of_id((await client.lease("orders", 1))[0].id) for _ in range(8)]
        assert sorted(seen) == [0, 0, 1, 1, 2, 2, 3, 3]

    run(scenario)


def test_a_producer_knows_nothing_of_partitions() -> None:
    """All that a buffered producer sends while its queue is split is there, each message once."""

    async def scenario(cluster: Cluster, client: AsyncClient) -> None:
        async with client.producer("orders", batch=10, linger_ms=1) as producer:
            for message in messages(600):
                await producer.send(message)
                if message.payload == b"300":
                    await split(cluster, client, 3)
        payloads = []
        while held := await client.lease("orders", 1_000):
            payloads += [message.payload for message in held]
            await client.ack_many("orders", held)
        assert numbers(payloads) == list(range(600))

    run(scenario, partitions=1)


def test_messages_of_one_key_stay_in_order() -> None:
    """What is sent one after the other with one key, without waiting for answers, is leased in that order."""

    async def scenario(_: Cluster, client: AsyncClient) -> None:
        await client.enqueue("orders", b"0", fairness_key="acme")
        sent = []
        for number in range(1, 300):
            sent.append(asyncio.ensure_future(client.enqueue("orders", b"%d" % number, fairness_key="acme")))
            await asyncio.sleep(0)
        await asyncio.gather(*sent)
        held = []
        while some := await client.lease("orders", 1_000):
            held += some
        assert [int(message.payload) for message in held] == list(range(300))

    run(scenario)


def test_a_queue_whose_policy_finds_the_keys_is_left_to_the_nodes() -> None:
    """If the producer cannot know the key, messages still reach their partition and are consumed."""

    async def scenario(_: Cluster, client: AsyncClient) -> None:
        sent = [NewMessage(payload=b"x", headers={"tenant": tenant}) for tenant in TENANTS]
        for _again in range(2):
            ids = await client.enqueue_many("orders", sent)
            assert [partition_of_id(str(one)) for one in ids] == [partition_of_key(tenant, 4) for tenant in TENANTS]
            held = [message for _ in range(4) for message in await client.lease("orders", 100)]
            assert sorted(str(message.fairness_key) for message in held) == sorted(TENANTS)
            assert await client.ack_many("orders", held) == [None] * 12

    run(scenario, policy=QueuePolicy(fairness_key_from="header:tenant"))


def test_dead_letters_of_all_partitions_are_leased_together() -> None:
    """A dead letter is leased, named and acked under the plain name, whichever partition it died in."""

    async def scenario(_: Cluster, client: AsyncClient) -> None:
        await client.enqueue_many("orders", messages(12))
        held = [message for _ in range(4) for message in await client.lease("orders", 100)]
        await client.nack_many("orders", held, intent="dead", error="no")
        dead = [message for _ in range(4) for message in await client.lease("orders.dlq", 100)]
        assert numbers([message.payload for message in dead]) == list(range(12))
        assert {(message.queue, message.dead.origin) for message in dead if message.dead} == {("orders.dlq", "orders")}
        for message in dead:
            await message.ack()
        assert await client.lease("orders.dlq", 100) == []

    run(scenario)


def test_a_partition_that_moves_holds_up_only_its_own_messages() -> None:
    """A batch for a partition without an owner is enqueued once, when it has one; others continue."""

    async def scenario(cluster: Cluster, client: AsyncClient) -> None:
        await client.enqueue_many("orders", messages(12))
        await (await client.lease("orders", 1))[0].ack()
        await send_away(cluster, "orders~1")
        late, prompt = of_partition(1), of_partition(2)
        batch = [
            NewMessage(payload=b"%d" % (number + 100), fairness_key=(late, prompt)[number % 2]) for number in range(10)
        ]
        enqueuing = asyncio.ensure_future(client.enqueue_many("orders", batch))
        await client.enqueue("orders", b"200", fairness_key=prompt)
        assert not enqueuing.done()
        cluster.shelves.failing.clear()
        ids = await enqueuing
        assert [partition_of_id(str(one)) for one in ids] == [1, 2] * 5
        payloads = []
        while held := await client.lease("orders", 100):
            payloads += [message.payload for message in held]
        assert numbers(payloads)[-11:] == [*range(100, 110), 200]
        assert len(payloads) == 11 + 11

    run(scenario)


def test_one_bad_message_is_refused_alone() -> None:
    """A message that no server takes does not stand in the way of others in its partition, nor of other partitions."""

    async def scenario(_: Cluster, client: AsyncClient) -> None:
        await client.enqueue_many("orders", messages(12))
        bad: Any = NewMessage(payload=b"bad", fairness_key=TENANTS[0], priority="urgent")  # type: ignore[arg-type]
        results = await client.enqueue_many("orders", [*messages(24), bad])
        assert [isinstance(result, str) for result in results] == [True] * 24 + [False]
        assert isinstance(results[24], InvalidArgument)

    run(scenario)


def test_a_client_that_knows_an_old_split_goes_on() -> None:
    """When partitions are gone, what would have gone there goes elsewhere, and nothing is refused."""

    async def scenario(cluster: Cluster, client: AsyncClient) -> None:
        async with AsyncClient(addresses(cluster), retries=QUICK) as other:
            await client.enqueue_many("orders", messages(12))
            while held := await client.lease("orders", 100):
                await client.ack_many("orders", held)
            await split(cluster, other, 2)
            ids = await client.enqueue_many("orders", messages(12))
            assert {partition_of_id(str(one)) for one in ids} == {0, 1}
            one_by_one = await asyncio.gather(*(client.enqueue("orders", message) for message in messages(24)))
            assert {partition_of_id(one) for one in one_by_one} == {0, 1}

    run(scenario)


def test_a_queue_that_is_gone_is_not_found() -> None:
    """Calls about a split queue that was deleted say so."""

    async def scenario(_: Cluster, client: AsyncClient) -> None:
        await client.enqueue_many("orders", messages(12))
        await client.delete_queue("orders")
        with pytest.raises(QueueNotFound):
            await client.enqueue_many("orders", messages(12))
        with pytest.raises(QueueNotFound):
            await client.enqueue("orders", b"x")
        with pytest.raises(QueueNotFound):
            await client.lease("orders")

    run(scenario)


def test_what_can_not_span_partitions_says_so() -> None:
    """Registered consumers take one partition by its name; a forward is done where its message is, or not at all."""

    async def scenario(_: Cluster, client: AsyncClient) -> None:
        with pytest.raises(QueueSplit, match="orders"):
            await client.register_consumer("orders", "spark")
        assert (await client.register_consumer("orders~1", "spark")).name == "spark"
        await client.create_queue("mails", group="orders")
        await client.enqueue_many("orders", messages(12))
        held = [message for _ in range(4) for message in await client.lease("orders", 100)]
        forwarded = 0
        for message in held:
            if partition_of_id(message.id) == 0:
                forwarded += len(await message.ack(forward={"mails": [NewMessage(payload=b"x")]}))
            else:
                with pytest.raises(QueuesApart):
                    await message.ack(forward={"mails": [NewMessage(payload=b"x")]})
        assert (await client.queue("mails")).waiting == forwarded > 0

    run(scenario)


def test_other_transports_leave_it_to_the_node() -> None:
    """Over plain HTTP a client enqueues, leases, streams and acks, though it never hears of partitions."""

    async def scenario(cluster: Cluster, _: AsyncClient) -> None:
        async with AsyncClient(HttpTransport(cluster["b"].address, poll_ms=200), retries=QUICK) as client:
            await client.enqueue_many("orders", messages(24))
            held = await client.lease("orders", 3)
            assert await client.ack_many("orders", held) == [None] * len(held)
            payloads = [message.payload for message in held]
            async with client.consume("orders", credit=10) as stream:
                while len(payloads) < 24:
                    message = await anext(stream)
                    assert message.queue == "orders"
                    await message.ack()
                    payloads.append(message.payload)
        assert numbers(payloads) == list(range(24))

    run(scenario)


def test_a_client_for_threads_uses_a_split_queue() -> None:
    """Enqueue, lease, stream, extend and ack from a thread, under the plain name."""

    async def scenario(cluster: Cluster, _: AsyncClient) -> None:
        def use() -> list[bytes]:
            with Client(addresses(cluster), retries=QUICK) as client:
                with client.producer("orders") as producer:
                    for message in messages(48):
                        producer.send(message)
                [first] = client.lease("orders", 1, wait_ms=5_000)
                first.extend(60_000)
                first.ack()
                payloads = [first.payload]
                with client.consume("orders", credit=8) as stream:
                    while len(payloads) < 48:
                        held = next(stream)
                        held.ack()
                        payloads.append(held.payload)
                return payloads

        assert numbers(await asyncio.to_thread(use)) == list(range(48))

    run(scenario)


def test_a_call_does_not_wait_for_ever_for_a_partition() -> None:
    """When a partition stays away for longer than a client's patience, its items are refused and the others done."""

    async def scenario(cluster: Cluster, client: AsyncClient) -> None:
        await client.enqueue_many("orders", messages(12))
        await send_away(cluster, "orders~1")
        hasty = Retries(patience_s=0.05, first_s=0.001, longest_s=0.01)
        async with AsyncClient(addresses(cluster), retries=hasty) as impatient:
            results = await impatient.enqueue_many("orders", messages(12))
        for tenant, result in zip(TENANTS, results, strict=True):
            assert isinstance(result, QueueMoving if partition_of_key(tenant, 4) == 1 else str)
        cluster.shelves.failing.clear()

    run(scenario)


def test_what_a_node_could_not_enqueue_is_enqueued_later() -> None:
    """If nodes resolve the keys, messages of a partition without an owner are enqueued once it has one."""

    async def scenario(cluster: Cluster, client: AsyncClient) -> None:
        await send_away(cluster, "orders~1")
        sent = [NewMessage(payload=b"x", headers={"tenant": tenant}) for tenant in TENANTS]
        together = asyncio.ensure_future(client.enqueue_many("orders", sent))
        each = asyncio.gather(*(client.enqueue("orders", message) for message in sent))
        await until(lambda: sum(held(cluster, at) for at in (0, 2, 3)) >= 12, "the others are there")
        asked = calls(cluster, "enqueue")
        await until(lambda: calls(cluster, "enqueue") > asked, "it is tried again")
        assert not together.done()
        cluster.shelves.failing.clear()
        expected = [partition_of_key(tenant, 4) for tenant in TENANTS]
        assert [partition_of_id(str(one)) for one in await together] == expected
        assert [partition_of_id(one) for one in await each] == expected
        assert (await client.queue("orders")).waiting == 24

    def held(cluster: Cluster, at: int) -> int:
        engine = cluster.owner(f"orders~{at}").groups.of(f"orders~{at}")._engine
        return len(engine.ledger.queues[served_name(f"orders~{at}")].messages)

    run(scenario, policy=QueuePolicy(fairness_key_from="header:tenant"))


def test_a_client_that_goes_on_learns_of_new_partitions() -> None:
    """Without being refused anything, a client that has known two partitions for a while soon uses four."""

    async def scenario(cluster: Cluster, client: AsyncClient) -> None:
        async with AsyncClient(addresses(cluster), retries=QUICK) as other:
            await client.enqueue_many("orders", messages(12))
            await split(cluster, other, 4)
            sent: list[str] = []

            async def uses_all() -> bool:
                sent.extend(map(str, await client.enqueue_many("orders", messages(12))))
                return {partition_of_id(one) for one in sent} == {0, 1, 2, 3}

            await until_answered(uses_all, "the client uses all four partitions")
            assert (await client.queue("orders")).waiting == 12 + len(sent)

    run(scenario, partitions=2)
