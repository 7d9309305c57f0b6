"""Which calls for single messages share a request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from fairlane.client import AsyncClient, NewMessage
from fairlane.embedded import EmbeddedTransport
from fairlane.verbs.leases import Ack
from fairlane.verbs.messages import Enqueue
from fairlane.verbs.verb import Shape


class Counting(EmbeddedTransport):
    """A transport that notes how many items each request has."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    async def call(self, verb: str, request: Shape, *, wait_ms: int = 0) -> Any:
        if isinstance(request, (Enqueue, Ack)):
            self.sizes.append(len(request.messages if isinstance(request, Enqueue) else request.receipts))
        return await super().call(verb, request, wait_ms=wait_ms)


def sizes_of(scenario: Callable[[AsyncClient], Awaitable[object]]) -> list[int]:
    """Return the sizes of the requests that a scenario sends."""

    async def main() -> list[int]:
        transport = Counting()
        async with AsyncClient(transport) as client:
            await client.create_queue("jobs")
            await scenario(client)
        return transport.sizes

    return asyncio.run(main())


def test_calls_of_one_moment_share_a_request() -> None:
    """Thirty tasks that enqueue at the same time send one request each time, so they stay in step."""

    async def send(client: AsyncClient) -> None:
        for _ in range(3):
            await client.enqueue("jobs", b"x")

    async def scenario(client: AsyncClient) -> None:
        await asyncio.gather(*(send(client) for _ in range(30)))

    assert sizes_of(scenario) == [30, 30, 30]


def test_calls_one_after_the_other_wait_for_no_other() -> None:
    """After a request with one message, the next call is sent at once, without those that follow in the same moment."""

    async def scenario(client: AsyncClient) -> None:
        for count in (1, 1, 10, 10):
            await asyncio.gather(*(client.enqueue("jobs", b"x") for _ in range(count)))

    assert sizes_of(scenario) == [1, 1, 1, 9, 10]


def test_acknowledgements_that_nobody_awaits_share_a_request() -> None:
    """Thirty calls of ``ack_soon`` are one request."""

    async def scenario(client: AsyncClient) -> None:
        await client.enqueue_many("jobs", [NewMessage() for _ in range(30)])
        for message in await client.lease("jobs", 30):
            client.ack_soon(message)
        assert await client.flush() == []

    assert sizes_of(scenario) == [30, 30]
