"""A server with the queue ``orders`` for statements about HTTP, and requests to it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from fairlane.server.interfaces.asgi import Scope
from fairlane.server.interfaces.http import HttpInterface
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


@asynccontextmanager
async def streamed(
    server: LocalServer, method: str, path: str, body: bytes = b""
) -> AsyncIterator[asyncio.Queue[bytes]]:
    """Send a request whose answer does not end, and give the parts of it as they come; leave to hang up."""
    parts: asyncio.Queue[bytes] = asyncio.Queue()
    left = [body]

    async def receive() -> Any:
        if left:
            return {"type": "http.request", "body": left.pop()}
        return await asyncio.Future()  # it stays until it is cancelled

    async def send(event: Any) -> None:
        if event.get("body"):
            parts.put_nowait(event["body"])

    fields = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    path, _, query = path.partition("?")
    scope: Scope = {
        "type": "http", "method": method, "path": f"/v1/{path}", "query_string": query.encode(), "headers": fields,
    }  # fmt: skip
    answering = asyncio.create_task(HttpInterface(server.context)(scope, receive, send))
    yield parts
    assert not answering.done()
    answering.cancel()
    await asyncio.gather(answering, return_exceptions=True)
