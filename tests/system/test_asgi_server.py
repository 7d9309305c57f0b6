"""The middleware in real servers: a uvicorn process for each framework, and real HTTP clients over loopback."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.kit.waiting import PATIENCE_S

from .asgi_apps import BUILDERS, IN_FLIGHT

ROOT = Path(__file__).parents[2]
State = dict[str, Any]


@pytest.fixture(scope="module", params=sorted(BUILDERS))
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    """Start a server on a socket that already listens, so that early clients are served once it is ready."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        port = listener.getsockname()[1]
        command = [sys.executable, "-m", "tests.system.asgi_server", request.param, str(listener.fileno())]
        process = subprocess.Popen(command, cwd=ROOT, pass_fds=[listener.fileno()])
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


class Client:
    """A client that can also observe and control the application."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http

    def send(self, tenant: str, name: str, body: bytes = b"", **headers: str) -> asyncio.Task[httpx.Response]:
        fields = {"x-tenant": tenant} | {key.replace("_", "-"): value for key, value in headers.items()}
        request = self.http.post("/work", params={"name": name}, headers=fields, content=body)
        return asyncio.ensure_future(_await(request))

    async def allow(self, count: int) -> State:
        return _json(await self.http.post("/control/allow", params={"count": count}))

    async def state(self, is_reached: Callable[[State], bool] = lambda _: True) -> State:
        """Return the state once it meets a condition."""
        while True:
            state = _json(await self.http.get("/control/state"))
            if is_reached(state):
                return state

    async def waiting(self, count: int) -> State:
        return await self.state(lambda state: state["waiting"] == count and state["running"] == IN_FLIGHT)

    async def finished(self, count: int) -> State:
        return await self.state(lambda state: state["finished"] == count and state["running"] == IN_FLIGHT)

    async def flood(self, tenant: str, count: int) -> list[asyncio.Task[httpx.Response]]:
        """Send requests until all slots are taken and the rest wait."""
        requests = [self.send(tenant, f"{tenant}-{number}") for number in range(count)]
        await self.waiting(count - IN_FLIGHT)
        return requests


async def _await(request: Awaitable[httpx.Response]) -> httpx.Response:
    return await request


def _json(response: httpx.Response) -> State:
    assert response.is_success
    state: State = response.json()
    return state


@asynccontextmanager
async def connect(server: str) -> AsyncIterator[Client]:
    # The client must give up an idle connection before the server does (5 s), or it may reuse one that has just closed.
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=1)
    # trust_env: a proxy set for this machine has no business here.
    async with httpx.AsyncClient(base_url=server, limits=limits, timeout=PATIENCE_S, trust_env=False) as http:
        assert (await http.post("/fresh")).status_code == 204
        yield Client(http)


def test_a_quiet_tenant_is_served_within_its_turns_in_a_flood(server: str) -> None:
    """Behind 200 requests of a noisy tenant, those of a quiet one start every other turn."""

    async def scenario() -> None:
        async with connect(server) as client:
            noisy = await client.flood("noisy", 200)
            quiet = [client.send("quiet", f"quiet-{number}") for number in range(5)]
            await client.waiting(201)
            await client.allow(205)
            responses = await asyncio.gather(*noisy, *quiet)
            state = await client.state(lambda state: state["in_flight"] == 0)
            assert Counter(response.status_code for response in responses) == {200: 205}
            started = [at for at, name in enumerate(state["started"]) if name.startswith("quiet")]
            for turn, at in enumerate(started, start=1):
                assert at <= IN_FLIGHT + 2 * turn
            assert state["running_max"] == IN_FLIGHT
            assert (state["granted"], state["finished"], state["waiting"], state["refused"]) == (205, 205, 0, {})

    asyncio.run(scenario())


def test_a_tenant_that_sends_one_at_a_time_never_waits_for_the_backlog(server: str) -> None:
    """Each request of a quiet tenant starts at most two turns after it came, however many of another tenant wait."""

    async def scenario() -> None:
        async with connect(server) as client:
            noisy = await client.flood("noisy", 100)
            for number in range(4):
                before = await client.state()
                request = client.send("quiet", f"quiet-{number}")
                state = await client.waiting(before["waiting"] + 1)
                turns = 0
                while f"quiet-{number}" not in state["started"]:
                    turns += 1
                    await client.allow(1)
                    state = await client.finished(before["finished"] + turns)
                assert turns <= 2
                await client.allow(IN_FLIGHT)
                assert (await request).status_code == 200
                await client.finished(before["finished"] + turns + IN_FLIGHT)
            await client.allow(100)
            assert Counter(response.status_code for response in await asyncio.gather(*noisy)) == {200: 100}

    asyncio.run(scenario())


def test_clients_that_disconnect_free_their_places(server: str) -> None:
    """Of 48 requests every 4th is aborted: those never start, all others are answered, and nothing is left."""

    async def scenario() -> None:
        async with connect(server) as client:
            first = await client.flood("first", IN_FLIGHT)
            requests = {f"{tenant}-{n}": client.send(tenant, f"{tenant}-{n}") for n in range(12) for tenant in "abcd"}
            await client.waiting(48)
            leaving = list(requests)[3::4]
            for name in leaving:
                requests.pop(name).cancel()
            state = await client.state(lambda state: state["disconnected"] == len(leaving))
            assert state["waiting"] == 36
            await client.allow(IN_FLIGHT + 36)
            responses = await asyncio.gather(*first, *requests.values())
            assert Counter(response.status_code for response in responses) == {200: IN_FLIGHT + 36}
            state = await client.state(lambda state: state["in_flight"] == 0)
            assert not set(leaving) & set(state["started"])
            assert state["running_max"] == IN_FLIGHT
            assert (state["granted"], state["finished"], state["waiting"]) == (40, 40, 0)

    asyncio.run(scenario())


def test_a_client_that_disconnects_while_running_frees_its_slot_when_the_application_ends(server: str) -> None:
    """The slot of an abandoned request is held while the application still works on it, and no longer."""

    async def scenario() -> None:
        async with connect(server) as client:
            running = await client.flood("first", IN_FLIGHT)
            next_one = client.send("next", "next-1")
            await client.waiting(1)
            for request in running:
                request.cancel()
            state = await client.state()
            assert (state["in_flight"], state["waiting"]) == (IN_FLIGHT, 1)
            await client.allow(IN_FLIGHT + 1)
            assert (await next_one).status_code == 200
            await client.state(lambda state: state["in_flight"] == 0)

    asyncio.run(scenario())


def test_refusals_reach_the_client_and_are_all_accounted_for(server: str) -> None:
    """Over its limit a tenant gets 429, a deadline that passes or is malformed 503 or 400, each with its code."""

    async def scenario() -> None:
        async with connect(server) as client:
            running = await client.flood("first", IN_FLIGHT)
            small = [client.send("small", f"small-{number}") for number in range(10)]
            state = await client.state(lambda state: state["refused"].get("key_full") == 8)
            assert state["waiting"] == 2
            late = await client.send("late", "late-1", x_deadline_ms="20")
            bad = await client.send("bad", "bad-1", x_deadline_ms="soon")
            await client.allow(IN_FLIGHT + 2)
            responses = await asyncio.gather(*running, *small)
            assert Counter(response.status_code for response in responses) == {200: IN_FLIGHT + 2, 429: 8}
            refused = next(response for response in responses if response.status_code == 429)
            assert refused.json()["error"]["code"] == "key_full"
            assert 1 <= int(refused.headers["retry-after"]) <= 60
            assert (late.status_code, late.json()["error"]["code"]) == (503, "deadline_passed")
            assert (bad.status_code, bad.json()["error"]["code"]) == (400, "invalid_argument")
            state = await client.state(lambda state: state["in_flight"] == 0)
            assert state["refused"] == {"key_full": 8, "deadline_passed": 1, "invalid_argument": 1}
            assert state["granted"] == IN_FLIGHT + 2

    asyncio.run(scenario())


def test_a_cap_holds_in_a_real_server(server: str) -> None:
    """A tenant capped at one runs one request at a time although slots are free for others."""

    async def scenario() -> None:
        async with connect(server) as client:
            capped = [client.send("capped", f"capped-{number}") for number in range(3)]
            await client.state(lambda state: state["running"] == 1 and state["waiting"] == 2)
            other = client.send("other", "other-1")
            state = await client.state(lambda state: state["running"] == 2)
            assert state["waiting"] == 2
            await client.allow(4)
            responses = await asyncio.gather(*capped, other)
            assert [response.status_code for response in responses] == [200] * 4

    asyncio.run(scenario())


@pytest.mark.parametrize("size", [10, 70_000, 1_000_000])
def test_bodies_sent_while_waiting_arrive_whole(server: str, size: int) -> None:
    """Small and large bodies of requests that had to wait reach the application unchanged."""
    body = bytes(at % 251 for at in range(size))

    async def scenario() -> None:
        async with connect(server) as client:
            running = await client.flood("first", IN_FLIGHT)
            request = client.send("upload", "upload-1", body)
            await client.waiting(1)
            await client.allow(IN_FLIGHT + 1)
            assert (await request).json()["sha256"] == hashlib.sha256(body).hexdigest()
            await asyncio.gather(*running)

    asyncio.run(scenario())
