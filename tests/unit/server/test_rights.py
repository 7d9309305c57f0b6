"""Keys and rights: every verb against every lack, and what is never shown."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.errors import Forbidden, InvalidArgument
from fairlane.gateway.caller import Caller, check_grant
from fairlane.model.message import NewMessage
from fairlane.verbs.keys import Grant
from fairlane.verbs.table import VERBS
from fairlane.verbs.verb import Right

from .local_server import connected, opened, run

RIGHTS: tuple[Right, ...] = ("produce", "consume", "observe", "admin")
SUFFICIENT: dict[Right, tuple[Right, ...]] = {
    "produce": ("produce", "admin"),
    "consume": ("consume", "admin"),
    "observe": ("observe", "consume", "admin"),
    "admin": ("admin",),
}
"""The rights that are enough where one is needed, written down by hand."""
RECEIPT = {"id": "0" * 16, "token": 1}
BODIES: dict[str, dict[str, Any]] = {
    "enqueue": {"queue": "orders", "messages": [{}]},
    "lease": {"queue": "orders"},
    "ack": {"queue": "orders", "receipts": [RECEIPT]},
    "fan_out": {"queue": "orders", "name": "f", "messages": {}, "then": {"fairness_key": ["acme"]}},
    "forward": {"queue": "orders", "receipt": RECEIPT, "messages": {}},
    "nack": {"queue": "orders", "receipts": [RECEIPT]},
    "extend": {"queue": "orders", "receipts": [RECEIPT]},
    "cancel": {"queue": "orders", "ids": ["0" * 16]},
    "get": {"queue": "orders", "id": "0" * 16},
    "explain": {"queue": "orders", "id": "0" * 16},
    "status": {"queue": "orders", "id": "0" * 16},
    "result": {"queue": "orders", "id": "0" * 16},
    "report_progress": {"queue": "orders", "receipt": RECEIPT},
    "get_state": {"queue": "orders", "id": "0" * 16},
    "set_state": {"queue": "orders", "receipt": RECEIPT},
    "update_queue": {"queue": "orders", "policy": {}},
    "set_schedule": {"queue": "orders", "name": "s", "spec": {"cron": "0 7 * * *"}},
    "ensure_schedule": {"queue": "orders", "name": "s", "spec": {"cron": "0 7 * * *"}},
    "pause_schedule": {"queue": "orders", "name": "s"},
    "resume_schedule": {"queue": "orders", "name": "s"},
    "delete_schedule": {"queue": "orders", "name": "s"},
    "run_schedule": {"queue": "orders", "name": "s"},
    "get_schedule": {"queue": "orders", "name": "s"},
    "try_hook": {"queue": "orders", "hook": "on_enqueue", "script": "x"},
    "redrive": {"queue": "orders"},
    "redrive_view": {"id": "x"},
    "stop_redrive": {"id": "x"},
    "set_config": {"values": {}},
    "set_reader": {"name": "x", "position": 0},
    "remove_reader": {"name": "x"},
    "upload_piece": {"queue": "orders", "id": "x", "index": 0},
    "drop_upload": {"queue": "orders", "id": "x"},
    "read_payload": {"queue": "orders", "id": "x"},
    "register_consumer": {"queue": "orders", "consumer": "c"},
    "claim": {"queue": "orders", "consumer": "c", "epoch": 1, "done": 0},
    "read_claim": {"queue": "orders", "consumer": "c", "claim": 1},
    "release_consumer": {"queue": "orders", "consumer": "c"},
    "stage": {"queue": "orders", "sink": "s", "batch": 0, "part": "p", "at": 0, "messages": [{}]},
    "publish": {"queue": "orders", "sink": "s", "batch": 0, "parts": []},
    "drop_sink": {"queue": "orders", "sink": "s"},
    "move_queue": {"queue": "orders", "node": "a"},
    "split_queue": {"queue": "orders", "partitions": 2},
    "drain_node": {"node": "a"},
    "create_key": {"name": "x", "grants": [{"right": "produce"}]},
    "revoke_key": {"id": "x"},
}
ABOUT_ALL = {name for name, verb in VERBS.items() if "queue" not in verb.request.__struct_fields__}


def body_of(name: str) -> dict[str, Any]:
    """Return a request that a verb can be asked with."""
    return BODIES.get(name, {} if name in ABOUT_ALL else {"queue": "orders"})


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_is_refused_without_its_right(name: str) -> None:
    """No key, a wrong key, another right and the right on another queue are refused; the right itself is not."""

    async def main() -> None:
        async with opened(requires_auth=True) as server:
            verb, body = VERBS[name], body_of(name)
            assert (await server.post(verb.path, body)).status_code == 401
            assert (await server.post(verb.path, body, key="fl_0_0")).status_code == 401
            for right in RIGHTS:
                on_another = await server.key(Grant(right=right, queues="another*"))
                assert (await server.post(verb.path, body, key=on_another)).status_code == 403
                answer = await server.post(verb.path, body, key=await server.key(Grant(right=right)))
                is_enough = any(right in SUFFICIENT[needed] for needed in verb.rights)
                assert (answer.status_code == 403) == (not is_enough)

    run(main())


def test_a_monitor_reads_metrics_and_views_and_changes_nothing() -> None:
    """The right to observe is enough for metrics, the list of queues and the live feed, and for nothing else."""

    async def main() -> None:
        async with opened(requires_auth=True) as server:
            monitor = await server.key(Grant(right="observe"))
            headers = {"authorization": f"Bearer {monitor}"}
            for page in ("/metrics", "/v1/queues", "/v1/queues/orders"):
                assert (await server.http.get(page, headers=headers)).status_code == 200
            for page in ("/v1/config", "/v1/journal"):
                assert (await server.http.get(page, headers=headers)).status_code == 403
            for path in ("queue/peek", "queue/lease", "queues/purge"):
                assert (await server.post(path, {"queue": "orders"}, key=monitor)).status_code == 403

    run(main())


def test_keys_and_metrics_are_for_admins() -> None:
    """Making, listing and revoking keys, and the pages, ask for the right to administer everything."""

    async def main() -> None:
        async with opened(requires_auth=True) as server:
            admin, other = await server.key(Grant(right="admin")), await server.key(Grant(right="admin", queues="a*"))
            made = {"name": "n", "grants": [{"right": "produce"}]}
            for path, body in (("keys/create", made), ("keys/list", {}), ("keys/revoke", {"id": "0"})):
                assert (await server.post(path, body, key=other)).status_code == 403
                assert (await server.post(path, body, key=admin)).status_code in (200, 404)
            for page in ("/metrics", "/v1/queues", "/v1/config", "/v1/journal", "/v1/queues/orders"):
                assert (await server.http.get(page)).status_code == 401
                headers = {"authorization": f"Bearer {other}"}
                assert (await server.http.get(page, headers=headers)).status_code == 403
            for page in ("/healthz", "/readyz", "/docs", "/openapi.json"):
                assert (await server.http.get(page)).status_code == 200

    run(main())


def test_a_key_is_shown_once_and_kept_as_a_hash() -> None:
    """Neither config, nor lists, nor the journal show a key or its hash, and config can't set one."""

    async def main() -> None:
        async with opened() as server:
            created = (await server.post("keys/create", {"name": "n", "grants": [{"right": "produce"}]})).json()
            secret = created["key"].rpartition("_")[2]
            kept = (await server.broker.list_private_config("auth:"))[f"auth:key:{created['id']}"]
            assert secret not in kept
            arrow = {"accept": "application/vnd.apache.arrow.stream"}
            shown = [
                (await server.post("keys/list")).text,
                (await server.post("config/list")).text,
                (await server.post("config/get", {"key": f"auth:key:{created['id']}"})).text,
                (await server.post("journal/read")).text,
                (await server.http.get("/v1/journal")).text,
                (await server.http.get("/v1/journal", headers=arrow)).content.decode("latin-1"),
            ]
            hashed = kept.partition('"hash":"')[2][:64]
            assert not any(secret in text or hashed in text for text in shown)
            refused = await server.post("config/set", {"values": {"auth:key:x": "{}"}})
            assert refused.status_code == 403

    run(main())


