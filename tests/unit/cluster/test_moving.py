"""Queues go from node to node with everything in them: by hand, when a node is drained, and when one dies."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import websockets

from fairlane.wire.frames import SUBPROTOCOL, Answer, Call, Deliver, Ended, Refused, frames_of, message_of
from tests.kit.waiting import PATIENCE_S, until
from tests.unit.cluster.in_process import SOON_MS, Member, cluster_of
from tests.unit.cluster.test_serving import HELLO, leased, made, receipts
from tests.unit.server.local_server import run


async def moved(queue: str, to: Member, *, asked: Member) -> None:
    """Move a queue, and wait until it is served there."""
    await asked.done("cluster/move", {"queue": queue, "node": to.name})
    await until(lambda: to.groups.has(queue), "it is served there")


def test_a_receipt_stays_good_when_its_queue_moves() -> None:
    """What is leased at one node is acked after the queue has gone to another; nobody else gets it meanwhile."""

    async def main() -> None:
        async with cluster_of("abc") as cluster:
            await made(cluster, "orders")
            await cluster["a"].done("queue/enqueue", {"queue": "orders", "messages": [HELLO, HELLO]})
            before, to = cluster.owner("orders"), cluster.others("orders")[0]
            held = await leased(cluster["a"], "orders", visibility_ms=60_000)
            await moved("orders", to, asked=cluster["c"])
            assert not before.groups.has("orders")
            other = await leased(before, "orders")
            assert other["id"] != held["id"]
            assert await before.done("queue/ack", receipts(held)) == {"results": [{}]}
            stats = await cluster["c"].done("queue/stats", {"queue": "orders"})
            assert (stats["waiting"], stats["leased"]) == (0, 1)
            (group,) = (await cluster["a"].done("cluster"))["groups"]
            assert (group["home"], group["owner"], group["is_pinned"]) == (to.name, to.name, True)

    run(main())


def test_who_waits_for_messages_gets_them_from_the_new_owner() -> None:
    """A long poll at any node goes on where the queue has gone to."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await made(cluster, "orders")
            before, (to,) = cluster.owner("orders"), cluster.others("orders")
            waiting = [asyncio.create_task(leased(at, "orders", wait_ms=15_000)) for at in (before, to)]
            engine = before.groups.of("orders")._engine
            await until(lambda: engine.consumers.waiting("orders") == 2, "both wait at the owner")
            await moved("orders", to, asked=before)
            await to.done("queue/enqueue", {"queue": "orders", "messages": [HELLO, HELLO]})
            assert len({delivery["id"] for delivery in await asyncio.gather(*waiting)}) == 2

    run(main())


def test_a_channel_ends_with_a_word_that_makes_clients_follow() -> None:
    """The stream's consumer is told that its queue has gone, keeps what it has, and acks it at the new owner."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await made(cluster, "orders")
            before, (to,) = cluster.owner("orders"), cluster.others("orders")
            await before.done("queue/enqueue", {"queue": "orders", "messages": [HELLO]})
            async with stream_to(before) as socket:
                await socket.send(call(1, "consume", {"queue": "orders", "credit": 10}))
                deliveries = (await next_frame(socket, Deliver)).deliveries
                await moved("orders", to, asked=before)
                ended = await next_frame(socket, Ended)
                assert (ended.channel, ended.error.code, ended.error.at) == (1, "queue_elsewhere", to.address)
                await socket.send(call(2, "stop", {"channel": 1}))
                assert (await next_frame(socket, Answer, number=2)).number == 2
            held = {"queue": "orders", "id": deliveries[0].id, "token": deliveries[0].token}
            assert (await to.done("queue/stats", {"queue": "orders"}))["leased"] == 1
            assert await to.done("queue/ack", receipts(held)) == {"results": [{}]}

    run(main())


def test_streams_over_http_end_when_their_queue_moves() -> None:
    """A subscription and a watch end without an error, and what was delivered stays leased."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await made(cluster, "orders")
            before, (to,) = cluster.owner("orders"), cluster.others("orders")
            await before.done("queue/enqueue", {"queue": "orders", "messages": [HELLO]})
            subscribing = before.http.stream("POST", "/v1/queue/subscribe", json={"queue": "orders"})
            watching = before.http.stream("GET", "/v1/queue/watch?queue=orders")
            async with subscribing as subscription, watching as watch:
                lines = subscription.aiter_lines()
                delivery = json.loads(await anext(lines))
                await moved("orders", to, asked=before)
                assert [line async for line in lines] == []
                async for _ in watch.aiter_lines():
                    pass
            assert (await to.done("queue/stats", {"queue": "orders"}))["leased"] == 1
            assert await before.done("queue/ack", receipts(delivery)) == {"results": [{}]}

    run(main())


