"""A revoked or expired API key ends its streams, subscriptions, long polls and gRPC consumers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from fairlane.gateway.caller import Caller
from fairlane.model.message import NewMessage
from fairlane.server.api_keys import _SWEEP_S
from fairlane.server.interfaces.http import HttpInterface
from fairlane.testing.clock import FakeClock
from fairlane.verbs.keys import Grant, RevokeKey
from fairlane.verbs.verb import Done
from fairlane.wire.grpc import broker_pb2 as broker
from tests.kit.waiting import PATIENCE_S
from tests.unit.server.grpc_client import called, trailing
from tests.unit.server.local_server import LocalServer, connected, opened, run

HOUR_MS = 3_600_000
Ending = Callable[[LocalServer, FakeClock, str], Awaitable[None]]


async def revoked(server: LocalServer, _: FakeClock, key: str) -> None:
    """Revoke the API key."""
    await server.context.api_keys.revoke(RevokeKey(id=key.split("_")[1]), Caller())


async def expired(server: LocalServer, clock: FakeClock, _: str) -> None:
    """Advance the clock until the API key has expired, and run the sweep."""
    clock.advance(HOUR_MS)
    server.context.api_keys.sweep()


ENDINGS = pytest.mark.parametrize("ending", [revoked, expired])


@asynccontextmanager
async def server_with_key() -> AsyncIterator[tuple[LocalServer, FakeClock, str]]:
    """Open a server and create an API key that is valid for an hour."""
    clock = FakeClock()
    async with opened(requires_auth=True, clock=clock) as server:
        yield server, clock, await server.key(Grant(right="consume"), expires_ms=clock.now_ms() + HOUR_MS)


async def nothing_leased(server: LocalServer) -> None:
    """Wait until no message of ``orders`` is in flight."""
    while (await server.broker.queue("orders")).leased:
        pass


@ENDINGS
def test_a_stream_is_closed(ending: Ending) -> None:
    """It closes with 1008 although it is idle, and its messages in flight return."""

    async def main() -> None:
        async with server_with_key() as (server, clock, key), connected(server, key=key) as socket:
            await socket.answer("consume", {"queue": "orders"}, Done)
            await server.broker.enqueue_many("orders", [NewMessage()])
            await socket.deliveries(1)
            await ending(server, clock, key)
            event = await socket.outgoing.get()
            assert (event["type"], event["code"]) == ("websocket.close", 1008)
            await nothing_leased(server)

    run(asyncio.wait_for(main(), PATIENCE_S))


@ENDINGS
def test_a_long_poll_gets_no_later_message(ending: Ending) -> None:
    """The wait ends with 401, and the next message stays in its queue."""

    async def main() -> None:
        async with server_with_key() as (server, clock, key):
            polling = asyncio.create_task(server.post("queue/dequeue", {"queue": "orders", "wait_ms": 60_000}, key=key))
            while not (await server.broker.queue("orders")).waiters:
                pass
            await ending(server, clock, key)
            assert (await polling).status_code == 401
            await server.broker.enqueue_many("orders", [NewMessage()])
            assert (await server.broker.queue("orders")).leased == 0

    run(asyncio.wait_for(main(), PATIENCE_S))


@ENDINGS
@pytest.mark.parametrize("path", ["subscribe", "watch"])
def test_a_subscription_ends(path: str, ending: Ending) -> None:
    """The answer ends, and messages that were not acknowledged return."""

    async def main() -> None:
        async with server_with_key() as (server, clock, key):
            await server.broker.enqueue_many("orders", [NewMessage()])
            events: asyncio.Queue[Any] = asyncio.Queue()
            fields = [(b"authorization", f"Bearer {key}".encode()), (b"content-type", b"application/json")]
            scope = {"type": "http", "method": "POST", "path": f"/v1/queue/{path}", "headers": fields}
            incoming: asyncio.Queue[Any] = asyncio.Queue()
            incoming.put_nowait({"type": "http.request", "body": b'{"queue": "orders"}'})
            serving = asyncio.create_task(HttpInterface(server.context)(scope, incoming.get, events.put))
            assert (await events.get())["status"] == 200
            assert (await events.get())["more_body"] is True
            await ending(server, clock, key)
            await serving
            assert not (await events.get()).get("more_body", False)
            await nothing_leased(server)

    run(asyncio.wait_for(main(), PATIENCE_S))


@ENDINGS
def test_a_grpc_consumer_ends(ending: Ending) -> None:
    """It ends with UNAUTHENTICATED although it is idle."""

    async def main() -> None:
        clock = FakeClock()
        async with called(requires_auth=True, clock=clock) as caller:
            key = await caller.server.key(Grant(right="consume"), expires_ms=clock.now_ms() + HOUR_MS)
            call = caller.broker.Consume(metadata=(("authorization", f"Bearer {key}"),))
            await call.write(broker.ConsumeRequest(open=broker.ConsumeOpen(queue="orders")))
            await call.initial_metadata()
            await ending(caller.server, clock, key)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call.read()
            assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED
            assert trailing(caught.value)["fairlane-code"] == "unauthenticated"

    run(asyncio.wait_for(main(), PATIENCE_S))


def test_the_server_notices_an_expired_key_within_a_second() -> None:
    """A background task sweeps again and again, with pauses shorter than a second."""
    assert _SWEEP_S < 1

    async def main() -> None:
        async with server_with_key() as (server, clock, key):
            caller = server.context.api_keys.caller(f"Bearer {key}")
            ended = asyncio.create_task(server.context.api_keys.ended(caller))
            sweeping = asyncio.create_task(server.context.api_keys.keep_sweeping())
            await asyncio.sleep(0)
            clock.advance(HOUR_MS)
            await asyncio.wait_for(ended, PATIENCE_S)
            sweeping.cancel()

    run(main())


def test_waiting_for_an_invalid_key_returns_at_once() -> None:
    """A waiter that starts after the key became invalid is answered at once."""

    async def main() -> None:
        async with server_with_key() as (server, clock, key):
            caller = server.context.api_keys.caller(f"Bearer {key}")
            await revoked(server, clock, key)
            await asyncio.wait_for(server.context.api_keys.ended(caller), PATIENCE_S)

    run(main())
