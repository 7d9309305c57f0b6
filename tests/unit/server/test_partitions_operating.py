"""Operators see a split queue as one, change it as one, and can make it smaller or delete it."""

from __future__ import annotations

from typing import Any

from fairlane.model.partitions import partition_of_key
from tests.kit.waiting import until
from tests.unit.cluster.in_process import Cluster, cluster_of
from tests.unit.server.local_server import run
from tests.unit.server.test_partitions import TENANTS, body, everybody_knows, message, receipts, split, taken


async def filled(cluster: Cluster, partitions: int, **policy: Any) -> list[str]:
    """Make a queue ``orders`` of so many partitions with a message of each tenant, and return the ids."""
    await split(cluster, "orders", partitions, **policy)
    await everybody_knows(cluster, "orders", partitions)
    answer = await cluster["a"].done("queue/enqueue", body("orders", [message(key) for key in TENANTS]))
    return [row["id"] for row in answer["results"]]


def test_a_split_queue_is_seen_as_one() -> None:
    """Stats, inspect and the list of queues show one queue, with the messages and keys of all partitions."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await filled(cluster, 4)
            for member in cluster.members.values():
                stats = await member.done("queue/stats", {"queue": "orders", "keys_max": 5})
                assert (stats["name"], stats["waiting"], stats["partitions"]) == ("orders", 12, 4)
                assert (stats["active_keys"], len(stats["keys"])) == (12, 5)
                seen = await member.done("queues/inspect", {"queue": "orders"})
                assert sorted(view["key"] for view in seen["keys"]) == sorted(TENANTS)
                listed = (await member.done("queues/list"))["queues"]
                shown = [(view["name"], view["waiting"], view["partitions"]) for view in listed]
                assert shown == [("orders", 12, 4), ("orders.dlq", 0, 4)]
                one = await member.done("queue/stats", {"queue": "orders~1"})
                assert one["waiting"] == sum(partition_of_key(key, 4) == 1 for key in TENANTS)

    run(main())


def test_messages_are_found_by_their_ids() -> None:
    """Get, explain, state and cancel go to the partition that has the message, and name the queue as a whole."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            ids = await filled(cluster, 4)
            for message_id, key in zip(ids, TENANTS, strict=True):
                found = await cluster["b"].done("queue/get", {"queue": "orders", "id": message_id})
                assert (found["queue"], found["fairness_key"]) == ("orders", key)
                assert (await cluster["a"].done("queue/explain", {"queue": "orders", "id": message_id}))[
                    "queue"
                ] == "orders"
            deliveries = await taken(cluster["a"], "orders")
            for delivery, receipt in zip(deliveries, receipts(deliveries), strict=True):
                await cluster["b"].done("queue/state/put", {"queue": "orders", "receipt": receipt, "state": "AAAA"})
                state = await cluster["a"].done("queue/state/get", {"queue": "orders", "id": delivery["id"]})
                assert state["state"] == "AAAA"
            given = await cluster["b"].done(
                "queue/nack", {"queue": "orders", "receipts": receipts(deliveries), "intent": "defer", "delay_ms": 0}
            )
            assert given["results"] == [{"became": "waiting"}] * 12
            cancelled = await cluster["a"].done(
                "queue/cancel", {"queue": "orders", "ids": [*ids, "f" * 16, "nonsense"]}
            )
            assert cancelled["results"][:12] == [{}] * 12
            assert {row["error"]["code"] for row in cancelled["results"][12:]} == {"message_not_found"}

    run(main())