def test_a_revoked_or_expired_key_is_good_for_nothing() -> None:
    """From the moment a key is revoked or has expired it is refused, on open connections too."""

    async def main() -> None:
        async with opened(requires_auth=True) as server:
            admin, expired = (
                await server.key(Grant(right="admin")),
                await server.key(Grant(right="admin"), expires_ms=1),
            )
            answer = await server.post("queues/list", key=expired)
            assert "expired" in answer.json()["error"]["cause"]
            key = await server.key(Grant(right="consume"))
            async with connected(server, key=key) as socket:
                await socket.answer("stats", {"queue": "orders"}, dict[str, Any])
                await server.post("keys/revoke", {"id": key.split("_")[1]}, key=admin)
                socket.call("stats", {"queue": "orders"})
                closed = await socket.outgoing.get()
                assert (closed["type"], closed["code"]) == ("websocket.close", 1008)

    run(main())


@pytest.mark.parametrize(
    ("grant", "queue", "key", "is_allowed"),
    [
        (Grant(right="produce", queues="orders"), "orders", None, True),
        (Grant(right="produce", queues="orders"), "orders.dlq", None, False),
        (Grant(right="produce", queues="ord*"), "orders", None, True),
        (Grant(right="produce", keys=("acme",)), "orders", "acme", True),
        (Grant(right="produce", keys=("acme",)), "orders", ("acme", "mobile"), True),
        (Grant(right="produce", keys=("acme",)), "orders", "acme2", False),
        (Grant(right="produce", keys=("acme*",)), "orders", "acme2", True),
        (Grant(right="produce", keys=("*",)), "orders", "anybody", True),
        (Grant(right="consume"), "orders", None, False),
        (Grant(right="admin"), "orders", "anybody", True),
    ],
)
def test_producers_are_held_to_queues_and_fairness_keys(
    grant: Grant, queue: str, key: str | tuple[str, ...] | None, is_allowed: bool
) -> None:
    """A pattern is a name or a beginning, and of a path of keys the first counts.

    A message that names no key is checked when the broker knows which one it gets; see ``test_tenants``.
    """
    caller = Caller("n", (grant,))
    messages = [NewMessage(fairness_key=key)]
    if is_allowed:
        caller.check_producing(queue, messages)
    else:
        with pytest.raises(Forbidden):
            caller.check_producing(queue, messages)


