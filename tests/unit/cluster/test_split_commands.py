"""The command ``cluster split``, and what commands show of queues that are split."""

from __future__ import annotations

import json

from tests.unit.cluster.in_process import cluster_of
from tests.unit.cluster.test_commands import ok, typed
from tests.unit.cluster.test_serving import made
from tests.unit.server.local_server import run


def test_a_queue_is_split_and_its_partitions_are_shown() -> None:
    """It says how many there are, status shows where each is, and which of them take nothing new."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await made(cluster, "orders")
            node = cluster["a"]
            assert "Split queues" not in await ok(node, "cluster", "status")
            assert await ok(node, "cluster", "split", "orders", "3") == 'Queue "orders" has 3 partitions.\n'
            fewer = json.loads(await ok(node, "-o", "json", "cluster", "split", "orders", "2"))
            assert (fewer["partitions"], fewer["made"]) in ((2, 2), (2, 3))  # 2 if the third is gone already
            shown = (await ok(node, "cluster", "status")).partition("Split queues\n")[2].splitlines()
            assert shown[0].split() == ["QUEUE", "PARTITION", "NODE"]
            found = [line.split()[:3] for line in shown[1:3]]
            assert found == [["orders", f"orders~{at}", cluster.owner(f"orders~{at}").name] for at in range(2)]

    run(main())


def test_what_can_not_be_split_is_refused() -> None:
    """Too many partitions, a queue that is not there, and no number."""

    async def main() -> None:
        async with cluster_of("a") as cluster:
            await made(cluster, "orders")
            for queue, partitions, code in (
                ("orders", "65", "invalid_argument"),
                ("orders", "0", "invalid_argument"),
                ("orders~1", "2", "invalid_argument"),
                ("orders.dlq", "2", "invalid_argument"),
                ("none", "2", "queue_not_found"),
            ):
                result = await typed(cluster["a"], "cluster", "split", queue, partitions)
                assert (result.exit_code, code in result.stderr) == (1, True), result.stderr
            assert (await typed(cluster["a"], "cluster", "split", "orders", "many")).exit_code == 2

    run(main())