def test_a_channel_is_refused_where_the_queue_is_not() -> None:
    """The stream tells whoever wants to consume at which node to do so."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await made(cluster, "orders")
            (other,) = cluster.others("orders")
            async with stream_to(other) as socket:
                await socket.send(call(1, "consume", {"queue": "orders", "credit": 1}))
                refused = await next_frame(socket, Refused)
                assert (refused.error.code, refused.error.at) == ("queue_elsewhere", cluster.owner("orders").address)

    run(main())


def test_a_stream_forwards_for_whoever_does_not_follow() -> None:
    """Enqueue, lease and ack through a stream of another node; one that says that it follows is told where to go."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await made(cluster, "orders")
            (other,) = cluster.others("orders")
            async with stream_to(other) as socket:
                await socket.send(call(1, "enqueue", {"queue": "orders", "messages": [{"payload": b"x"}]}))
                await next_frame(socket, Answer, number=1)
                await socket.send(call(2, "lease", {"queue": "orders"}))
                answer = await next_frame(socket, Answer, number=2)
                (delivery,) = msgspec.msgpack.decode(answer.answer)["deliveries"]
                assert delivery["payload"] == b"x"
                await socket.send(call(3, "ack", receipts(delivery)))
                await next_frame(socket, Answer, number=3)
            async with stream_to(other, {"x-fairlane-follows": "1"}) as socket:
                await socket.send(call(1, "enqueue", {"queue": "orders", "messages": [{"payload": b"x"}]}))
                refused = await next_frame(socket, Refused)
                assert (refused.error.code, refused.error.at) == ("queue_elsewhere", cluster.owner("orders").address)

    run(main())


def test_a_dead_node_is_taken_over() -> None:
    """When a node shows no sign of life any more, another serves its queues, with all messages and leases."""

    async def main() -> None:
        async with cluster_of("ab", heartbeat_timeout_ms=SOON_MS) as cluster:
            await made(cluster, "orders", "mails")
            dead, (heir,) = cluster.owner("orders"), cluster.others("orders")
            await dead.done("queue/enqueue", {"queue": "orders", "messages": [HELLO, HELLO]})
            held = await leased(heir, "orders", visibility_ms=60_000)
            await dead.freeze()
            await until(lambda: heir.groups.has("orders"), "it is taken over")
            assert await heir.done("queue/ack", receipts(held)) == {"results": [{}]}
            assert (await heir.done("queue/stats", {"queue": "orders"}))["waiting"] == 1
            assert heir.node.lifecycle.takeovers == 1

    run(main())


