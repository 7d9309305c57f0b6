"""The commands ``cluster …`` against nodes that listen."""

from __future__ import annotations

import asyncio
import json

from click.testing import CliRunner, Result

from fairlane.cli.main import cli
from tests.kit.waiting import until
from tests.unit.cluster.in_process import Member, cluster_of
from tests.unit.cluster.test_serving import made
from tests.unit.server.local_server import run


async def typed(member: Member, *arguments: str) -> Result:
    """Run a command against a node, as somebody would type it."""
    options = ["--server", member.address, *arguments]
    return await asyncio.to_thread(CliRunner().invoke, cli, options)


async def ok(member: Member, *arguments: str) -> str:
    """Return what a command says that is to succeed."""
    result = await typed(member, *arguments)
    assert result.exit_code == 0, (result.stdout, result.stderr, result.exception)
    return result.stdout


def test_a_cluster_is_looked_at_and_changed() -> None:
    """Status shows nodes and groups; a queue is moved, a node drained and let in again."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await made(cluster, "orders")
            before, (to,) = cluster.owner("orders"), cluster.others("orders")
            shown = await ok(before, "cluster", "status")
            assert before.address in shown
            assert "a (this answer)" in shown
            assert "orders" in shown
            assert "to node" in await ok(before, "cluster", "move", "orders", to.name)
            await until(lambda: to.groups.has("orders"), "it has moved")
            view = json.loads(await ok(before, "-o", "json", "cluster", "status"))
            assert [group["home"] for group in view["groups"]] == [to.name]
            await ok(before, "cluster", "drain", to.name, "--yes")
            await until(lambda: before.groups.has("orders"), "it has come back")
            assert "draining" in await ok(before, "cluster", "status")
            assert "again" in await ok(before, "cluster", "drain", to.name, "--undo")
            assert "draining" not in await ok(before, "cluster", "status")

    run(main())


def test_queues_are_made_in_a_group() -> None:
    """Two queues of one group are together; the journal of the group is exported by one of them."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await ok(cluster["a"], "queue", "create", "first", "--group", "flow")
            await ok(cluster["b"], "queue", "create", "second", "--group", "flow")
            (group,) = (await cluster["a"].done("cluster"))["groups"]
            assert (group["name"], sorted(group["queues"])) == ("flow", ["first", "second"])

    run(main())


def test_keys_are_made_at_whichever_node_is_there() -> None:
    """Of several addresses the first that answers is asked."""

    async def main() -> None:
        async with cluster_of("a") as cluster:
            servers = f"http://127.0.0.1:1,{cluster['a'].address}"
            options = ["--server", servers, "key", "create", "ops", "--grant", "admin"]
            result = await asyncio.to_thread(CliRunner().invoke, cli, options)
            assert result.exit_code == 0, result.stderr
            assert len(cluster["a"].server.api_keys) == 1

    run(main())


def test_what_has_no_nodes_says_so() -> None:
    """A folder is refused before anything is asked, a node that is not there by the cluster."""

    async def main() -> None:
        async with cluster_of("a") as cluster:
            await made(cluster, "orders")
            result = await typed(cluster["a"], "cluster", "move", "orders", "z")
            assert (result.exit_code, "node_not_found" in result.stderr) == (1, True)
            folder = await asyncio.to_thread(CliRunner().invoke, cli, ["--data", "nowhere", "cluster", "status"])
            assert (folder.exit_code, "--data" in folder.stderr) == (2, True)

    run(main())