@pytest.mark.parametrize(
    ("queues", "allowed", "refused"),
    [
        ("orders", ["orders~0", "orders~1", "orders~63"], ["orders~1.dlq", "orders2~1", "orders~x"]),
        ("orders.dlq", ["orders~0.dlq", "orders~1.dlq"], ["orders~1"]),
        ("orders*", ["orders~1", "orders~1.dlq", "orders2~1"], ["other~1"]),
        ("orders~1", [], ["orders~1", "orders"]),
    ],
)
def test_rights_on_a_queue_are_rights_on_its_partitions(queues: str, allowed: list[str], refused: list[str]) -> None:
    """However many there are by now: no key has to be made anew when a queue is split, and none is for a part of it."""
    caller = Caller("n", (Grant(right="consume", queues=queues),))
    for name in allowed:
        caller.check("consume", name)
    for name in refused:
        with pytest.raises(Forbidden):
            caller.check("consume", name)


@pytest.mark.parametrize(
    "grant",
    [
        Grant(right="produce", queues=""),
        Grant(right="produce", queues="a*b"),
        Grant(right="consume", keys=("a",)),
        Grant(right="produce", throttles=("a*b",)),
        Grant(right="admin", throttles=("a",)),
        Grant(right="produce", sinks=("a*b",)),
        Grant(right="consume", sinks=("a",)),
    ],
)
def test_a_grant_that_makes_no_sense_is_refused(grant: Grant) -> None:
    """An empty pattern, a star in the middle, and keys or throttles for others than producers are refused."""
    with pytest.raises(InvalidArgument):
        check_grant(grant)


def test_dead_letters_go_only_where_their_operator_has_a_right() -> None:
    """Who administers one queue can neither redrive into another nor send its dead letters there."""

    async def main() -> None:
        async with opened(requires_auth=True) as server:
            key = await server.key(Grant(right="admin", queues="orders*"))
            for path, body in (
                ("queues/redrive", {"queue": "orders.dlq", "target": "other"}),
                ("queues/update", {"queue": "orders", "policy": {"dead_letter_queue": "other.dlq"}}),
                ("queues/create", {"queue": "orders2", "policy": {"dead_letter_queue": "other.dlq"}}),
            ):
                assert (await server.post(path, body, key=key)).status_code == 403

    run(main())


def test_forwarding_needs_the_right_to_produce() -> None:
    """Who may consume one queue can't forward into another without the right to produce there."""

    async def main() -> None:
        async with opened(requires_auth=True) as server:
            key = await server.key(Grant(right="consume", queues="orders"))
            body = {"queue": "orders", "receipt": RECEIPT, "messages": {"orders": [{}]}}
            assert (await server.post("queue/forward", body, key=key)).status_code == 403

    run(main())
