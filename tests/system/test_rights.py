"""Every verb at every door against every lack of a right: refused with its code and status, and nothing is changed.

The verbs are those of the table that all doors are made from, so a new one without a request here fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import grpc
import pytest
from websockets.exceptions import ConnectionClosed

from fairlane.verbs.table import VERBS
from fairlane.wire.grpc import broker_pb2

from .doors import Door, GrpcInterface, HttpInterface, StreamDoor, bearer, outcome_of
from .grpc_process import GrpcServer, serving

DOORS = ("http", "stream", "grpc")
RIGHTS = ("produce", "consume", "observe", "admin")
STATUS = {
    ("http", "unauthenticated"): 401,
    ("http", "forbidden"): 403,
    ("stream", "unauthenticated"): 401,
    ("stream", "forbidden"): None,
    ("grpc", "unauthenticated"): "UNAUTHENTICATED",
    ("grpc", "forbidden"): "PERMISSION_DENIED",
}
OURS, OTHERS = "q-*", "another*"
LONG_MS = 600_000


@dataclass(frozen=True)
class Facts:
    """A queue in which every verb has something to do."""

    queue: str
    receipt: dict[str, Any]
    waiting: str
    redrive: str
    epoch: int
    api_key: str
    """The id of an API key that nobody uses."""

    @property
    def reader(self) -> str:
        """A reader of the journal that is registered."""
        return self.queue


def _staged(queue: str) -> dict[str, Any]:
    return {"queue": queue, "sink": "s", "batch": 0, "part": "p", "at": 0, "messages": [{"fairness_key": "acme"}]}


def _scheduled(queue: str) -> dict[str, Any]:
    """Return a schedule that fires in no test: on the 29th of February."""
    return {"queue": queue, "name": "s", "spec": {"cron": "0 0 29 2 *"}}


REQUESTS: dict[str, Callable[[Facts], dict[str, Any]]] = {
    "enqueue": lambda facts: {"queue": facts.queue, "messages": [{"fairness_key": "acme"}]},
    "lease": lambda facts: {"queue": facts.queue},
    "ack": lambda facts: {"queue": facts.queue, "receipts": [facts.receipt]},
    "forward": lambda facts: {
        "queue": facts.queue,
        "receipt": facts.receipt,
        "messages": {facts.queue: [{"fairness_key": "acme"}]},
    },
    "nack": lambda facts: {"queue": facts.queue, "receipts": [facts.receipt]},
    "extend": lambda facts: {"queue": facts.queue, "receipts": [facts.receipt]},
    "cancel": lambda facts: {"queue": facts.queue, "ids": [facts.waiting]},
    "get": lambda facts: {"queue": facts.queue, "id": facts.waiting},
    "peek": lambda facts: {"queue": facts.queue},
    "explain": lambda facts: {"queue": facts.queue, "id": facts.waiting},
    "get_state": lambda facts: {"queue": facts.queue, "id": facts.waiting},
    "set_state": lambda facts: {"queue": facts.queue, "receipt": facts.receipt},
    "status": lambda facts: {"queue": facts.queue, "id": facts.waiting},
    "result": lambda facts: {"queue": facts.queue, "id": facts.waiting},
    "report_progress": lambda facts: {"queue": facts.queue, "receipt": facts.receipt, "fraction": 0.5},
    "fan_out": lambda facts: {"queue": facts.queue, "name": "f", "messages": {}, "then": {"fairness_key": "acme"}},
    "begin_upload": lambda facts: {"queue": facts.queue, "fairness_key": "acme"},
    "upload_piece": lambda facts: {"queue": facts.queue, "id": facts.waiting, "index": 0, "data": ""},
    "drop_upload": lambda facts: {"queue": facts.queue, "id": facts.waiting},
    "uploads": lambda facts: {"queue": facts.queue},
    "read_payload": lambda facts: {"queue": facts.queue, "id": facts.waiting},
    "set_schedule": lambda facts: _scheduled(facts.queue) | {"name": "new"},
    "ensure_schedule": lambda facts: _scheduled(facts.queue) | {"name": "new"},
    "pause_schedule": lambda facts: {"queue": facts.queue, "name": "s"},
    "resume_schedule": lambda facts: {"queue": facts.queue, "name": "s"},
    "delete_schedule": lambda facts: {"queue": facts.queue, "name": "s"},
    "run_schedule": lambda facts: {"queue": facts.queue, "name": "s"},
    "get_schedule": lambda facts: {"queue": facts.queue, "name": "s"},
    "schedules": lambda facts: {"queue": facts.queue},
    "stats": lambda facts: {"queue": facts.queue},
    "create_queue": lambda facts: {"queue": f"{facts.queue}-new"},
    "ensure_queue": lambda facts: {"queue": f"{facts.queue}-new"},
    "update_queue": lambda facts: {"queue": facts.queue, "policy": {"max_attempts": 7}},
    "delete_queue": lambda facts: {"queue": facts.queue},
    "pause": lambda facts: {"queue": facts.queue},
    "resume": lambda facts: {"queue": facts.queue},
    "purge": lambda facts: {"queue": facts.queue},
    "queues": lambda _: {},
    "inspect": lambda facts: {"queue": facts.queue},
    "redrive": lambda facts: {"queue": f"{facts.queue}.dlq"},
    "redrive_view": lambda facts: {"id": facts.redrive},
    "redrives": lambda _: {},
    "stop_redrive": lambda facts: {"id": facts.redrive},
    "try_hook": lambda facts: {"queue": facts.queue, "hook": "on_enqueue", "script": "function on_enqueue(m) end"},
    "hook_statistics": lambda facts: {"queue": facts.queue},
    "set_config": lambda facts: {"values": {facts.queue: "on"}},
    "list_config": lambda _: {"prefix": "q-"},
    "get_config": lambda _: {"key": "q-"},
    "throttles": lambda _: {},
    "read_journal": lambda _: {"after": 0, "count": 10},
    "set_reader": lambda facts: {"name": f"{facts.reader}-new", "position": 0},
    "remove_reader": lambda facts: {"name": facts.reader},
    "readers": lambda _: {},
    "read_store": lambda _: {"after": 0},
    "register_consumer": lambda facts: {"queue": facts.queue, "consumer": "new"},
    "claim": lambda facts: {"queue": facts.queue, "consumer": "c", "epoch": facts.epoch, "done": 0},
    "read_claim": lambda facts: {"queue": facts.queue, "consumer": "c", "claim": 1},
    "release_consumer": lambda facts: {"queue": facts.queue, "consumer": "c"},
    "consumers": lambda facts: {"queue": facts.queue},
    "stage": lambda facts: _staged(facts.queue) | {"part": "new"},
    "publish": lambda facts: {"queue": facts.queue, "sink": "s", "batch": 0, "parts": ["p"]},
    "sinks": lambda facts: {"queue": facts.queue},
    "drop_sink": lambda facts: {"queue": facts.queue, "sink": "s"},
    "cluster": lambda _: {},
    "move_queue": lambda facts: {"queue": facts.queue, "node": "other"},
    "split_queue": lambda facts: {"queue": facts.queue, "partitions": 2},
    "drain_node": lambda _: {"node": "other"},
    "create_key": lambda facts: {"name": facts.queue, "grants": [{"right": "consume", "queues": facts.queue}]},
    "list_keys": lambda _: {},
    "revoke_key": lambda facts: {"id": facts.api_key},
}
"""A request for each verb that does something, or shows something, to one who has the right."""

IN_VAIN = {
    **dict.fromkeys(("cluster", "move_queue", "split_queue", "drain_node"), "invalid_argument"),
    "upload_piece": "upload_not_found",
}
"""What is refused to those who have the right: a server alone is no cluster, and an upload is for the key that began
it."""


class Guarded:
    """A server that asks for keys, with its doors, and one who may do everything."""

    def __init__(self, server: GrpcServer, admin: str) -> None:
        self.server = server
        self.doors: dict[str, Door] = {
            "http": HttpInterface(server),
            "stream": StreamDoor(server),
            "grpc": GrpcInterface(server),
        }
        self._http = server.http(headers=bearer(admin))
        self._position = 0
        self.unknown = "fl_0_0"
        self.expired = self.key({"right": "admin"}, expires_ms=1)
        self.revoked = self.key({"right": "admin"})
        self.post("/keys/revoke", id=self.revoked.split("_")[1])
        self.keys = {
            (right, queues): self.key({"right": right, "queues": queues})
            for right in RIGHTS
            for queues in ("*", OURS, OTHERS)
        }

    def close(self) -> None:
        """Hang up everywhere."""
        self._http.close()
        for door in self.doors.values():
            door.close()

    def post(self, path: str, **request: Any) -> Any:
        """Do something with all rights."""
        answer = self._http.post(path, json=request)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def key(self, *grants: dict[str, Any], expires_ms: int | None = None) -> str:
        """Make a key."""
        key: str = self.post("/keys/create", name="tester", grants=grants, expires_ms=expires_ms)["key"]
        return key

    def position(self) -> int:
        """Return how far the journal reaches: it moves with every change whatsoever."""
        while True:
            position: int = self.post("/journal/read", after=self._position)["position"]
            if position == self._position:
                return position
            self._position = position

    def facts(self, queue: str) -> Facts:
        """Make a queue with a message that is leased, one that waits, and a dead letter."""
        self.post("/queues/create", queue=queue, policy={"visibility_timeout_ms": LONG_MS})
        self.post("/queue/enqueue", queue=queue, messages=[{}, {}, {}])
        dead, held = self.post("/queue/dequeue", queue=queue, count=2)["deliveries"]
        self.post("/queue/nack", queue=queue, receipts=[_receipt(dead)], intent="dead")
        (waiting,) = [m["id"] for m in self.post("/queue/peek", queue=queue)["messages"] if m["status"] == "waiting"]
        self.post("/journal/reader/set", name=queue, position=0)
        redrive = self.post("/queues/redrive", queue=f"{queue}.dlq", is_dry_run=True)["id"]
        while self.post("/queues/redrive/view", id=redrive)["status"] == "running":
            pass
        api_key = self.key({"right": "consume", "queues": queue}).split("_")[1]
        if queue.endswith("_schedule"):
            self.post("/schedules/set", **_scheduled(queue))
        return Facts(queue, _receipt(held), waiting, redrive, self._batches(queue), api_key)

    def _batches(self, queue: str) -> int:
        """Register a consumer with an open claim and stage a batch, where it is about that; return the epoch."""
        epoch = 0
        if queue.endswith(("-claim", "-read_claim", "-release_consumer")):
            epoch = self.post("/queue/consumer/register", queue=queue, consumer="c")["epoch"]
        if queue.endswith("-read_claim"):
            self.post("/queue/consumer/claim", queue=queue, consumer="c", epoch=epoch, done=0)
        if queue.endswith(("-publish", "-drop_sink")):
            self.post("/queue/sink/stage", **_staged(queue))
        return epoch


def _receipt(delivery: dict[str, Any]) -> dict[str, Any]:
    return {"id": delivery["id"], "token": delivery["token"]}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """Serve, and ask for keys."""
    data: Path = tmp_path_factory.mktemp("data")
    with serving(data, "--auth", "true", "--durability", "os", "--auth-failures-per-second", "100000") as server:
        guarded = Guarded(server, (data / "admin.key").read_text().strip())
        yield guarded
        guarded.close()


def lacks(guarded: Guarded, verb: str, *, is_about_one: bool) -> Iterator[tuple[str, str | None, str]]:
    """Return every way not to have the right to a verb: what is lacking, the key, and the code it is refused with."""
    yield "no key", None, "unauthenticated"
    yield "an unknown key", guarded.unknown, "unauthenticated"
    yield "an expired key", guarded.expired, "unauthenticated"
    yield "a revoked key", guarded.revoked, "unauthenticated"
    needed = VERBS[verb].right
    for right in RIGHTS:
        is_included = (needed, right) == ("observe", "consume") or right in VERBS[verb].rights
        if not is_included and right not in (needed, "admin"):
            yield f"only the right to {right}", guarded.keys[right, "*"], "forbidden"
        yield f"{right} on other queues", guarded.keys[right, OTHERS], "forbidden"
        if not is_about_one:
            yield f"{right} on some queues only", guarded.keys[right, OURS], "forbidden"


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", DOORS)
def test_a_verb_asks_for_its_right(guarded: Guarded, name: str, verb: str) -> None:
    """Without it the verb is refused as it should be and changes nothing; with it, or as admin, it does its work."""
    door = guarded.doors[name]
    facts = guarded.facts(f"q-{name}-{verb}")
    request = REQUESTS[verb](facts)
    if (name, verb) == ("stream", "upload_piece"):
        request["data"] = b""  # elsewhere bytes are base64
    ask = partial(door.ask, verb, request)
    before = guarded.position()
    is_about_one = "queue" in request and verb != "move_queue"  # which moves those that share its group, too
    for lack, key, code in lacks(guarded, verb, is_about_one=is_about_one):
        outcome = ask(key=key)
        assert (lack, outcome.code, outcome.status) == (lack, code, STATUS[name, code])
    assert guarded.position() == before
    grants: list[dict[str, Any]] = [{"right": VERBS[verb].right, "queues": OURS if is_about_one else "*"}]
    if verb == "forward":
        grants.append({"right": "produce", "queues": OURS, "keys": ["acme"]})
    done = ask(key=guarded.key(*grants))
    assert done.code == IN_VAIN.get(verb, "ok")
    assert [result for result in (done.answer or {}).get("results", []) if "error" in result] == []


@pytest.mark.parametrize("verb", ["enqueue", "forward"])
@pytest.mark.parametrize("name", DOORS)
def test_producers_are_held_to_their_fairness_keys(guarded: Guarded, name: str, verb: str) -> None:
    """One message under another tenant's key has the whole request refused; nothing is enqueued.

    Which key a message without one gets is known when it is enqueued: an enqueue refuses that message alone, and a
    forward, which happens as a whole or not at all, is refused.
    """
    facts = guarded.facts(f"q-{name}-keys-{verb}")
    held = {"right": "produce", "queues": OURS, "keys": ["acme", "beta*"]}
    key = guarded.key(held, {"right": "consume", "queues": OURS})
    before = guarded.position()
    for other in ({"fairness_key": "bet"}, {"fairness_key": "acme2"}, *([{}] if verb == "forward" else [])):
        news = [{"fairness_key": "acme"}, other]
        request = REQUESTS[verb](facts) | {"messages": news if verb == "enqueue" else {facts.queue: news}}
        outcome = guarded.doors[name].ask(verb, request, key=key)
        assert (outcome.code, outcome.status) == ("forbidden", STATUS[name, "forbidden"])
    assert guarded.position() == before
    if verb == "enqueue":
        outcome = guarded.doors[name].ask(verb, REQUESTS[verb](facts) | {"messages": [{}]}, key=key)
        assert outcome.code == ("forbidden" if name == "http" else "ok")
        assert [result["error"]["code"] for result in outcome.answer["results"]] == ["forbidden"]
        assert guarded.position() == before
    news = [{"fairness_key": "acme"}, {"fairness_key": "beta-1"}]
    request = REQUESTS[verb](facts) | {"messages": news if verb == "enqueue" else {facts.queue: news}}
    assert guarded.doors[name].ask(verb, request, key=key).code == "ok"


@pytest.mark.parametrize("name", DOORS)
def test_forwarding_needs_the_right_where_it_goes(guarded: Guarded, name: str) -> None:
    """Who may consume here and produce elsewhere can't forward to here, and the message stays leased."""
    facts = guarded.facts(f"q-{name}-target")
    key = guarded.key({"right": "consume", "queues": OURS}, {"right": "produce", "queues": OTHERS})
    outcome = guarded.doors[name].ask("forward", REQUESTS["forward"](facts), key=key)
    assert (outcome.code, outcome.status) == ("forbidden", STATUS[name, "forbidden"])
    assert guarded.post("/queue/stats", queue=facts.queue)["leased"] == 1


