"""Queue templates in a cluster: any node creates a missing queue, under the rights of the request that needs it."""

from __future__ import annotations

import asyncio
import json

from fairlane.client import AsyncClient
from fairlane.gateway.caller import Caller
from fairlane.verbs.keys import CreateKey, Grant
from tests.kit.waiting import PATIENCE_S, until
from tests.unit.cluster.in_process import Cluster, Member, cluster_of
from tests.unit.cluster.test_serving import HELLO, leased, receipts
from tests.unit.server.local_server import run

TEMPLATE = {"auto_create": True, "policy": {"max_attempts": 2}, "queues_max": 4}


async def set_template(cluster: Cluster, pattern: str, **headers: str) -> None:
    """Set a template at the first node, and wait until all nodes know it."""
    values = {f"queue_template:{pattern}": json.dumps(TEMPLATE)}
    members = list(cluster.members.values())
    await members[0].done("config/set", {"values": values}, **headers)
    await until(lambda: all(values.keys() <= member.node.board.view.config.keys() for member in members), "all know it")


async def policy_of(member: Member, queue: str, **headers: str) -> dict[str, object]:
    view: dict[str, dict[str, object]] = await member.done("queue/stats", {"queue": queue}, **headers)
    return view["policy"]


def test_any_node_creates_a_missing_queue() -> None:
    """Enqueues and leases at each node create queues with the template's policy, wherever the queues go."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await set_template(cluster, "jobs.*")
            for name in "ab":
                await cluster[name].done("queue/enqueue", {"queue": f"jobs.{name}", "messages": [HELLO]})
                assert (await policy_of(cluster["a"], f"jobs.{name}"))["max_attempts"] == 2
            answer = await cluster["b"].done("queue/dequeue", {"queue": "jobs.c"})
            assert answer == {"deliveries": []}
            refused = await cluster["a"].post("queue/enqueue", {"queue": "other", "messages": [HELLO]})
            assert (refused.status_code, refused.json()["error"]["code"]) == (404, "queue_not_found")
            await cluster["b"].done("queues/create", {"queue": "jobs.d"})
            assert (await policy_of(cluster["a"], "jobs.d"))["max_attempts"] == 2
            full = await cluster["a"].post("queue/enqueue", {"queue": "jobs.e", "messages": [HELLO]})
            assert "queues_max" in full.text

    run(main())


def test_enqueues_at_once_create_a_queue_once() -> None:
    """No message is lost when all nodes meet a missing queue at the same moment."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await set_template(cluster, "*")
            body = {"queue": "jobs", "messages": [HELLO]}
            await asyncio.gather(*(cluster[name].done("queue/enqueue", body) for name in "abababab"))
            assert (await cluster["a"].done("queue/stats", {"queue": "jobs"}))["waiting"] == 8

    run(main())


def test_a_forward_creates_a_queue_in_the_group_of_its_source() -> None:
    """Queues that forward to each other share a commit, so the new one joins the group of the other."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await set_template(cluster, "*")
            await cluster["a"].done("queue/enqueue", {"queue": "first", "messages": [HELLO]})
            (receipt,) = receipts(await leased(cluster["b"], "first"))["receipts"]
            forward = {"queue": "first", "receipt": receipt, "messages": {"next": [HELLO]}}
            await cluster["b"].done("queue/forward", forward)
            assert (await leased(cluster["a"], "next"))["payload"] == HELLO["payload"]

    run(main())


def test_a_producer_needs_no_other_right() -> None:
    """A key that may produce to a pattern creates queues there, at any node, and nowhere else."""

    async def main() -> None:
        async with cluster_of("ab", requires_auth=True) as cluster:
            keys = cluster["a"].server.api_keys
            admin = await keys.create(CreateKey(name="admin", grants=(Grant(right="admin"),)), Caller())
            some = await keys.create(CreateKey(name="p", grants=(Grant(right="produce", queues="jobs.*"),)), Caller())
            await until(lambda: len(cluster["b"].server.api_keys) == 2, "the other node knows the keys")
            boss, producer = f"Bearer {admin.key}", f"Bearer {some.key}"
            await set_template(cluster, "*", authorization=boss)
            for number, name in enumerate("abb"):
                body = {"queue": f"jobs.{number}", "messages": [HELLO]}
                await cluster[name].done("queue/enqueue", body, authorization=producer)
            refused = await cluster["a"].post(
                "queue/enqueue", {"queue": "mails", "messages": [HELLO]}, authorization=producer
            )
            assert refused.status_code == 403
            refused = await cluster["a"].post("queues/create", {"queue": "jobs.9"}, authorization=producer)
            assert refused.status_code == 403
            names = [view["name"] for view in (await cluster["b"].done("queues/list", authorization=boss))["queues"]]
            assert [name for name in names if not name.endswith(".dlq")] == ["jobs.0", "jobs.1", "jobs.2"]

    run(main())


def test_a_stream_creates_a_queue() -> None:
    """A consumer that attaches at either node gets what is enqueued later at the other."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await set_template(cluster, "*")
            for at, other in ("ab", "ba"):
                async with AsyncClient(cluster[at].address) as client, client.consume(f"jobs.{at}") as stream:
                    body = {"queue": f"jobs.{at}", "messages": [HELLO]}
                    await cluster[other].done("queue/enqueue", body)
                    message = await asyncio.wait_for(anext(stream), PATIENCE_S)
                    assert message.payload == b"hello"
                    await message.ack()

    run(main())
