"""Config and keys are those of the cluster: set at any node, good at all within a second."""

from __future__ import annotations

import asyncio

from fairlane.gateway.caller import Caller
from fairlane.verbs.keys import CreateKey, Grant
from tests.kit.waiting import PATIENCE_S, until
from tests.unit.cluster.in_process import cluster_of
from tests.unit.cluster.test_serving import HELLO, made
from tests.unit.server.local_server import run


def test_config_is_in_every_group() -> None:
    """A value that is set at one node is in the engines of all groups, and of those that are opened later."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await made(cluster, "orders", "mails")
            await cluster["a"].done("config/set", {"values": {"weight:orders:acme": "3", "note": "x"}})
            for member in cluster.members.values():
                assert (await member.done("config/list"))["values"] == {"note": "x", "weight:orders:acme": "3"}
                assert (await member.done("config/get", {"key": "note"})) == {"value": "x"}
                assert (await member.done("config/get", {"key": "not"})) == {}
            engines = [cluster.owner(queue).groups.of(queue)._engine for queue in ("orders", "mails")]
            await until(lambda: all(engine.ledger.config.get("note") == "x" for engine in engines), "all have it")
            await cluster["b"].done("config/set", {"values": {"note": None}})
            await until(lambda: all("note" not in engine.ledger.config for engine in engines), "none has it")
            await made(cluster, "jobs")
            assert cluster.owner("jobs").groups.of("jobs")._engine.ledger.config["weight:orders:acme"] == "3"

    run(main())


def test_config_that_makes_no_sense_is_refused_as_a_whole() -> None:
    """One bad value, and nothing is set; keys of callers are not to be set this way."""

    async def main() -> None:
        async with cluster_of("a") as cluster:
            refused = await cluster["a"].post("config/set", {"values": {"note": "x", "weight:orders:acme": "much"}})
            assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_argument")
            assert (await cluster["a"].post("config/set", {"values": {"auth:key:x": "y"}})).status_code == 403
            assert (await cluster["a"].done("config/list"))["values"] == {}

    run(main())


def test_a_pattern_of_throttles_that_can_match_nothing_is_refused() -> None:
    """Patterns are set for all groups; one with a star in the middle, or too long for any name, changes nothing."""

    async def main() -> None:
        async with cluster_of("a") as cluster:
            await made(cluster, "orders")
            for pattern in ("ten*-a", "a*b*", "x" * 1_000 + "*"):
                refused = await cluster["a"].post("config/set", {"values": {f"throttle:{pattern}:rate": "10"}})
                assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_argument")
            assert (await cluster["a"].done("config/list"))["values"] == {}
            await cluster["a"].done("config/set", {"values": {"throttle:tenant-*:rate": "10"}})

    run(main())


def test_a_key_is_good_at_every_node_until_it_is_revoked() -> None:
    """Keys are made and revoked at any node; what one may do is checked by the owner of the queue too."""

    async def main() -> None:
        async with cluster_of("ab", requires_auth=True) as cluster:
            grants = {"all": Grant(right="admin"), "some": Grant(right="produce", queues="orders")}
            keys = {
                name: await cluster["a"].server.api_keys.create(CreateKey(name=name, grants=(grant,)), Caller())
                for name, grant in grants.items()
            }
            await until(lambda: len(cluster["b"].server.api_keys) == 2, "the other node knows them")
            admin, producer = (f"Bearer {keys[name].key}" for name in ("all", "some"))
            for member in cluster.members.values():
                await member.done("queues/create", {"queue": f"of-{member.name}"}, authorization=admin)
            await cluster["b"].done("queues/create", {"queue": "orders"}, authorization=admin)
            body = {"queue": "orders", "messages": [HELLO]}
            for member in cluster.members.values():
                await member.done("queue/enqueue", body, authorization=producer)
                assert (await member.post("queue/enqueue", body)).status_code == 401
                refused = await member.post("queue/dequeue", {"queue": "orders"}, authorization=producer)
                assert refused.status_code == 403
            ended = asyncio.create_task(
                cluster["a"].server.api_keys.ended(cluster["a"].server.api_keys.caller(producer))
            )
            await cluster["b"].done("keys/revoke", {"id": keys["some"].id}, authorization=admin)
            await asyncio.wait_for(ended, PATIENCE_S)
            await until(lambda: len(cluster["a"].server.api_keys) == 1, "the other node has heard of it")
            assert (await cluster["a"].post("queue/enqueue", body, authorization=producer)).status_code == 401

    run(main())


def test_values_of_keys_are_not_in_the_groups() -> None:
    """What only the doors need is on the board alone."""

    async def main() -> None:
        async with cluster_of("a", requires_auth=True) as cluster:
            request = CreateKey(name="n", grants=(Grant(right="admin"),))
            key = (await cluster["a"].server.api_keys.create(request, Caller())).key
            await cluster["a"].done("queues/create", {"queue": "orders"}, authorization=f"Bearer {key}")
            ledger = cluster["a"].groups.of("orders")._engine.ledger
            assert not [key for key in ledger.config if key.startswith("auth:")]

    run(main())
