"""Every verb, called by everyone, over every interface: who is allowed, written down by hand.

A verb that is added without a row here fails. What counts as refused is ``unauthenticated`` and ``forbidden`` alone;
that a message or queue is missing is found out only by those who may ask.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import grpc
import msgspec
import pytest
from google.protobuf.json_format import ParseDict
from google.protobuf.message_factory import GetMessageClass

from fairlane.server.interfaces.grpc_server import ADMIN, BATCHES, BROKER
from fairlane.server.interfaces.http import HttpInterface
from fairlane.verbs.errors import ErrorBody
from fairlane.verbs.keys import Grant
from fairlane.verbs.table import VERBS
from fairlane.wire.frames import CONSUME, SUBPROTOCOL, Answer, Refused
from tests.unit.server.grpc_client import GrpcClient, called, refused, trailing
from tests.unit.server.local_server import LocalServer, Socket, connected, run
from tests.unit.server.test_rights import RECEIPT, body_of

ROLES: Final[Mapping[str, tuple[Grant, ...]]] = {
    "other": tuple(Grant(right=right, queues="other*") for right in ("produce", "consume", "observe", "admin")),
    "tenant": (Grant(right="produce", queues="orders", keys=("acme",), sinks=("acme-*",)),),
    "producer": (Grant(right="produce", queues="orders"),),
    "consumer": (Grant(right="consume", queues="orders"),),
    "worker": (Grant(right="consume", queues="orders"), Grant(right="produce", queues="orders", keys=("acme",))),
    "viewer": (Grant(right="observe", queues="orders"),),
    "monitor": (Grant(right="observe"),),
    "owner": (Grant(right="admin", queues="orders"),),
    "admin": (Grant(right="admin"),),
}
"""The callers, besides one without an API key: nobody is to be surprised by what their grants include."""

PRODUCE = "tenant producer worker owner admin"
ANY_SINK = "producer owner admin"
CONSUME_ = "consumer worker owner admin"
READ = "tenant producer consumer worker owner admin"
OBSERVE = "consumer worker viewer monitor owner admin"
OBSERVE_ALL = "monitor admin"
OWN = "owner admin"
ALL = "admin"
ALLOWED: Final[Mapping[str, str]] = {
    "enqueue": PRODUCE,
    "begin_upload": PRODUCE,
    "upload_piece": PRODUCE,
    "drop_upload": PRODUCE,
    "uploads": PRODUCE,
    "read_payload": CONSUME_,
    "stage": ANY_SINK,
    "publish": ANY_SINK,
    "sinks": PRODUCE,
    "fan_out": PRODUCE,
    "lease": CONSUME_,
    "ack": CONSUME_,
    "forward": CONSUME_,
    "nack": CONSUME_,
    "extend": CONSUME_,
    "get": CONSUME_,
    "peek": CONSUME_,
    "explain": OBSERVE,
    "status": READ,
    "result": READ,
    "report_progress": CONSUME_,
    "get_state": CONSUME_,
    "set_state": CONSUME_,
    "stats": OBSERVE,
    "register_consumer": CONSUME_,
    "claim": CONSUME_,
    "read_claim": CONSUME_,
    "consumers": OBSERVE,
    "cancel": OWN,
    "create_queue": OWN,
    "ensure_queue": OWN,
    "update_queue": OWN,
    "delete_queue": OWN,
    "pause": OWN,
    "resume": OWN,
    "purge": OWN,
    "set_schedule": OWN,
    "ensure_schedule": OWN,
    "pause_schedule": OWN,
    "resume_schedule": OWN,
    "delete_schedule": OWN,
    "run_schedule": OWN,
    "get_schedule": OWN,
    "schedules": OWN,
    "inspect": OBSERVE,
    "redrive": OWN,
    "try_hook": OWN,
    "hook_statistics": OBSERVE,
    "release_consumer": OWN,
    "drop_sink": OWN,
    "split_queue": OWN,
    "queues": OBSERVE_ALL,
    "redrive_view": OBSERVE_ALL,
    "redrives": OBSERVE_ALL,
    "stop_redrive": ALL,
    "set_config": ALL,
    "list_config": ALL,
    "get_config": ALL,
    "throttles": OBSERVE_ALL,
    "read_journal": ALL,
    "set_reader": ALL,
    "remove_reader": ALL,
    "readers": ALL,
    "read_store": ALL,
    "cluster": OBSERVE_ALL,
    "move_queue": ALL,
    "drain_node": ALL,
    "create_key": ALL,
    "list_keys": ALL,
    "revoke_key": ALL,
}
"""Who may call each verb about the queue ``orders``; everyone else is refused."""

PART = {"queue": "orders", "sink": "s", "batch": 0, "part": "p", "at": 0}
OBJECTS: Final[Mapping[str, tuple[str, dict[str, Any], str]]] = {
    "enqueue for another tenant": (
        "enqueue",
        {"queue": "orders", "messages": [{"fairness_key": ["bigcorp"]}]},
        "producer owner admin",
    ),
    "enqueue for no tenant": ("enqueue", {"queue": "orders", "messages": [{}]}, "producer owner admin"),
    "enqueue with a weight": (
        "enqueue",
        {"queue": "orders", "messages": [{"fairness_key": ["acme"], "weight": 9}]},
        "producer owner admin",
    ),
    "enqueue with a throttle": (
        "enqueue",
        {"queue": "orders", "messages": [{"fairness_key": ["acme"], "throttles": ["stripe"]}]},
        "producer owner admin",
    ),
    "enqueue into another queue": ("enqueue", {"queue": "private", "messages": [{}]}, "admin"),
    "enqueue dead letters": ("enqueue", {"queue": "orders.dlq", "messages": [{}]}, "admin"),
    "stage for another tenant": (
        "stage",
        {**PART, "messages": [{"fairness_key": ["bigcorp"]}]},
        "producer owner admin",
    ),
    "stage into a sink of its own": (
        "stage",
        {**PART, "sink": "acme-1", "messages": [{"fairness_key": ["acme"]}]},
        "tenant producer owner admin",
    ),
    "stage for another tenant into a sink of its own": (
        "stage",
        {**PART, "sink": "acme-1", "messages": [{"fairness_key": ["bigcorp"]}]},
        "producer owner admin",
    ),
    "publish to a sink of its own": (
        "publish",
        {"queue": "orders", "sink": "acme-1", "batch": 0, "parts": ["p"]},
        "tenant producer owner admin",
    ),
    "lease from a partition": ("lease", {"queue": "orders~0"}, CONSUME_),
    "lease from another queue": ("lease", {"queue": "private"}, "admin"),
    "look into the dead letters": ("peek", {"queue": "orders.dlq"}, "admin"),
    "fan out into another queue": (
        "fan_out",
        {"queue": "orders", "name": "f", "then": {"fairness_key": ["acme"]}, "messages": {"private": [{}]}},
        "admin",
    ),
    "fan out to a continuation for another tenant": (
        "fan_out",
        {"queue": "orders", "name": "f", "then": {"fairness_key": ["bigcorp"]}, "messages": {}},
        "producer owner admin",
    ),
    "forward into another queue": (
        "forward",
        {"queue": "orders", "receipt": RECEIPT, "messages": {"private": [{"fairness_key": ["acme"]}]}},
        "admin",
    ),
    "forward for oneself": (
        "forward",
        {"queue": "orders", "receipt": RECEIPT, "messages": {"orders": [{"fairness_key": ["acme"]}]}},
        "worker owner admin",
    ),
    "forward for another tenant": (
        "forward",
        {"queue": "orders", "receipt": RECEIPT, "messages": {"orders": [{"fairness_key": ["bigcorp"]}]}},
        "owner admin",
    ),
}
"""Verbs about other objects: what it is, the verb, the request, and who may."""


def request_of(name: str) -> dict[str, Any]:
    """Return a request about ``orders``; a message in it is for the tenant ``acme``."""
    if name == "publish":  # without parts protobuf can't tell the field from one that is missing
        return body_of(name) | {"parts": ["p"]}
    body = body_of(name)
    return body | {"messages": [{"fairness_key": ["acme"]}]} if body.get("messages") == [{}] else body


def verdict_of(code: str | None, results: list[Any] | None) -> str:
    """Return the code with which a right was refused, or ``allowed``."""
    codes = [code, *((result.get("error") or {}).get("code") for result in results or ())]
    return next((each for each in codes if each in ("unauthenticated", "forbidden")), "allowed")


async def over_http(server: LocalServer, name: str, request: dict[str, Any], key: str | None) -> str:
    """Return the verdict on a call over HTTP."""
    answer = (await server.post(VERBS[name].path, request, key=key)).json()
    return verdict_of(answer.get("error", {}).get("code"), answer.get("results"))


async def over_stream(server: LocalServer, name: str, request: dict[str, Any], key: str | None) -> str:
    """Return the verdict on a call over the stream, or on its handshake."""
    if key is None:
        return await handshake(server)
    async with connected(server, key=key) as socket:
        socket.call(name, request)
        while not isinstance(frame := await socket.frame(), (Answer, Refused)):
            pass
    if isinstance(frame, Refused):
        return verdict_of(frame.error.code, None)
    answer = msgspec.msgpack.decode(frame.answer)
    return verdict_of(None, answer.get("results"))


async def handshake(server: LocalServer) -> str:
    """Return the verdict on a stream without an API key."""
    socket = Socket()
    socket.may_write.set()
    socket.incoming.put_nowait({"type": "websocket.connect"})
    scope: dict[str, Any] = {"type": "websocket", "path": "/v1/stream", "headers": [(b"host", b"localhost")]}
    scope |= {"subprotocols": [SUBPROTOCOL], "extensions": {"websocket.http.response": {}}}
    await HttpInterface(server.context)(scope, socket.receive, socket.send)
    await socket.outgoing.get()
    body = msgspec.json.decode((await socket.outgoing.get())["body"])
    return verdict_of(msgspec.convert(body["error"], ErrorBody).code, None)


async def over_grpc(caller: GrpcClient, name: str, request: dict[str, Any], key: str | None) -> str:
    """Return the verdict on a call over gRPC."""
    services = {"Broker": BROKER, "Admin": ADMIN, "Batches": BATCHES}
    service, method = services[VERBS[name].service], VERBS[name].method
    described = service.methods_by_name[method]
    if name in ("forward", "fan_out"):
        request = request | {"messages": {queue: {"messages": news} for queue, news in request["messages"].items()}}
    sent = ParseDict(request, GetMessageClass(described.input_type)())
    call: Any = caller.channel.unary_unary(f"/{service.full_name}/{method}")
    metadata = () if key is None else (("authorization", f"Bearer {key}"),)
    try:
        data = await call(sent.SerializeToString(), metadata=metadata)
    except grpc.aio.AioRpcError as error:
        return verdict_of(trailing(error)["fairlane-code"], None)
    answer = GetMessageClass(described.output_type).FromString(data)
    codes = [{"error": {"code": each.error.code}} for each in getattr(answer, "results", ())]
    return verdict_of(None, codes)


async def check(caller: GrpcClient, name: str, request: dict[str, Any], allowed: str) -> None:
    """Compare what everyone is told, over every interface, with what is written down."""
    expected = {"nobody": "unauthenticated"} | {
        role: "allowed" if role in allowed.split() else "forbidden" for role in ROLES
    }
    keys = {role: await caller.server.key(*grants) for role, grants in ROLES.items()}
    for interface in ("http", "stream", "grpc"):
        found = {}
        for role in expected:
            key = keys.get(role)
            if interface == "grpc":
                found[role] = await over_grpc(caller, name, request, key)
            else:
                ask = over_http if interface == "http" else over_stream
                found[role] = await ask(caller.server, name, request, key)
        assert (interface, found) == (interface, expected)


def test_every_verb_has_a_row() -> None:
    """Whoever adds a verb decides here who may call it."""
    assert set(ALLOWED) == set(VERBS)


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_is_for_those_with_the_right(name: str) -> None:
    """HTTP, the stream and gRPC allow and refuse the same callers."""

    async def main() -> None:
        async with called(requires_auth=True) as caller:
            await check(caller, name, request_of(name), ALLOWED[name])

    run(main())


@pytest.mark.parametrize("what", OBJECTS)
def test_a_right_on_one_object_is_none_on_another(what: str) -> None:
    """Other queues, other tenants, weights and throttles are refused to those who were not given them."""

    async def main() -> None:
        async with called(requires_auth=True) as caller:
            await caller.server.broker.create_queue("private")
            await check(caller, *OBJECTS[what])

    run(main())


@pytest.mark.parametrize("role", ["nobody", *ROLES])
def test_streams_of_deliveries_are_for_consumers(role: str) -> None:
    """A channel of the stream and gRPC's Consume need the right to consume, as a lease does."""

    async def main() -> None:
        async with called(requires_auth=True) as caller:
            expected = "unauthenticated" if role == "nobody" else "allowed" if role in CONSUME_.split() else "forbidden"
            key = None if role == "nobody" else await caller.server.key(*ROLES[role])
            assert await over_stream(caller.server, CONSUME, {"queue": "orders"}, key) == expected
            if expected == "allowed":
                return
            consume: Any = caller.channel.stream_stream(f"/{BROKER.full_name}/Consume")
            call = consume(metadata=() if key is None else (("authorization", f"Bearer {key}"),))
            if role == "other":  # all others are refused unread, and grpc.aio reports sending to them as its own error
                opening = GetMessageClass(BROKER.methods_by_name["Consume"].input_type)()
                await call.write(ParseDict({"open": {"queue": "orders"}}, opening).SerializeToString())
            error = await refused(call.read())
            assert trailing(error)["fairlane-code"] == expected

    run(main())
