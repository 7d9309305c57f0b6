"""A client of a broker in its own process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from fairlane.assembly import open_async_broker
from fairlane.client import AsyncClient, Client
from fairlane.embedded import EmbeddedTransport


def test_nothing_of_tests_or_the_network_is_needed() -> None:
    """Opening one imports neither the test kit nor a server that listens."""
    script = (
        "import sys; from fairlane.client import Client\n"
        "with Client.embedded() as client: client.create_queue('orders')\n"
        "print([name for name in sys.modules if name.startswith(('fairlane.testing', 'uvicorn', 'grpc'))])"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


def test_what_was_enqueued_is_there_at_the_next_opening(tmp_path: Path) -> None:
    """The data is in the folder."""
    with Client.embedded(tmp_path / "data") as client:
        client.create_queue("orders")
        client.enqueue("orders", b"a teapot")
    with Client.embedded(tmp_path / "data") as client:
        assert client.lease("orders")[0].payload == b"a teapot"


def test_a_broker_that_is_given_is_shared_and_left_open() -> None:
    """Clients come and go, and the broker stays as its owner has it."""

    async def main() -> None:
        async with await open_async_broker() as broker:
            await broker.create_queue("orders")
            async with AsyncClient(EmbeddedTransport(broker)) as client:
                await client.enqueue("orders", b"x")
            assert (await broker.queue("orders")).waiting == 1

    asyncio.run(main())
