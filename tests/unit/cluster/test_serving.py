"""Any node answers for every queue: itself, by asking the owner, or by telling who owns it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from tests.kit.waiting import PATIENCE_S, until
from tests.unit.cluster.in_process import Cluster, Member, cluster_of
from tests.unit.server.local_server import run

HELLO = {"payload": "aGVsbG8="}


async def made(cluster: Cluster, *queues: str) -> None:
    """Make queues, each at another node than the one before."""
    members = list(cluster.members.values())
    for number, queue in enumerate(queues):
        await members[number % len(members)].done("queues/create", {"queue": queue})


async def leased(member: Any, queue: str, **more: object) -> dict[str, Any]:
    """Return one message that is leased now."""
    answer = await member.done("queue/dequeue", {"queue": queue, **more})
    (delivery,) = answer["deliveries"]
    found: dict[str, Any] = delivery
    return found


def receipts(delivery: dict[str, Any]) -> dict[str, Any]:
    return {"queue": delivery["queue"], "receipts": [{"id": delivery["id"], "token": delivery["token"]}]}


def test_every_node_answers_for_every_queue() -> None:
    """What is enqueued at one node is leased at another and acked at a third, whoever owns the queue."""

    async def main() -> None:
        async with cluster_of("abc") as cluster:
            await made(cluster, "orders", "mails", "jobs")
            assert {cluster.owner(queue).name for queue in ("orders", "mails", "jobs")} == {"a", "b", "c"}
            for queue in ("orders", "mails", "jobs"):
                await cluster["a"].done("queue/enqueue", {"queue": queue, "messages": [HELLO]})
                delivery = await leased(cluster["b"], queue)
                assert delivery["payload"] == HELLO["payload"]
                assert await cluster["c"].done("queue/ack", receipts(delivery)) == {"results": [{}]}
                assert (await cluster["a"].done("queue/stats", {"queue": queue}))["leased"] == 0

    run(main())


def test_queues_of_all_nodes_are_listed_by_each() -> None:
    """Each node lists the queues of all, each once, with their dead-letter queues."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await made(cluster, "orders", "mails")
            for member in cluster.members.values():
                names = [view["name"] for view in (await member.done("queues/list"))["queues"]]
                assert names == ["mails", "mails.dlq", "orders", "orders.dlq"]

    run(main())


def test_who_follows_is_told_where_to_ask() -> None:
    """A caller that follows is refused with the owner's address, and answered there; nothing was done before."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await made(cluster, "orders")
            (other,) = cluster.others("orders")
            body = {"queue": "orders", "messages": [HELLO]}
            refusal = await other.post("queue/enqueue", body, x_fairlane_follows="1")
            assert refusal.status_code == 421
            error = refusal.json()["error"]
            assert (error["code"], error["at"]) == ("queue_elsewhere", cluster.owner("orders").address)
            owner = cluster.owner("orders")
            await owner.done("queue/enqueue", body, x_fairlane_follows="1")
            assert (await owner.done("queue/stats", {"queue": "orders"}))["waiting"] == 1

    run(main())


def test_a_forwarded_request_is_never_forwarded_again() -> None:
    """A node that is asked by another for a queue it has not got refuses, so that nothing goes in circles."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await made(cluster, "orders")
            (other,) = cluster.others("orders")
            proof = cluster.owner("orders").node.proofs().for_node_at(other.address)
            answer = await other.post("queue/stats", {"queue": "orders"}, x_fairlane_forwarded=proof)
            assert (answer.status_code, answer.json()["error"]["code"]) == (421, "queue_elsewhere")

    run(main())


def test_who_follows_is_sent_to_the_owner_for_streams() -> None:
    """Subscriptions, watches, the live feed and the journal of a queue elsewhere are answered with its owner's URL."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await made(cluster, "orders")
            (other,) = cluster.others("orders")
            at = cluster.owner("orders").address
            subscribed = await other.post("queue/subscribe", {"queue": "orders"})
            assert (subscribed.status_code, subscribed.headers["location"]) == (307, f"{at}/v1/queue/subscribe")
            for path in ("/v1/queue/watch?queue=orders", "/v1/live?queue=orders", "/v1/journal?queue=orders"):
                looked = await other.http.get(path, headers={"x-fairlane-follows": "1"})
                assert (looked.status_code, looked.headers["location"]) == (307, at + path)

    run(main())


def test_who_can_not_follow_is_answered_bit_by_bit_by_any_node() -> None:
    """The journal, the watch and the live feed of a queue elsewhere come from its owner, through the node asked."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await made(cluster, "orders")
            (other,) = cluster.others("orders")
            await other.post("queue/enqueue", {"queue": "orders", "messages": [{"fairness_key": "acme"}]})
            journal = await other.http.get("/v1/journal?queue=orders&kinds=enqueued")
            assert [line["fairness_key"] for line in map(json.loads, journal.text.splitlines())] == [["acme"]]
            assert int(journal.headers["x-fairlane-position"]) == int(journal.headers["x-fairlane-end"]) > 0
            async with other.http.stream("GET", "/v1/queue/watch?queue=orders") as watch:
                assert await anext(watch.aiter_lines()) == "event: available"
            picture = await _first_picture(other, "queue=orders", lambda picture: "queue" in picture)
            assert [each["key"] for each in picture["queue"]["keys"]] == ["acme"]

    run(main())