def test_streams_ask_for_the_right_to_consume(guarded: Guarded) -> None:
    """A consumer over HTTP, the stream or gRPC without the right on its queue is refused, and holds nothing."""
    facts = guarded.facts("q-streams")
    server, before = guarded.server, guarded.position()
    for key, code in (
        (guarded.revoked, "unauthenticated"),
        (guarded.keys["produce", "*"], "forbidden"),
        (guarded.keys["consume", OTHERS], "forbidden"),
    ):
        with server.http(headers=bearer(key)) as http:
            for path in ("/queue/subscribe", "/queue/subscribeWithState", "/queue/watch"):
                refused = outcome_of(http.post(path, json={"queue": facts.queue}))
                assert (refused.code, refused.status) == (code, STATUS["http", code])
        opening = broker_pb2.ConsumeRequest(open=broker_pb2.ConsumeOpen(queue=facts.queue))
        with server.called() as (brokers, _), pytest.raises(grpc.RpcError) as ended:
            next(brokers.Consume(iter([opening]), metadata=tuple(bearer(key).items())))
        assert ended.value.code().name == STATUS["grpc", code]
        if code == "forbidden":
            with server.stream(additional_headers=bearer(key)) as stream:
                number = stream.send("consume", queue=facts.queue)
                kind, answered, error = stream.frame()
                assert (kind, answered, error["code"]) == (2, number, code)
    assert guarded.position() == before


def test_a_key_that_is_revoked_ends_what_is_open_under_it(guarded: Guarded) -> None:
    """Both kinds of streams end without another word, and what was held goes back."""
    facts = guarded.facts("q-revoked")
    key = guarded.key({"right": "consume", "queues": OURS})
    said: SimpleQueue[broker_pb2.ConsumeRequest | None] = SimpleQueue()
    said.put(broker_pb2.ConsumeRequest(open=broker_pb2.ConsumeOpen(queue=facts.queue)))
    with guarded.server.called() as (brokers, _), guarded.server.stream(additional_headers=bearer(key)) as stream:
        consuming = brokers.Consume(iter(said.get, None), metadata=tuple(bearer(key).items()))
        (delivery,) = next(consuming).deliveries
        guarded.post("/keys/revoke", id=key.split("_")[1])
        with pytest.raises(grpc.RpcError) as ended:
            next(consuming)
        said.put(None)
        assert ended.value.code().name == "UNAUTHENTICATED"
        with pytest.raises(ConnectionClosed) as closed:
            stream.frame()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008
    assert guarded.post("/queue/get", queue=facts.queue, id=delivery.id)["errors"][0]["reason"] == "release"