def test_peeking_goes_through_all_partitions_page_by_page() -> None:
    """Pages of any size, each after the last id of the one before, show every message once, in order of their ids."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            ids = await filled(cluster, 3)
            for count, with_body in ((1, False), (5, True), (12, False), (100, False), (100, True)):
                seen: list[str] = []
                while True:
                    request: dict[str, Any] = {"queue": "orders", "count": count, "with_body": with_body}
                    request |= {"after": seen[-1]} if seen else {}
                    page = (await cluster["b"].done("queue/peek", request))["messages"]
                    if not page:
                        break
                    assert {view["queue"] for view in page} == {"orders"}
                    seen += [view["id"] for view in page]
                assert seen == sorted(ids)

    run(main())


def test_policies_and_pauses_are_those_of_the_whole_queue() -> None:
    """An update or a pause reaches each partition, and a later split gives new partitions the same."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await filled(cluster, 2)
            await cluster["b"].done("queues/update", {"queue": "orders", "policy": {"max_attempts": 9}})
            await cluster["b"].done("queues/update", {"queue": "orders.dlq", "policy": {"visibility_timeout_ms": 77}})
            await cluster["b"].done("queues/pause", {"queue": "orders"})
            await cluster["b"].done("queues/pause", {"queue": "orders", "key": "tenant-1"})
            await cluster["b"].done("cluster/split", {"queue": "orders", "partitions": 3})
            for at in range(3):
                view = await cluster["a"].done("queue/stats", {"queue": f"orders~{at}"})
                assert (view["policy"]["max_attempts"], view["is_paused"], view["paused_keys"]) == (
                    9,
                    True,
                    ["tenant-1"],
                )
                dead = await cluster["a"].done("queue/stats", {"queue": f"orders~{at}.dlq"})
                assert dead["policy"]["visibility_timeout_ms"] == 77
            assert await taken(cluster["a"], "orders") == []
            await cluster["a"].done("queues/resume", {"queue": "orders"})
            await cluster["a"].done("queues/resume", {"queue": "orders", "key": "tenant-1"})
            assert len(await taken(cluster["a"], "orders")) == 12
            for path in ("queues/update", "queues/delete"):
                request: dict[str, Any] = {"queue": "orders~1"} | ({"policy": {}} if path == "queues/update" else {})
                refused = await cluster["a"].post(path, request)
                assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_argument")

    run(main())


def test_purging_empties_all_partitions() -> None:
    """The answer is how many messages were removed in all."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await filled(cluster, 4)
            assert (await cluster["b"].done("queues/purge", {"queue": "orders"}))["count"] == 12
            assert (await cluster["a"].done("queue/stats", {"queue": "orders"}))["waiting"] == 0

    run(main())


def test_a_deleted_queue_goes_with_all_partitions_and_can_be_made_anew() -> None:
    """Nothing of it is left on the board, and a queue of its name is whole and empty."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await filled(cluster, 3)
            exists = await cluster["b"].post("queues/create", {"queue": "orders"})
            assert exists.json()["error"]["code"] == "queue_exists"
            await cluster["b"].done("queues/delete", {"queue": "orders"})
            seen = await cluster["b"].done("cluster")
            assert (seen["groups"], seen.get("splits", {})) == ([], {})
            for member in cluster.members.values():
                assert (await member.post("queue/stats", {"queue": "orders"})).status_code == 404
            await cluster["a"].done("queues/create", {"queue": "orders"})
            view = await cluster["a"].done("queue/stats", {"queue": "orders"})
            assert (view["waiting"], view["partitions"]) == (0, 1)

    run(main())


def goes_to(cluster: Cluster, partitions: int) -> bool:
    """Return whether each node has read on the board that new messages go to so many partitions."""
    splits = [member.groups.split_of("orders") for member in cluster.members.values()]
    return all(split is not None and split.partitions == partitions for split in splits)


