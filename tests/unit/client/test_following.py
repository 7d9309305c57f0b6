"""How a client finds the node that owns a queue, and finds it again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from fairlane.client import AsyncClient, Client, NewMessage, Retries
from fairlane.client.cluster_transport import addresses_of
from fairlane.errors import Disconnected, InvalidArgument, QueueElsewhere, QueueMoving
from fairlane.verbs.queues import PauseQueue
from fairlane.worker import Worker
from tests.kit.waiting import pass_loop, until

from .nodes import Nodes, nodes

QUICK = Retries(patience_s=60.0, first_s=0.001, longest_s=0.01)
Scenario = Callable[[Nodes], Awaitable[None]]


def run(scenario: Scenario, count: int = 2) -> None:
    """Run a scenario with nodes, the second of which owns ``jobs``."""

    async def main() -> None:
        async with nodes(count) as made:
            made.owners["jobs"] = 1
            await scenario(made)

    asyncio.run(main())


def client_of(made: Nodes, *numbers: int, retries: Retries = QUICK) -> AsyncClient:
    """Return a client that knows the addresses of some nodes."""
    return AsyncClient(",".join(made.addresses[number] for number in numbers), retries=retries)


def test_a_call_goes_where_it_is_sent_and_the_next_goes_there_at_once() -> None:
    """The first call about a queue asks the wrong node once; later ones ask only the right one."""

    async def scenario(made: Nodes) -> None:
        async with client_of(made, 0) as client:
            await client.create_queue("jobs")
            assert made.asked == [(0, "create_queue"), (1, "create_queue")]
            await client.pause("jobs")
            await client.resume("jobs")
            assert made.asked[2:] == [(1, "pause"), (1, "resume")]
        assert made.follows == ["1", "1"]

    run(scenario)


def test_a_client_tells_where_a_queue_is() -> None:
    """Once a queue was asked for, its node's address is known, also after it has moved; a transport knows none."""

    async def scenario(made: Nodes) -> None:
        async with client_of(made, 0) as client:
            assert client.address_of("jobs") == made.addresses[0]
            await client.create_queue("jobs")
            assert client.address_of("jobs") == made.addresses[1]
            await made.move("jobs", 0)
            await client.queue("jobs")
            assert client.address_of("jobs") == made.addresses[0]
        with pytest.raises(InvalidArgument):
            AsyncClient(made.broker).address_of("jobs")

    run(scenario)


def test_what_is_gathered_follows_too() -> None:
    """Messages that are enqueued and acked one by one reach the owner, each once, and then without detour."""

    async def scenario(made: Nodes) -> None:
        async with client_of(made, 0) as client:
            made.owners["jobs"] = 0
            await client.create_queue("jobs")
            made.owners["jobs"] = 1
            await asyncio.gather(*(client.enqueue("jobs", b"%d" % number) for number in range(50)))
            asked = len(made.asked)
            assert asked < 10
            leased = await client.lease("jobs", 50)
            assert len(leased) == 50
            for message in leased:
                client.ack_soon(message)
            assert await client.flush() == []
            assert made.asked[asked:] == [(1, "lease"), (1, "ack")]
            assert (await client.queue("jobs")).waiting == 0

    run(scenario)


def test_a_stream_opens_anew_where_its_queue_has_gone() -> None:
    """A stream continues when its queue moves, and earlier deliveries are acknowledged at the new owner."""

    async def scenario(made: Nodes) -> None:
        async with client_of(made, 0) as client, client.consume("jobs", credit=10) as stream:
            await client.enqueue("jobs", b"before")
            before = await anext(stream)
            await made.move("jobs", 0)
            await client.enqueue("jobs", b"after")
            after = await anext(stream)
            await before.ack()
            await after.ack()
            assert [before.payload, after.payload] == [b"before", b"after"]
            assert made.asked[-1] == (0, "ack")

    async def prepared(made: Nodes) -> None:
        async with client_of(made, 1) as client:
            await client.create_queue("jobs")
        await scenario(made)

    run(prepared)


