"""Servers in processes of their own, started in a fraction of a second: each is forked from one that has it all loaded.

What the contract of transports needs is many servers with nothing in them. To start each from nothing would take most
of the time of its tests.
"""

from __future__ import annotations

import multiprocessing
import re
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Final

from fairlane.server.run import serve
from fairlane.server.settings import MEMORY, ServerSettings
from tests.kit.waiting import PATIENCE_S

_HTTP, _GRPC = re.compile(r"listens on http://(\S+)"), re.compile(r"gRPC +(\S+)")
_LAST = "  auth "
_context: Final = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["pytest", "fairlane.server.run", "fairlane.server.interfaces.grpc_server", "uvloop"])


def _serve(settings: ServerSettings, lines: Connection) -> None:
    serve(settings, echo=lines.send)


@contextmanager
def served() -> Iterator[tuple[str, str]]:
    """Run a server in memory while the context lasts; yield the addresses of HTTP and gRPC."""
    ours, theirs = _context.Pipe(duplex=False)
    settings = ServerSettings(port=0, grpc_port=0, data=MEMORY, log_level="error")
    process = _context.Process(target=_serve, args=(settings, theirs), daemon=True)
    process.start()
    theirs.close()
    with ours:
        try:
            said = ""
            while _LAST not in said:
                assert ours.poll(PATIENCE_S), f"the server said no more than: {said}"
                said += f"{ours.recv()}\n"
            yield f"http://{_found(_HTTP, said)}", _found(_GRPC, said)
        finally:
            process.kill()
            process.join()
            process.close()


def _found(pattern: re.Pattern[str], said: str) -> str:
    match = pattern.search(said)
    assert match is not None
    return match.group(1)
