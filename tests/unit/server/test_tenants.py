"""A tenant is who its API key says it is: what a grant with fairness keys holds a producer to."""

from __future__ import annotations

import base64
from collections import Counter
from typing import Any

import pytest

from fairlane.model.policy import QueuePolicy
from fairlane.verbs.keys import Grant

from .local_server import LocalServer, connected, opened, run

ACME = Grant(right="produce", keys=("acme",))
ACME_SINK = Grant(right="produce", keys=("acme",), sinks=("s",))


async def enqueued(server: LocalServer, key: str, *messages: dict[str, Any], queue: str = "orders") -> list[str]:
    """Enqueue messages, and return ``ok`` or the code of its error for each."""
    answer = await server.post("queue/enqueue", {"queue": queue, "messages": messages}, key=key)
    assert "results" in answer.json(), answer.text
    return [result.get("error", {}).get("code", "ok") for result in answer.json()["results"]]


def text(payload: str) -> str:
    """Return a payload as JSON has it."""
    return base64.b64encode(payload.encode()).decode()


async def waiting(server: LocalServer, queue: str = "orders") -> Counter[tuple[object, bytes | None]]:
    """Return the messages of a queue, by fairness key and payload."""
    found = await server.broker.peek(queue, count=1000, with_body=True)
    return Counter((view.fairness_key, view.payload) for view in found)


# -------------------------------------------------------------------------------------------------------- fairness keys


def test_a_header_that_declares_the_key_is_held_to_the_grant() -> None:
    """A producer of acme that declares bigcorp in a header is refused, and nothing of bigcorp's is dropped for it."""

    async def main() -> None:
        async with opened(requires_auth=True) as server:
            policy = QueuePolicy(fairness_key_from="header:tenant", key_waiting_max=100, backpressure="drop_oldest")
            await server.broker.create_queue("declared", policy)
            admin, acme = await server.key(Grant(right="admin")), await server.key(ACME)
            victim = {"headers": {"tenant": "bigcorp"}, "payload": text("mine")}
            assert await enqueued(server, admin, *[victim] * 100, queue="declared") == ["ok"] * 100
            forged = {"fairness_key": "acme", "headers": {"tenant": "bigcorp"}, "payload": text("forged")}
            own = {"headers": {"tenant": "acme"}, "payload": text("own")}
            told = await enqueued(server, acme, *[forged] * 100, own, queue="declared")
            assert told == ["forbidden"] * 100 + ["ok"]
            assert await waiting(server, "declared") == {("bigcorp", b"mine"): 100, ("acme", b"own"): 1}

    run(main())


def test_a_script_that_chooses_the_key_is_held_to_the_grant() -> None:
    """The key that a hook gives a message counts, not the one that its producer names."""

    async def main() -> None:
        async with opened(requires_auth=True) as server:
            script = "function on_enqueue(m) return {fairness_key = m.headers.tenant} end"
            await server.broker.create_queue("scripted", QueuePolicy(on_enqueue=script))
            acme = await server.key(ACME)
            forged = {"fairness_key": "acme", "headers": {"tenant": "bigcorp"}}
            assert await enqueued(server, acme, forged, {"headers": {"tenant": "acme"}}, queue="scripted") == [
                "forbidden",
                "ok",
            ]

    run(main())


def test_a_message_without_a_key_is_the_default_tenants() -> None:
    """A producer that is held to acme may not enqueue for the default key; one that is held to default may."""

    async def main() -> None:
        async with opened(requires_auth=True) as server:
            acme, default = await server.key(ACME), await server.key(Grant(right="produce", keys=("default",)))
            assert await enqueued(server, acme, {}, {"fairness_key": "acme"}) == ["forbidden", "ok"]
            assert await enqueued(server, default, {}) == ["ok"]

    run(main())


def test_a_producer_that_waits_for_room_is_still_held_to_its_grant() -> None:
    """When room appears, what a waiting enqueue may not enqueue is not enqueued either."""

    async def main() -> None:
        async with opened(requires_auth=True) as server:
            policy = QueuePolicy(fairness_key_from="header:tenant", waiting_max=1, backpressure="wait")
            await server.broker.create_queue("tight", policy)
            await server.broker.enqueue("tight", b"first")
            acme = await server.key(ACME)
            async with connected(server, key=acme) as socket:
                messages = [{"headers": {"tenant": "acme"}}, {"headers": {"tenant": "bigcorp"}}]
                number = socket.call("enqueue", {"queue": "tight", "messages": messages, "wait_ms": 60_000})
                (leased,) = await server.broker.lease("tight")
                await server.broker.ack(leased)
                frame = await socket.frame()
                assert frame.number == number  # type: ignore[union-attr]  # it is an answer
            assert list(await waiting(server, "tight")) == [("acme", b"")]

    run(main())


