"""Serves the stream in a process of its own: ``python -m tests.unit.client.serving FOLDER PORT``."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn

from fairlead.assembly import BrokerConfig, open_async_broker
from fairlead.server.doors import Doors
from fairlead.server.stream import serve_stream


@asynccontextmanager
async def stream_served(config: BrokerConfig, *, port: int = 0, keys: Any = None) -> AsyncIterator[str]:
    """Serve a broker's stream on loopback, and lend its address."""
    listening = socket.create_server(("127.0.0.1", port))
    async with await open_async_broker(config) as broker:
        doors = Doors(broker, keys=keys)

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await serve_stream(doors, scope, receive, send)

        options = uvicorn.Config(
            app,
            lifespan="off",
            log_level="critical",
            ws="websockets-sansio",
            ws_max_size=doors.limits.body_bytes_max,
            ws_per_message_deflate=False,
        )
        server = uvicorn.Server(options)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            yield f"ws://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            server.force_exit = True
            await serving


async def main() -> None:
    """Serve until killed, and say where."""
    config = BrokerConfig(path=Path(sys.argv[1]), owns_process=True)
    async with stream_served(config, port=int(sys.argv[2])) as url:
        print(url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