def test_the_live_feed_of_a_node_has_the_queues_of_all() -> None:
    """Whichever node is looked at shows what each node serves, and a node that asks for another only its own."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await made(cluster, "orders", "mails")
            for member in cluster.members.values():

                def has_all(picture: dict[str, Any]) -> bool:
                    return {"orders", "mails"} <= {each["name"] for each in picture["queues"]}

                await _first_picture(member, "", has_all)
                proof = cluster["a"].node.proofs().for_node_at(member.address)
                alone = await _first_picture(member, "", lambda _: True, x_fairlane_forwarded=proof)
                own = {queue for queue in ("orders", "mails") if cluster.owner(queue) is member}
                assert {each["name"].removesuffix(".dlq") for each in alone["queues"]} == own

    run(main())


async def _first_picture(
    member: Member, query: str, is_wanted: Callable[[dict[str, Any]], bool], **headers: str
) -> dict[str, Any]:
    """Look through the live feed until it shows what is wanted."""
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    async with asyncio.timeout(PATIENCE_S), member.http.stream("GET", f"/v1/live?{query}", headers=fields) as feed:
        async for line in feed.aiter_lines():
            if line.startswith("data: ") and is_wanted(picture := json.loads(line.removeprefix("data: "))):
                found: dict[str, Any] = picture
                return found
    raise AssertionError("The feed has ended.")


def test_a_queue_that_nobody_has_made_is_not_found() -> None:
    """Every node refuses it as a server alone does."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            for member in cluster.members.values():
                answer = await member.post("queue/stats", {"queue": "nothing"})
                assert (answer.status_code, answer.json()["error"]["code"]) == (404, "queue_not_found")

    run(main())


def test_a_deleted_queue_is_gone_everywhere_and_can_be_made_anew() -> None:
    """Deleting at any node takes it from the board too; made anew it is empty."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await made(cluster, "orders")
            (other,) = cluster.others("orders")
            await other.done("queue/enqueue", {"queue": "orders", "messages": [HELLO]})
            await other.done("queues/delete", {"queue": "orders"})
            for member in cluster.members.values():
                assert (await member.post("queue/stats", {"queue": "orders"})).status_code == 404
            assert (await other.done("cluster"))["groups"] == []
            await other.done("queues/create", {"queue": "orders"})
            assert (await other.done("queue/stats", {"queue": "orders"}))["waiting"] == 0

    run(main())


def test_forwarding_is_atomic_within_a_group_only() -> None:
    """Queues of one group forward to each other in one commit; queues of two are refused, and the lease stays."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await cluster["a"].done("queues/create", {"queue": "first", "group": "flow"})
            await cluster["b"].done("queues/create", {"queue": "second", "group": "flow"})
            await cluster["b"].done("queues/create", {"queue": "apart"})
            assert cluster.owner("first") is cluster.owner("second")
            await cluster["a"].done("queue/enqueue", {"queue": "first", "messages": [HELLO]})
            delivery = await leased(cluster["b"], "first")
            receipt = receipts(delivery)["receipts"][0]
            for member in cluster.members.values():
                body = {"queue": "first", "receipt": receipt, "messages": {"apart": [HELLO]}}
                answer = await member.post("queue/forward", body)
                assert (answer.status_code, answer.json()["error"]["code"]) == (409, "queues_apart")
            (other,) = cluster.others("first")
            await other.done("queue/forward", {"queue": "first", "receipt": receipt, "messages": {"second": [HELLO]}})
            assert (await other.done("queue/stats", {"queue": "second"}))["waiting"] == 1

    run(main())


