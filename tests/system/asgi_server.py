"""A server process: ``python -m tests.system.asgi_server <framework> <listening socket>``."""

from __future__ import annotations

import socket
import sys

import uvicorn

from fairlane.asgi.protocol import Receive, Scope, Send

from .asgi_apps import BUILDERS, Stage


class Fresh:
    """Serves one application until asked for a fresh one, so that each test has its own without a new process."""

    def __init__(self, framework: str) -> None:
        self._build = BUILDERS[framework]
        self._app = self._build(Stage())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/fresh":
            self._app = self._build(Stage())
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        else:
            await self._app(scope, receive, send)


def main(framework: str, listener: int) -> None:
    config = uvicorn.Config(Fresh(framework), lifespan="off", log_level="warning", backlog=1024)
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=listener)])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
