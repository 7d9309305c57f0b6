"""Clients over plain HTTP and gRPC whose server is killed, and comes back at the same place."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fairlane.client import AsyncClient, NewMessage, Transport
from fairlane.client.transport.grpc import GrpcTransport
from fairlane.client.transport.http import HttpTransport
from fairlane.client.transport.websocket import WebSocketTransport
from fairlane.errors import Disconnected, InvalidArgument, LeaseMismatch
from tests.kit.waiting import PATIENCE_S
from tests.unit.client.serving import ServerProcess, free_port

COUNT = 200


async def scenario(server: ServerProcess, transport: Transport) -> None:
    """Consume half of some messages, kill the server, and consume what is left when it is back."""
    async with AsyncClient(transport) as client:
        await client.create_queue("jobs", {"backoff_ms": 0, "backoff_jitter": 0.0, "visibility_timeout_ms": 1_500})
        ids = await client.enqueue_many("jobs", [NewMessage(payload=b"x")] * COUNT)
        acked: set[str] = set()
        async with client.consume("jobs", credit=20) as stream:
            while len(acked) < COUNT // 2:
                message = await anext(stream)
                await message.ack()
                acked.add(message.id)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            async with asyncio.timeout(PATIENCE_S):
                while len(acked) < COUNT:
                    message = await anext(stream)
                    assert message.id not in acked
                    try:
                        await message.ack()
                    except (Disconnected, LeaseMismatch):
                        continue  # it was leased before the kill, and comes again
                    acked.add(message.id)
            assert acked == set(ids)
            late = await client.enqueue("jobs", b"later")
            assert (await anext(stream)).id == late


@pytest.mark.parametrize("kind", [WebSocketTransport, HttpTransport, GrpcTransport])
def test_a_client_goes_on_when_its_server_is_back(tmp_path: Path, kind: type[Transport]) -> None:
    """A stream that was open when the server was killed brings every message that is left, and none that was acked."""
    port = free_port()
    with ServerProcess(tmp_path / "data", "--grpc-port", str(port)) as server:
        transport: Transport
        if kind is GrpcTransport:
            transport = GrpcTransport(f"grpc://127.0.0.1:{port}")
        else:
            transport = HttpTransport(server.url) if kind is HttpTransport else WebSocketTransport(server.url)
        asyncio.run(scenario(server, transport))


@pytest.mark.parametrize("transport", [HttpTransport, GrpcTransport])
def test_there_must_be_somebody_to_connect_to(transport: type[HttpTransport | GrpcTransport]) -> None:
    """Where nobody listens it is told at once, and an address that is none is refused."""
    scheme = "http" if transport is HttpTransport else "grpc"

    async def main() -> None:
        nobody = transport(f"{scheme}://127.0.0.1:{free_port()}", timeout=10)
        with pytest.raises(Disconnected):
            await nobody.connect()
        await nobody.close()

    asyncio.run(main())
    with pytest.raises(InvalidArgument):
        transport("127.0.0.1:7420")
