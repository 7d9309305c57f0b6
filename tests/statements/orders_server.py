"""A server with the queue ``orders`` for statements about HTTP, and requests to it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Any

from tests.kit.waiting import PATIENCE_S
from tests.unit.server.local_server import LocalServer, opened, run

HELLO = base64.b64encode(b"hello").decode()


def on_server(test: Callable[[LocalServer], Awaitable[None]]) -> None:
    """Run a test on a server with the queue ``orders``."""

    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S), opened() as server:
            await test(server)

    run(main())


async def enqueued(server: LocalServer, **message: Any) -> dict[str, Any]:
    """Enqueue one message, and return its result."""
    answer = await server.post("queue/enqueue", {"queue": "orders", "messages": [message]})
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()["results"][0]
    return result


async def leased(server: LocalServer) -> dict[str, Any]:
    """Lease one message, and return the delivery."""
    delivery: dict[str, Any] = (await server.post("queue/dequeue", {"queue": "orders"})).json()["deliveries"][0]
    return delivery


def settling(delivery: dict[str, Any]) -> dict[str, Any]:
    """Return the body of a request that settles a delivery."""
    return {"queue": "orders", "receipts": [{"id": delivery["id"], "token": delivery["token"]}]}


async def with_state(server: LocalServer) -> None:
    """Enqueue a message that has workflow state."""
    await enqueued(server, payload=HELLO)
    body = settling(await leased(server))
    state = {"queue": "orders", "receipt": body["receipts"][0], "state": HELLO}
    assert (await server.post("queue/state/put", state)).status_code == 200
    assert (await server.post("queue/nack", body)).status_code == 200