def test_forwarding_and_staging_are_held_to_the_grant() -> None:
    """Neither a forward nor a part of a sink takes a message for another tenant in, and neither is half done."""

    async def main() -> None:
        async with opened(requires_auth=True) as server:
            await server.broker.create_queue("next", QueuePolicy(fairness_key_from="header:tenant"))
            worker = await server.key(Grant(right="consume", queues="orders"), ACME_SINK)
            await server.broker.enqueue("orders", b"")
            (leased,) = await server.broker.lease("orders")
            receipt = {"id": leased.id, "token": leased.token}
            forged = {"fairness_key": "acme", "headers": {"tenant": "bigcorp"}}
            body = {"queue": "orders", "receipt": receipt, "messages": {"next": [forged]}}
            assert (await server.post("queue/forward", body, key=worker)).status_code == 403
            part = {"queue": "next", "sink": "s", "batch": 0, "part": "p", "at": 0}
            staged = await server.post("queue/sink/stage", {**part, "messages": [forged]}, key=worker)
            assert (staged.status_code, staged.json()["error"]["code"]) == (403, "forbidden")
            assert not await waiting(server, "next")
            own = {"headers": {"tenant": "acme"}}
            assert (await server.post("queue/forward", {**body, "messages": {"next": [own]}}, key=worker)).is_success
            assert (await server.post("queue/sink/stage", {**part, "messages": [own]}, key=worker)).is_success

    run(main())


def test_a_dead_letter_queue_is_no_way_around_the_grant() -> None:
    """A producer with fairness keys can't put messages among dead letters, whose keys are resolved at the redrive."""

    async def main() -> None:
        async with opened(requires_auth=True) as server:
            await server.broker.create_queue("declared", QueuePolicy(fairness_key_from="header:tenant"))
            acme = await server.key(ACME)
            forged = {"fairness_key": "acme", "headers": {"tenant": "bigcorp"}}
            assert await enqueued(server, acme, forged, queue="declared.dlq") == ["forbidden"]

    run(main())


# -------------------------------------------------------------------------------------------------------- dedup ids


def test_dedup_ids_of_one_tenant_mean_nothing_for_another() -> None:
    """A tenant that uses the dedup id of another neither suppresses the other's message nor learns its id."""

    async def main() -> None:
        async with opened(requires_auth=True) as server:
            key = await server.key(Grant(right="produce"))
            squatted = {"fairness_key": "acme", "dedup_id": "order-1001", "payload": text("attacker")}
            wanted = {"fairness_key": "bigcorp", "dedup_id": "order-1001", "payload": text("victim")}
            assert await enqueued(server, key, squatted, wanted, wanted, wanted | {"fairness_key": ["bigcorp", "web"]})
            assert await enqueued(server, key, wanted, squatted) == ["ok", "ok"]
            assert await waiting(server) == {("acme", b"attacker"): 1, ("bigcorp", b"victim"): 1}

    run(main())


def test_a_dedup_id_belongs_to_the_key_that_the_message_gets() -> None:
    """Where a header declares the key, it also says whose dedup id is meant."""

    async def main() -> None:
        async with opened() as server:
            await server.broker.create_queue("declared", QueuePolicy(fairness_key_from="header:tenant"))
            ids = [
                await server.broker.enqueue("declared", b"", headers={"tenant": tenant}, dedup_id="1")
                for tenant in ("a", "b", "a", "b")
            ]
            assert ids[:2] == ids[2:]
            assert ids[0] != ids[1]

    run(main())


# --------------------------------------------------------------------------------------------- weights and priorities