def test_what_a_stream_holds_stays_when_its_queue_moves() -> None:
    """Unseen messages from before a move are neither dropped nor returned."""

    async def scenario(made: Nodes) -> None:
        async with client_of(made, 1) as client:
            await client.create_queue("jobs")
            async with client.consume("jobs", credit=3) as stream:
                await client.enqueue_many("jobs", [NewMessage(payload=each) for each in (b"1", b"2", b"3")])
                first = await anext(stream)
                await made.move("jobs", 0)
                await until(lambda: (0, "consume") in made.asked, "the stream follows the queue")
                seen = [first, await anext(stream), await anext(stream)]
                assert [message.payload for message in seen] == [b"1", b"2", b"3"]
                assert [message.attempt for message in seen] == [1, 1, 1]
                for message in seen:
                    await message.ack()

    run(scenario)


def test_a_queue_that_moves_is_waited_for() -> None:
    """An ack, which is never repeated when its answer is lost, is repeated while its queue moves."""

    async def scenario(made: Nodes) -> None:
        async with client_of(made, 1) as client:
            await client.create_queue("jobs")
            await client.enqueue("jobs", b"x")
            [message] = await client.lease("jobs", 1)
            made.moving.add("jobs")
            acking = asyncio.ensure_future(client.ack(message))
            await until(lambda: made.asked.count((1, "ack")) > 1, "the ack is retried")
            made.moving.clear()
            await acking
            assert (await client.queue("jobs")).leased == 0

    run(scenario)


def test_a_node_that_is_cut_off_is_not_asked_for_ever() -> None:
    """When a node says again and again that a queue is moving, another is asked, who knows where it has gone."""

    async def scenario(made: Nodes) -> None:
        async with client_of(made, 1, 0) as client:
            await client.create_queue("jobs")
            made.owners["jobs"] = 0
            made.cut_off.add(1)
            await client.enqueue("jobs", b"x")
            await client.pause("jobs")
            async with client.consume("jobs"):
                assert made.asked[-1] == (0, "consume")

    run(scenario)


def test_a_queue_that_moves_for_too_long_is_told() -> None:
    """When the patience is over, the error says that the queue is moving."""

    async def scenario(made: Nodes) -> None:
        retries = Retries(patience_s=0.05, first_s=0.001, longest_s=0.01)
        async with client_of(made, 1, retries=retries) as client:
            await client.create_queue("jobs")
            made.moving.add("jobs")
            with pytest.raises(QueueMoving):
                await client.purge("jobs")
            with pytest.raises(QueueMoving):
                await client.consume("jobs").open()

    run(scenario)


def test_nodes_that_point_at_each_other_are_not_asked_for_ever() -> None:
    """Two nodes that each say that the other owns a queue are asked a few times and then after pauses only."""

    async def scenario(made: Nodes) -> None:
        made.owners["jobs"] = 2
        made.addresses.append(made.addresses[0])
        retries = Retries(patience_s=0.05, first_s=0.01, longest_s=0.02)
        async with client_of(made, 0, retries=retries) as client:
            with pytest.raises(QueueMoving):
                await client.create_queue("jobs")
        assert 4 <= len(made.asked) < 60

    run(scenario)


def test_another_node_is_asked_when_the_owner_is_gone() -> None:
    """After a takeover, calls and streams continue at the new owner."""

    async def scenario(made: Nodes) -> None:
        async with client_of(made, 0) as client:
            await client.create_queue("jobs")
            async with client.consume("jobs") as stream:
                await made.end(1)
                made.owners["jobs"] = 0
                await client.enqueue("jobs", b"after")
                message = await anext(stream)
                await message.ack()
                assert made.asked[-1] == (0, "ack")

    run(scenario)