def test_a_fan_out_is_within_one_group() -> None:
    """Any node passes it to the owner, and refuses queues of two groups; then nothing is enqueued."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await cluster["a"].done("queues/create", {"queue": "first", "group": "flow"})
            await cluster["b"].done("queues/create", {"queue": "second", "group": "flow"})
            await cluster["b"].done("queues/create", {"queue": "apart"})
            body = {"queue": "first", "name": "f", "then": HELLO}
            for member in cluster.members.values():
                answer = await member.post("queue/fan_out", body | {"messages": {"second": [HELLO], "apart": [HELLO]}})
                assert (answer.status_code, answer.json()["error"]["code"]) == (409, "queues_apart")
            (other,) = cluster.others("first")
            sent = await other.done("queue/fan_out", body | {"messages": {"second": [HELLO]}})
            assert (await other.done("queue/stats", {"queue": "first"}))["waiting"] == 0
            delivery = await leased(cluster["b"], "second")
            await cluster["a"].done("queue/ack", receipts(delivery))
            assert (await leased(cluster["a"], "first"))["id"] == sent["id"]

    run(main())


def test_queues_share_groups_when_there_are_enough() -> None:
    """With groups_max reached, further queues join the groups there are."""

    async def main() -> None:
        async with cluster_of("a", groups_max=2) as cluster:
            await made(cluster, "one", "two", "three", "four")
            groups = (await cluster["a"].done("cluster"))["groups"]
            assert sorted(len(group["queues"]) for group in groups) == [2, 2]

    run(main())


def test_a_journal_is_that_of_a_group() -> None:
    """Reading the journal needs a queue that says whose; each has only what happened there."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await made(cluster, "orders", "mails")
            refused = await cluster["a"].post("journal/read")
            assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_argument")
            for queue in ("orders", "mails"):
                for member in cluster.members.values():
                    events = (await member.done("journal/read", {"queue": queue}))["events"]
                    assert {event.get("queue") for event in events} - {None} == {queue, f"{queue}.dlq"} - {None}
                    await member.done("journal/reader/set", {"queue": queue, "name": "x", "position": 0})
                    readers = (await member.done("journal/reader/list", {"queue": queue}))["readers"]
                    assert [reader["name"] for reader in readers] == ["x"]

    run(main())


def test_a_redrive_is_found_by_its_id_at_every_node() -> None:
    """The id tells where it runs."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await made(cluster, "orders", "mails")
            ids = set()
            for queue in ("orders", "mails"):
                for member in cluster.members.values():
                    started = await member.done("queues/redrive", {"queue": f"{queue}.dlq"})
                    ids.add(started["id"])
                    for asked in cluster.members.values():
                        view = await asked.done("queues/redrive/view", {"id": started["id"]})
                        assert (view["queue"], view["id"]) == (f"{queue}.dlq", started["id"])
            assert len(ids) == 4
            listed = (await cluster["a"].done("queues/redrive/list"))["redrives"]
            assert {view["id"] for view in listed} == ids

    run(main())


def test_a_lease_waits_at_the_owner_and_goes_back_when_the_caller_hangs_up() -> None:
    """A long poll through another node gets what comes; one whose caller has gone leaves nothing leased."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await made(cluster, "orders")
            (other,) = cluster.others("orders")
            owner = cluster.owner("orders")
            waiting = asyncio.create_task(leased(other, "orders", wait_ms=10_000))
            await until(lambda: owner.groups.of("orders")._engine.consumers.waiting("orders") == 1, "it waits there")
            await owner.done("queue/enqueue", {"queue": "orders", "messages": [HELLO]})
            await other.done("queue/ack", receipts(await waiting))
            gone = asyncio.create_task(leased(other, "orders", wait_ms=10_000))
            await until(lambda: owner.groups.of("orders")._engine.consumers.waiting("orders") == 1, "it waits there")
            gone.cancel()
            await until(lambda: owner.groups.of("orders")._engine.consumers.waiting("orders") == 0, "it has given up")

    run(main())


def test_a_queue_is_ensured_by_any_node() -> None:
    """Two nodes that ensure a queue at once create it once, and both name what differs afterwards."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            wanted = {"queue": "orders", "policy": {"max_attempts": 3}}
            answers = await asyncio.gather(*(cluster[name].done("queues/ensure", wanted) for name in "abab"))
            assert sorted(answer["is_created"] for answer in answers) == [False, False, False, True]
            for name in "ab":
                other = {"queue": "orders", "policy": {"max_attempts": 9}}
                answer = await cluster[name].done("queues/ensure", other)
                assert (answer["differing"], answer["policy"]["max_attempts"]) == (["max_attempts"], 3)

    run(main())
