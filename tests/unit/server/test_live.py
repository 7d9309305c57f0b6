"""The live feed over HTTP: snapshots, rights, and no cost without viewers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from fairlane.broker.settings import Settings
from fairlane.model.message import NewMessage
from fairlane.server.interfaces.http import HttpInterface
from fairlane.testing.clock import FakeClock
from fairlane.verbs.keys import Grant
from tests.kit.waiting import PATIENCE_S

from .local_server import LocalServer, opened, run

GREEDY = "function on_enqueue(message) local x = 0 for i = 1, 20000 do x = x + i end return {} end"


class Feed:
    """The viewer's end of the feed."""

    def __init__(self, outgoing: asyncio.Queue[dict[str, Any]]) -> None:
        self._outgoing = outgoing

    async def read(self) -> dict[str, Any] | None:
        """Return the next snapshot; None at the end."""
        event = await self._outgoing.get()
        if not event.get("more_body"):
            return None
        kind, data = event["body"].decode().strip().split("\n")
        assert kind == "event: live"
        snapshot: dict[str, Any] = msgspec.json.decode(data.removeprefix("data: "))
        return snapshot

    async def until(self, is_wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the first snapshot that fulfils a condition."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                snapshot = await self.read()
                assert snapshot is not None
                if is_wanted(snapshot):
                    return snapshot


@asynccontextmanager
async def viewing(server: LocalServer, query: str = "", *, key: str | None = None) -> AsyncIterator[Feed]:
    """Watch the feed while the context lasts."""
    incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    outgoing: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    headers = [(b"host", b"localhost")] + ([] if key is None else [(b"authorization", f"Bearer {key}".encode())])
    scope = {"type": "http", "method": "GET", "path": "/v1/live", "headers": headers, "query_string": query.encode()}

    async def send(event: Any) -> None:
        outgoing.put_nowait(event)

    serving = asyncio.create_task(HttpInterface(server.context)(scope, incoming.get, send))
    started = await outgoing.get()
    assert (started["status"], dict(started["headers"])[b"content-type"]) == (200, b"text/event-stream")
    try:
        yield Feed(outgoing)
    finally:
        incoming.put_nowait({"type": "http.disconnect"})
        await serving


def test_snapshots_have_rates_and_shares() -> None:
    """Queues have rates of enqueued, leased and acknowledged messages; keys have served and entitled shares."""

    async def main() -> None:
        async with opened() as server, viewing(server, "queue=orders") as feed:
            snapshot = await feed.read()
            assert snapshot is not None
            assert snapshot["queue"]["keys"] == []
            news = [NewMessage(fairness_key="acme")] * 30 + [NewMessage(fairness_key="bakery", cost=2)] * 5
            await server.broker.enqueue_many("orders", news)
            await server.broker.ack_many("orders", await server.broker.lease("orders", 10))
            snapshot = await feed.until(lambda each: "queue" in each and bool(each["queue"]["windows"][0]["served"]))
            (orders,) = [queue for queue in snapshot["queues"] if queue["name"] == "orders"]
            assert (orders["waiting"], orders["leased"], orders["rates"]["enqueued"] > 0) == (25, 0, True)
            assert orders["rates"]["acked"] == orders["rates"]["leased"]
            keys = {each["key"]: each for each in snapshot["queue"]["keys"]}
            served = {key: each["windows"][0] for key, each in keys.items()}
            assert (served["acme"][:2], served["bakery"][:2]) == ([30, 7], [10, 6])
            assert served["acme"][2] == served["bakery"][2] == 6.5
            assert snapshot["queue"]["windows"][0]["jain"] == 1  # no key is a whole message away from its share
            assert (keys["acme"]["messages"], keys["bakery"]["messages"]) == (23, 2)

    run(main())


def test_snapshots_name_queues_whose_hooks_use_more_than_their_share() -> None:
    """A queue whose scripts are bypassed says why; one without scripts, or within its share, does not."""
    settings = Settings(hook_breaker_share_percent=1, hook_breaker_window_ms=100, hook_breaker_cooldown_ms=3_600_000)

    async def main() -> None:
        async with opened(settings=settings) as server, viewing(server) as feed:
            await server.broker.create_queue("greedy", {"on_enqueue": GREEDY})
            snapshot = await feed.until(lambda each: len(each["queues"]) > 1)
            assert [queue["bypass"] for queue in snapshot["queues"]] == [None, None]
            await server.broker.enqueue_many("greedy", [NewMessage()] * 50)
            snapshot = await feed.until(lambda each: any(queue["bypass"] for queue in each["queues"]))
            assert {queue["name"]: queue["bypass"] for queue in snapshot["queues"]} == {
                "greedy": "time",
                "orders": None,
            }

    run(main())


def test_snapshots_name_what_holds_a_key_back() -> None:
    """They name a pause, a reached cap, and a throttle without a token."""

    async def main() -> None:
        async with opened() as server:
            await server.broker.set_config("cap:orders:capped", "1")
            await server.broker.set_throttle("smtp", rate=0.001, burst=1)
            for key, throttles in (("capped", ()), ("paused", ()), ("throttled", ("smtp",))):
                news = [NewMessage(fairness_key=key, throttles=throttles)] * 2
                await server.broker.enqueue_many("orders", news)
            await server.broker.pause("orders", key="paused")
            await server.broker.lease("orders", 10)
            async with viewing(server, "queue=orders") as feed:
                snapshot = await feed.read()
                assert snapshot is not None
                held = {each["key"]: each["held_by"] for each in snapshot["queue"]["keys"]}
                assert held == {
                    "capped": {"kind": "cap"},
                    "paused": {"kind": "pause"},
                    "throttled": {"kind": "throttle", "name": "smtp"},
                }

    run(main())


def test_snapshots_have_the_streaming_consumers() -> None:
    """A consumer has its owner, credit and the time of its oldest lease, which extending does not change."""

    async def main() -> None:
        clock = FakeClock(1_000_000)
        async with opened(clock=clock) as server:
            await server.broker.enqueue_many("orders", [NewMessage()] * 3)
            async with server.broker.consume("orders", credit=2, owner="press") as stream:
                first = await anext(stream)
                clock.advance(5_000)
                await server.broker.extend(first)
                async with viewing(server, "queue=orders") as feed:
                    snapshot = await feed.read()
                    assert snapshot is not None
                    stream_now = {"owner": "press", "credit": 2, "leased": 2, "lease_ms": 1_000_000}
                    assert snapshot["streams"] == [stream_now]
                    for lease in (first, await anext(stream)):
                        await server.broker.ack(lease)
                    clock.advance(2_000)
                    later = await feed.until(lambda each: each.get("streams", [{}])[0].get("leased") == 1)
                    assert 1_005_000 <= later["streams"][0]["lease_ms"] <= 1_007_000

    run(main())


def test_keys_are_limited_and_can_be_searched() -> None:
    """A viewer gets as many keys as it asks for, and can find one that is not among them."""

    async def main() -> None:
        async with opened() as server:
            news = [NewMessage(fairness_key=f"tenant-{number}") for number in range(50)]
            await server.broker.enqueue_many("orders", [*news, NewMessage(fairness_key="tenant-7")])
            async with viewing(server, "queue=orders&keys_max=3") as feed:
                snapshot = await feed.read()
                assert snapshot is not None
                assert (len(snapshot["queue"]["keys"]), snapshot["queue"]["active_keys"]) == (3, 50)
                assert snapshot["queue"]["keys"][0]["key"] == "tenant-7"
            async with viewing(server, "queue=orders&match=NANT-49") as feed:
                snapshot = await feed.read()
                assert snapshot is not None
                assert [each["key"] for each in snapshot["queue"]["keys"]] == ["tenant-49"]

    run(main())


def test_the_rates_of_a_second_viewer_start_when_it_connects() -> None:
    """Events before that are not part of its rates."""

    async def main() -> None:
        async with opened() as server, viewing(server) as first:
            await server.broker.enqueue_many("orders", [NewMessage()] * 1_000)
            await first.read()
            async with viewing(server) as second:
                for _ in range(2):
                    snapshot = await second.read()
                    assert snapshot is not None
                    (orders,) = [queue for queue in snapshot["queues"] if queue["name"] == "orders"]
                    assert (orders["waiting"], orders["rates"]["enqueued"]) == (1_000, 0)

    run(main())


def test_without_viewers_no_records_are_folded() -> None:
    """The feed follows commits from the first viewer to the last."""

    async def main() -> None:
        async with opened() as server:
            assert not server.context.listeners
            async with viewing(server, "queue=orders"), viewing(server) as feed:
                await feed.read()
                assert (len(server.context.listeners), server.context.viewers.count) == (1, 2)
            assert not server.context.listeners
            assert server.context.tally.subscriptions == 0

    run(main())


def test_rights() -> None:
    """A viewer sees the queues it may consume from; producers and callers without an API key are rejected."""

    async def main() -> None:
        async with opened(requires_auth=True) as server:
            await server.broker.create_queue("secret")
            consumer = await server.key(Grant(right="consume", queues="orders"))
            producer = await server.key(Grant(right="produce"))
            async with viewing(server, key=consumer) as feed:
                snapshot = await feed.read()
                assert snapshot is not None
                assert [queue["name"] for queue in snapshot["queues"]] == ["orders"]
            for query, key, status in (
                ("", None, 401),
                ("", producer, 403),
                ("?queue=secret", consumer, 403),
                ("?queue=orders", producer, 403),
            ):
                fields = {} if key is None else {"authorization": f"Bearer {key}"}
                assert (await server.http.get(f"/v1/live{query}", headers=fields)).status_code == status

    run(main())


@pytest.mark.parametrize(
    ("query", "status", "word"),
    [
        ("keys_max=0", 400, "keys_max"),
        ("keys_max=9999", 400, "1000"),
        ("kees=1", 400, "kees"),
        ("keys_max=" + "9" * 5_000, 400, "keys_max"),
        ("queue=no", 404, "no"),
    ],
)
def test_invalid_parameters_are_rejected(query: str, status: int, word: str) -> None:
    """The error says what is wrong, before the feed starts."""

    async def main() -> None:
        async with opened() as server:
            answer = await server.http.get(f"/v1/live?{query}")
            assert (answer.status_code, word in answer.json()["error"]["cause"]) == (status, True)

    run(main())


def test_the_feed_ends_with_its_queue_and_with_the_server() -> None:
    """The feed of a deleted queue, and every feed of a server that shuts down, ends."""

    async def main() -> None:
        async with opened() as server, asyncio.timeout(PATIENCE_S):
            await server.broker.create_queue("short-lived")
            async with viewing(server, "queue=short-lived") as feed:
                await server.broker.delete_queue("short-lived")
                while await feed.read() is not None:
                    pass
            async with viewing(server) as feed:
                server.context.draining.set()
                while await feed.read() is not None:
                    pass
            assert (await server.http.get("/v1/live")).status_code == 503

    run(main())