def test_fewer_partitions_take_new_messages_and_go_when_they_are_empty() -> None:
    """What is in the others is handed out; once they are empty, splitting again lets them go, down to a whole queue."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await filled(cluster, 4)
            fewer = await cluster["b"].done("cluster/split", {"queue": "orders", "partitions": 1})
            assert (fewer["partitions"], fewer["made"]) == (1, 4)
            await until(lambda: goes_to(cluster, 1), "all nodes know where new messages go")
            await cluster["a"].done("queue/enqueue", body("orders", [message(key) for key in TENANTS]))
            first = await cluster["a"].done("queue/stats", {"queue": "orders~0"})
            assert first["waiting"] >= 12
            deliveries = await taken(cluster["a"], "orders")
            assert len(deliveries) == 24
            still = await cluster["b"].done("cluster/split", {"queue": "orders", "partitions": 1})
            assert still["made"] == 4, "they are leased"
            await cluster["a"].done("queue/ack", {"queue": "orders", "receipts": receipts(deliveries)})
            whole = await cluster["b"].done("cluster/split", {"queue": "orders", "partitions": 1})
            assert (whole["partitions"], whole["made"]) == (1, 1)
            seen = await cluster["b"].done("cluster")
            assert [group["queues"] for group in seen["groups"]] == [["orders"]]
            assert seen.get("splits", {}) == {}
            await everybody_knows(cluster, "orders", 1)
            await cluster["a"].done("queue/enqueue", body("orders", [message("x")]))
            assert len(await taken(cluster["b"], "orders")) == 1

    run(main())


def test_dead_letters_of_all_partitions_are_redriven_together() -> None:
    """One redrive has an id by which every node tells how far it is; a count and a rate are for all partitions."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await filled(cluster, 4, max_attempts=1)
            deliveries = await taken(cluster["a"], "orders")
            dead = {"queue": "orders", "receipts": receipts(deliveries), "intent": "dead", "error": "no"}
            await cluster["b"].done("queue/nack", dead)
            assert (await cluster["a"].done("queue/stats", {"queue": "orders.dlq"}))["waiting"] == 12
            assert (await cluster["a"].done("queue/stats", {"queue": "orders"}))["dead_letter_queue"] == "orders.dlq"
            (one,) = (await cluster["a"].done("queue/dequeue", {"queue": "orders.dlq"}))["deliveries"]
            assert (one["queue"], one["dead"]["origin"]) == ("orders.dlq", "orders")
            back = {"queue": "orders.dlq", "receipts": receipts([one]), "intent": "defer", "delay_ms": 0}
            await cluster["a"].done("queue/nack", back)

            async def moved(**more: Any) -> int:
                started = await cluster["b"].done("queues/redrive", {"queue": "orders.dlq", **more})
                views: list[dict[str, Any]] = [started]

                async def look() -> bool:
                    views.append(await cluster["a"].done("queues/redrive/view", {"id": started["id"]}))
                    return bool(views[-1]["status"] == "done")

                while not await look():
                    pass
                assert (views[-1]["queue"], views[-1]["id"]) == ("orders.dlq", started["id"])
                return int(views[-1]["moved"])

            assert await moved(count=5) == 5
            wanted = {
                "fairness_key": (await cluster["a"].done("queue/peek", {"queue": "orders.dlq", "count": 1}))[
                    "messages"
                ][0]["fairness_key"]
            }
            assert await moved(count=3, wanted=wanted) == 1
            assert await moved() == 6
            assert (await cluster["a"].done("queue/stats", {"queue": "orders"}))["waiting"] == 12

    run(main())


def test_what_can_not_span_partitions_is_refused_by_the_plain_name_only() -> None:
    """Registered consumers, sinks, journals, moves and forwards need the name of a partition."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await split(cluster, "orders", 2)
            await everybody_knows(cluster, "orders", 2)
            requests: list[tuple[str, dict[str, Any]]] = [
                ("queue/consumer/register", {"consumer": "c"}),
                ("queue/consumer/list", {}),
                ("queue/sink/list", {}),
                ("queue/sink/stage", {"sink": "s", "batch": 0, "part": "p", "at": 0, "messages": [message("x")]}),
                ("queue/sink/publish", {"sink": "s", "batch": 0, "parts": ["p"]}),
                ("journal/read", {}),
                ("journal/reader/set", {"name": "r", "position": 0}),
                ("journal/reader/list", {}),
                ("cluster/move", {"node": "b"}),
            ]
            for member in cluster.members.values():
                for path, request in requests:
                    refused = await member.post(path, {"queue": "orders", **request})
                    assert refused.json()["error"]["code"] == "queue_split", path
            for path, request in requests:
                for at in range(2):
                    await cluster["a"].done(path, {"queue": f"orders~{at}", **request})
            for at in range(2):
                await until(lambda at=at: cluster["b"].serves(f"orders~{at}"), "it has gone to b")  # type: ignore[misc] # a default

    run(main())


def test_a_split_queue_is_ensured_as_one() -> None:
    """A split queue exists, for every node, and is not created again."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await filled(cluster, 3, max_attempts=4)
            for member in cluster.members.values():
                answer = await member.done("queues/ensure", {"queue": "orders", "policy": {"max_attempts": 5}})
                assert answer["differing"] == ["max_attempts"]
                assert not answer["is_created"]
                assert answer["policy"]["max_attempts"] == 4

    run(main())
