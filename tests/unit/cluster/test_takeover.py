"""Nodes that end, or only lose their connection to the board, while the heartbeat timeout is far away."""

from __future__ import annotations

from tests.kit.waiting import until
from tests.unit.cluster.in_process import cluster_of
from tests.unit.cluster.test_serving import HELLO, leased, made, receipts
from tests.unit.server.local_server import run

NEVER_MS = 600_000


def test_a_node_whose_connection_is_gone_is_taken_over_at_once() -> None:
    """Others do not wait for the heartbeat timeout, neither of the node nor of its stores."""

    async def main() -> None:
        async with cluster_of("ab", heartbeat_timeout_ms=NEVER_MS) as cluster:
            await made(cluster, "orders", "mails")
            dead, (heir,) = cluster.owner("orders"), cluster.others("orders")
            await dead.done("queue/enqueue", {"queue": "orders", "messages": [HELLO, HELLO]})
            held = await leased(heir, "orders", visibility_ms=60_000)
            await dead.kill()
            await until(lambda: heir.groups.has("orders"), "it is taken over")
            assert await heir.done("queue/ack", receipts(held)) == {"results": [{}]}
            assert heir.node.lifecycle.takeovers == 1
            assert heir.node.live == {heir.name}

    run(main())


def test_a_node_that_only_lost_its_connection_goes_on_as_another() -> None:
    """It appears under a new name and opens its groups again, and the others consider it alive."""

    async def main() -> None:
        async with cluster_of("ab", heartbeat_timeout_ms=NEVER_MS) as cluster:
            await made(cluster, "orders", "mails")
            victim, (other,) = cluster.owner("orders"), cluster.others("orders")
            before = victim.node.process
            await victim.done("queue/enqueue", {"queue": "orders", "messages": [HELLO]})
            held = await leased(victim, "orders", visibility_ms=60_000)
            victim.line.lose_session()
            await until(lambda: victim.node.process != before, "it has a new name")
            assert victim.node.is_in_doubt(before)
            assert not victim.node.is_in_doubt(victim.node.process)
            new = victim.node.process
            await until(lambda: other.node.board.view.nodes[victim.name].incarnation == new, "others know it")
            await until(lambda: any(member.groups.has("orders") for member in (victim, other)), "it is served again")
            assert await other.done("queue/ack", receipts(held)) == {"results": [{}]}
            await until(lambda: other.node.live == {"a", "b"}, "both live")

    run(main())