@pytest.mark.parametrize(
    ("policy", "message", "expected"),
    [
        ({}, {"weight": 1000}, "forbidden"),
        ({}, {"priority": "high"}, "ok"),
        ({"strict_priority": True}, {"priority": "high"}, "forbidden"),
        ({"strict_priority": True}, {"priority": "normal"}, "ok"),
        ({"weight_from": "header:w"}, {"headers": {"w": "9"}}, "forbidden"),
        ({"weight_from": "header:w"}, {}, "ok"),
        ({"weight_from": "9"}, {}, "ok"),
        ({"strict_priority": True, "priority_from": "header:p"}, {"headers": {"p": "high"}}, "forbidden"),
        ({"strict_priority": True, "priority_from": "high"}, {}, "ok"),
    ],
)
def test_a_tenant_does_not_set_its_own_share(policy: dict[str, Any], message: dict[str, Any], expected: str) -> None:
    """A grant with keys can't set a weight, nor under strict priority a priority, by field or by header."""

    async def main() -> None:
        async with opened(requires_auth=True) as server:
            await server.broker.create_queue("shared", QueuePolicy(**policy))
            acme, other = await server.key(ACME), await server.key(Grant(right="produce"))
            message["fairness_key"] = "acme"
            assert await enqueued(server, acme, message, queue="shared") == [expected]
            assert await enqueued(server, other, message, queue="shared") == ["ok"]

    run(main())


@pytest.mark.parametrize("message", [{"weight": 2}, {"priority": "high"}])
def test_a_queue_can_refuse_weights_of_all_producers(message: dict[str, Any]) -> None:
    """With ``producer_weights`` off, no producer sets weights or strict priorities, whatever its API key."""

    async def main() -> None:
        async with opened(requires_auth=True) as server:
            await server.broker.create_queue("shared", QueuePolicy(producer_weights=False, strict_priority=True))
            admin = await server.key(Grant(right="admin"))
            assert await enqueued(server, admin, message, {}, queue="shared") == ["forbidden", "ok"]

    run(main())


# -------------------------------------------------------------------------------------------------------- throttles


@pytest.mark.parametrize(
    ("grants", "throttles", "expected"),
    [
        ([ACME], ["stripe"], "forbidden"),
        ([ACME], [], "ok"),
        ([Grant(right="produce", keys=("acme",), throttles=("stripe",))], ["stripe"], "ok"),
        ([Grant(right="produce", keys=("acme",), throttles=("acme-*",))], ["acme-mail", "stripe"], "forbidden"),
        ([Grant(right="produce")], ["stripe"], "ok"),
        ([Grant(right="produce", throttles=())], ["stripe"], "forbidden"),
        ([Grant(right="produce", throttles=("stripe",))], ["stripe"], "ok"),
        ([ACME, Grant(right="produce", queues="other", throttles=("stripe",))], ["stripe"], "forbidden"),
    ],
)
def test_naming_a_throttle_is_a_right(grants: list[Grant], throttles: list[str], expected: str) -> None:
    """A grant names the throttles that its messages may name: any by default, none by default if it has keys."""

    async def main() -> None:
        async with opened(requires_auth=True) as server:
            key = await server.key(*grants)
            assert await enqueued(server, key, {"fairness_key": "acme", "throttles": throttles}) == [expected]

    run(main())


@pytest.mark.parametrize(
    ("source", "headers", "expected"),
    [
        ("stripe", {}, "ok"),
        ("tenant-{tenant}", {}, "ok"),
        ("header:provider", {"provider": "stripe"}, "forbidden"),
        ("{tenant}-{provider}", {"provider": "stripe"}, "forbidden"),
    ],
)
def test_a_throttle_that_the_producers_key_decides_needs_no_right(
    source: str, headers: dict[str, str], expected: str
) -> None:
    """A declared throttle that depends on nothing but the key's own header is the operator's; others are named."""

    async def main() -> None:
        async with opened(requires_auth=True) as server:
            policy = QueuePolicy(fairness_key_from="header:tenant", throttles_from=(source,))
            await server.broker.create_queue("declared", policy)
            message = {"headers": {"tenant": "acme", **headers}}
            assert await enqueued(server, await server.key(ACME), message, queue="declared") == [expected]

    run(main())


# -------------------------------------------------------------------------------------------------------- lease tokens


def test_no_view_shows_the_token_of_a_lease() -> None:
    """A consumer that looks at leased messages learns owner and expiry, not the token that would settle them."""

    async def main() -> None:
        async with opened() as server:
            await server.broker.enqueue("orders", b"")
            (leased,) = await server.broker.lease("orders", owner="worker-1")
            peeked = (await server.post("queue/peek", {"queue": "orders"})).json()["messages"][0]
            got = (await server.post("queue/get", {"queue": "orders", "id": leased.id})).json()
            explained = (await server.post("queue/explain", {"queue": "orders", "id": leased.id})).json()
            for view in (peeked, got):
                assert (view["owner"], view["expires_ms"]) == ("worker-1", leased.expires_ms)
            for view in (peeked, got, explained):
                assert "token" not in view
                assert leased.token not in view.values()

    run(main())