def test_a_node_that_was_only_heard_of_stands_in_for_the_one_that_was_named() -> None:
    """A client with one address continues with the nodes that it learned when that node is down."""

    async def scenario(made: Nodes) -> None:
        async with client_of(made, 0) as client:
            await client.create_queue("jobs")
            await made.end(0)
            assert "jobs" in [view.name for view in await client.queues()]
            assert made.asked[-1] == (1, "queues")

    run(scenario)


def test_a_node_that_came_back_elsewhere_is_found() -> None:
    """A node that was only heard of, and is gone, is not in the way of queues that were there."""

    async def scenario(made: Nodes) -> None:
        made.owners["mails"] = 1
        async with client_of(made, 0) as client:
            await client.create_queue("jobs")
            await client.create_queue("mails")
            await made.end(1)
            await made.end(0)
            made.owners.update(jobs=0, mails=0)
            asking = [asyncio.ensure_future(client.pause(queue)) for queue in ("jobs", "mails", "jobs", "mails")]
            await asyncio.wait(asking, timeout=0.05)
            await made.start(0)
            await asyncio.gather(*asking)
            assert {number for number, verb in made.asked if verb == "pause"} == {0}

    run(scenario)


def test_a_connection_that_nobody_waits_for_any_more_is_closed() -> None:
    """A call that is cancelled while the client connects to another node leaves no connection behind."""

    async def scenario(made: Nodes) -> None:
        for passes in range(12):
            async with client_of(made, 0) as client:
                calling = asyncio.ensure_future(client.pause("jobs"))
                await pass_loop(8 * passes)
                calling.cancel()
                await asyncio.wait([calling])
        await until(lambda: not any(server.connections for server in made.servers), "every connection is closed")

    run(scenario)


def test_any_of_several_addresses_will_do() -> None:
    """A client connects although the first of its addresses does not answer, and not if none does."""

    async def scenario(made: Nodes) -> None:
        await made.end(0)
        async with client_of(made, 0, 1) as client:
            await client.create_queue("jobs")
        await made.end(1)
        with pytest.raises(Disconnected):
            await client_of(made, 0, 1).connect()
        await made.start(0)
        await made.start(1)

    run(scenario)


def test_keys_are_not_told_to_those_without_tls() -> None:
    """A server with TLS cannot redirect a client to one without."""

    async def scenario(made: Nodes) -> None:
        async with client_of(made, 0) as client:
            transport = client.transport
            node = transport._first  # type: ignore[attr-defined]
            node.address = "https://queue.example"
            with pytest.raises(QueueElsewhere):
                await transport.call("pause", PauseQueue(queue="jobs"))
            assert {number for number, _ in made.asked} == {0}

    run(scenario)


def test_threads_and_workers_follow() -> None:
    """A client for threads enqueues, and a worker handles, although both know only a node that owns nothing."""

    async def scenario(made: Nodes) -> None:
        def produce() -> None:
            with Client(made.addresses[0], retries=QUICK) as client:
                client.create_queue("jobs")
                for number in range(5):
                    client.enqueue("jobs", b"%d" % number)

        await asyncio.to_thread(produce)
        worker, handled = Worker(made.addresses[0]), asyncio.Queue[bytes]()

        @worker.handler("jobs")
        async def handle(message: object) -> None:
            handled.put_nowait(message.payload)  # type: ignore[attr-defined] # it is a message

        running = asyncio.ensure_future(worker.run())
        got = [await handled.get() for _ in range(2)]
        await made.move("jobs", 0)
        got += [await handled.get() for _ in range(3)]
        worker.stop()
        await running
        assert sorted(got) == [b"0", b"1", b"2", b"3", b"4"]

    run(scenario)


@pytest.mark.parametrize("servers", ["", " , "])
def test_no_address_is_refused(servers: str) -> None:
    """A text without an address says what one looks like."""
    with pytest.raises(InvalidArgument, match="ws://"):
        addresses_of(servers)