def test_a_node_that_was_taken_over_answers_nothing_as_owner() -> None:
    """One that slept through its lease refuses everything about the queue, and its consumers are told to go on."""

    async def main() -> None:
        async with cluster_of("ab", heartbeat_timeout_ms=SOON_MS) as cluster:
            await made(cluster, "orders")
            sleeper, (heir,) = cluster.owner("orders"), cluster.others("orders")
            await sleeper.done("queue/enqueue", {"queue": "orders", "messages": [HELLO]})
            async with stream_to(sleeper, {"x-fairlane-follows": "1"}) as socket:
                await socket.send(call(1, "consume", {"queue": "orders", "credit": 1}))
                (delivery,) = (await next_frame(socket, Deliver)).deliveries
                await sleeper.freeze()
                await until(lambda: heir.groups.has("orders"), "it is taken over")
                for number, verb, request in (
                    (2, "enqueue", {"queue": "orders", "messages": [{"payload": b"x"}]}),
                    (3, "stats", {"queue": "orders"}),
                    (4, "lease", {"queue": "orders"}),
                ):
                    await socket.send(call(number, verb, request))
                    refused = await next_frame(socket, Refused)
                    assert (refused.number, refused.error.code) in (
                        (number, "queue_moving"),
                        (number, "queue_elsewhere"),
                    )
            assert (await heir.done("queue/stats", {"queue": "orders"}))["waiting"] == 0
            held = {"queue": "orders", "id": delivery.id, "token": delivery.token}
            assert await heir.done("queue/ack", receipts(held)) == {"results": [{}]}
            assert not sleeper.groups.has("orders")

    run(main())


def test_a_node_that_is_cut_off_from_the_board_keeps_what_it_owns() -> None:
    """The stores decide: with its store at hand it answers, and is part of the cluster again when it comes back."""

    async def main() -> None:
        async with cluster_of("a", heartbeat_timeout_ms=SOON_MS) as cluster:
            await made(cluster, "orders")
            member = cluster["a"]
            member.line.is_cut = True
            await until(lambda: not member.node.is_joined, "nobody hears of it")
            assert (await member.http.get("/readyz")).status_code == 503
            await member.done("queue/enqueue", {"queue": "orders", "messages": [HELLO]})
            member.line.is_cut = False
            await until(lambda: member.node.is_joined, "it is heard of again")
            assert (await member.http.get("/readyz")).status_code == 200
            assert (await member.done("queue/stats", {"queue": "orders"}))["waiting"] == 1

    run(main())


def test_a_group_whose_store_fails_is_opened_anew() -> None:
    """Who was being answered hears that nobody knows, who waits that the queue moves, and then all is there again."""

    async def main() -> None:
        async with cluster_of("a") as cluster:
            await made(cluster, "orders", "mails")
            member, body = cluster["a"], {"queue": "orders", "messages": [HELLO]}
            await member.done("queue/enqueue", body)
            waiting = asyncio.create_task(member.post("queue/dequeue", {"queue": "mails", "wait_ms": 15_000}))
            engine = member.groups.of("mails")._engine
            await until(lambda: engine.consumers.waiting("mails") == 1, "somebody waits")
            cluster.shelves.failing |= {"orders", "mails"}
            update = {"queue": "mails", "policy": {"max_attempts": 7}}
            for answer in (await member.post("queue/enqueue", body), await member.post("queues/update", update)):
                assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_failed")
            await until(lambda: not member.groups.names, "nothing is served")
            for answer in (await waiting, await member.post("queue/stats", {"queue": "orders"})):
                assert (answer.status_code, answer.json()["error"]["code"]) == (503, "queue_moving")
            cluster.shelves.failing.clear()
            await until(lambda: len(member.groups.names) == 2, "all is served again")
            assert (await member.done("queue/stats", {"queue": "orders"}))["waiting"] >= 1
            await member.done("queue/enqueue", {"queue": "mails", "messages": [HELLO]})

    run(main())


def test_a_drained_node_has_nothing_and_gets_nothing() -> None:
    """Its groups go to others, new queues too, and it can have groups again; a dead one's name is refused."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await made(cluster, "orders", "mails")
            await cluster["a"].done("cluster/drain", {"node": "b"})
            await until(lambda: not cluster["b"].groups.names, "everything has gone")
            await until(lambda: len(cluster["a"].groups.names) == 2, "everything has arrived")
            await cluster["b"].done("queues/create", {"queue": "jobs"})
            assert cluster.owner("jobs").name == "a"
            refused = await cluster["a"].post("cluster/move", {"queue": "jobs", "node": "b"})
            assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_argument")
            await cluster["a"].done("cluster/drain", {"node": "b", "is_draining": False})
            await moved("jobs", cluster["b"], asked=cluster["a"])
            nobody = await cluster["a"].post("cluster/drain", {"node": "z"})
            assert (nobody.status_code, nobody.json()["error"]["code"]) == (404, "node_not_found")

    run(main())


def test_a_node_that_leaves_hands_everything_over_first() -> None:
    """Draining before the end leaves no gap: all is served elsewhere, and the node is no longer on the board."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await made(cluster, "orders", "mails")
            leaver = cluster.members.pop("b")
            await leaver.node.drain(grace_s=10)
            assert not leaver.groups.names
            await until(lambda: len(cluster["a"].groups.names) == 2, "all is served elsewhere")
            await leaver.stop()
            view = await cluster["a"].done("cluster")
            assert [node["name"] for node in view["nodes"]] == ["a"]

    run(main())


