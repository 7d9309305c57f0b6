"""New messages of a split queue go where their fairness key belongs, whoever finds that key."""

from __future__ import annotations

from typing import Any

from fairlane.model.partitions import partition_of_id, partition_of_key
from tests.kit.waiting import until
from tests.unit.cluster.in_process import Cluster, cluster_of
from tests.unit.server.local_server import run
from tests.unit.server.test_partitions import TENANTS, body, everybody_knows, split, taken

SCRIPT = """
function on_enqueue(msg)
  return { fairness_key = "team-" .. msg.headers.team }
end
"""


def by_header(name: str, value: str, key: str | None = None) -> dict[str, Any]:
    return {"headers": {name: value}} | ({} if key is None else {"fairness_key": key})


async def placed(cluster: Cluster, messages: list[dict[str, Any]], **headers: str) -> list[int]:
    """Enqueue messages at each node, and return the partitions that they are in, the same at each."""
    places = []
    for member in cluster.members.values():
        answer = await member.done("queue/enqueue", body("orders", messages), **headers)
        places.append([partition_of_id(row["id"]) for row in answer["results"]])
    assert all(each == places[0] for each in places)
    return places[0]


def test_a_key_from_a_header_tells_the_partition() -> None:
    """What the policy declares wins over what the producer says, also for callers that could ask partitions."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await split(cluster, "orders", 4, fairness_key_from="header:tenant")
            await everybody_knows(cluster, "orders", 4)
            wanted = [partition_of_key(key, 4) for key in TENANTS]
            messages = [by_header("tenant", key, "everybody") for key in TENANTS]
            assert await placed(cluster, messages) == wanted
            assert await placed(cluster, messages, x_fairlane_follows="1") == wanted
            for delivery in await taken(cluster["a"], "orders"):
                assert partition_of_id(delivery["id"]) == partition_of_key(delivery["fairness_key"], 4)

    run(main())


def test_a_script_tells_the_partition() -> None:
    """The key that ``on_enqueue`` answers counts, from the first partition's script on, and until it is taken away."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await split(cluster, "orders", 4)
            await everybody_knows(cluster, "orders", 4)
            await cluster["b"].done("queues/update", {"queue": "orders", "policy": {"on_enqueue": SCRIPT}})
            await until(lambda: not any(knows_by_message(cluster)), "all nodes know of the script")
            teams = [f"team-{key}" for key in TENANTS]
            messages = [by_header("team", key, "everybody") for key in TENANTS]
            assert await placed(cluster, messages) == [partition_of_key(team, 4) for team in teams]
            assert {each["fairness_key"] for each in await taken(cluster["a"], "orders")} == set(teams)
            await cluster["a"].done("queues/update", {"queue": "orders", "policy": {"on_enqueue": None}})
            await until(lambda: all(knows_by_message(cluster)), "all nodes know that there is none")
            assert await placed(cluster, messages) == [partition_of_key("everybody", 4)] * 12

    run(main())


def knows_by_message(cluster: Cluster) -> list[bool]:
    found = [member.groups.split_of("orders") for member in cluster.members.values()]
    return [split is not None and split.by_message for split in found]


def test_a_script_that_fails_leaves_the_producers_key() -> None:
    """Messages that the script can't answer for go where the key belongs that the broker finds too."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await split(cluster, "orders", 4, on_enqueue=SCRIPT)
            await everybody_knows(cluster, "orders", 4)
            answer = await cluster["b"].done(
                "queue/enqueue", body("orders", [{"fairness_key": key} for key in TENANTS])
            )
            for row, key in zip(answer["results"], TENANTS, strict=True):
                assert partition_of_id(row["id"]) == partition_of_key(key, 4)
            assert {each["fairness_key"] for each in await taken(cluster["a"], "orders")} == set(TENANTS)

    run(main())