def test_the_last_node_that_takes_groups_need_not_wait_to_leave() -> None:
    """Where all others are drained too, nobody would take over before it is gone; then they do at once."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await made(cluster, "orders")
            owner, (other,) = cluster.owner("orders"), cluster.others("orders")
            await owner.done("cluster/drain", {"node": other.name})
            async with asyncio.timeout(PATIENCE_S):
                await owner.node.drain(grace_s=3_600)
            del cluster.members[owner.name]
            await owner.stop()
            await until(lambda: other.groups.has("orders"), "the other has it")
            assert other.node.lifecycle.takeovers == 0

    run(main())


def test_a_second_process_of_the_same_name_takes_the_place_of_the_first() -> None:
    """The first one notices, lets go of everything and is to end; the second serves."""

    async def main() -> None:
        async with cluster_of("a") as cluster:
            await made(cluster, "orders")
            first = cluster.members.pop("a")
            second = await cluster.add("a")
            await until(first.node.replaced.is_set, "the first one notices")
            await until(lambda: second.groups.has("orders") and not first.groups.names, "the second one serves")
            await second.done("queue/stats", {"queue": "orders"})
            await first.stop()
            assert second.node.is_joined

    run(main())


# --------------------------------------------------------------------------------------------------- a stream on a wire


def stream_to(member: Member, headers: dict[str, str] | None = None) -> Any:
    """Open a stream to a node."""
    address = member.address.replace("http", "ws") + "/v1/stream"
    return websockets.connect(address, subprotocols=[SUBPROTOCOL], additional_headers=headers or {})  # type: ignore[list-item] # a NewType


def call(number: int, verb: str, request: object) -> bytes:
    """Return a message with one call."""
    return message_of([Call(number, verb, msgspec.Raw(msgspec.msgpack.encode(request)))])


async def next_frame(socket: Any, kind: type[Any], *, number: int | None = None) -> Any:
    """Return the next frame of a kind, if told with a number; others before it are passed over."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            for frame in frames_of(await socket.recv()):
                if isinstance(frame, kind) and (number is None or frame.number == number):
                    return frame


def test_a_redrive_goes_on_at_the_node_that_takes_its_queue_over() -> None:
    """A redrive with a rate is watched and stopped by the same id after its queue has moved; no letter is lost."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await made(cluster, "orders")
            before, (to,) = cluster.owner("orders"), cluster.others("orders")
            await before.done("queue/enqueue", {"queue": "orders", "messages": [HELLO] * 3})
            for _ in range(3):
                held = receipts(await leased(before, "orders")) | {"intent": "dead"}
                await before.done("queue/nack", held)
            started = await before.done("queues/redrive", {"queue": "orders.dlq", "rate": 0.001})
            await moved("orders", to, asked=before)
            view = await before.done("queues/redrive/view", {"id": started["id"]})
            assert (view["status"], view["total"], view["id"]) == ("running", 3, started["id"])
            (shown,) = (await before.done("queue/stats", {"queue": "orders"}))["redrives"]
            assert shown["id"] == started["id"]
            stopped = await before.done("queues/redrive/stop", {"id": started["id"]})
            assert stopped["status"] == "stopped"
            stats = await to.done("queue/stats", {"queue": "orders"})
            assert (stats["waiting"], stats["dead"]) == (stopped["moved"], 3 - stopped["moved"])

    run(main())
