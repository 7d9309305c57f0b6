"""A real server process, and a small stream client that shares no code with the Python client."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import msgspec
from websockets.sync.client import ClientConnection, connect

from tests.kit.waiting import PATIENCE_S

HttpClient = httpx.Client
HttpAnswer = httpx.Response
ROOT = Path(__file__).parents[2]
_ADDRESS = re.compile(r"listens on (https?)://(\S+)")
_HANDSHAKE_S = 10.0


class ServerProcess:
    """``python -m fairlane.server`` on a free port. It can be killed, suspended and restarted with the same data."""

    def __init__(self, data: Path, *flags: str) -> None:
        self._command = [sys.executable, "-m", "fairlane.server", "--port", "0", "--data", str(data), *flags]
        self.data = data
        self.process: subprocess.Popen[str] | None = None
        self.address = ""
        self.scheme = ""

    def start(self) -> None:
        """Start the server, and return once it listens."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLANE_")}
        self.process = self.popen(environ)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if (found := _ADDRESS.search(line)) is not None:
                self.scheme, self.address = found.groups()
                return
        raise AssertionError(f"the server ended with {self.process.wait()}")

    def popen(self, environ: dict[str, str]) -> subprocess.Popen[str]:
        """Start the process."""
        return subprocess.Popen(
            self._command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def signal(self, number: int) -> None:
        """Send a signal."""
        assert self.process is not None
        self.process.send_signal(number)

    def wait(self) -> int:
        """Wait for the end, and return the exit code."""
        assert self.process is not None
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.wait(timeout=PATIENCE_S)

    def kill(self) -> None:
        """Kill the process."""
        self.signal(signal.SIGKILL)
        self.wait()

    def http(self, **options: Any) -> httpx.Client:
        """Return an HTTP client."""
        return httpx.Client(base_url=f"{self.scheme}://{self.address}/v1", timeout=PATIENCE_S, **options)

    def stream(self, **options: Any) -> Stream:
        """Return a stream connection."""
        scheme = "wss" if self.scheme == "https" else "ws"
        address = f"{scheme}://{self.address}/v1/stream"
        options = {"subprotocols": ["fairlane.v1"], "compression": None, "max_size": None} | options
        return Stream(address, options)


@contextmanager
def serving(data: Path, *flags: str) -> Iterator[ServerProcess]:
    """Run a server while the context lasts."""
    with running(ServerProcess(data, *flags)) as server:
        yield server


@contextmanager
def running(server: ServerProcess) -> Iterator[ServerProcess]:
    """Start a server that has been prepared, and end it with the context."""
    server.start()
    try:
        yield server
    finally:
        if server.process is not None and server.process.poll() is None:
            server.kill()


def resident_bytes(server: ServerProcess) -> int:
    """Return the memory of a server."""
    assert server.process is not None
    pages = Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def connected(address: str, options: dict[str, Any]) -> ClientConnection:
    """Return a connection.

    Over TLS the library misses the answer to its handshake about once in some hundred times: it reads in another thread
    while this one writes. A client that did both in one thread missed none of 4,735. So it is tried again.
    """
    for _ in range(2):
        with suppress(TimeoutError):
            opened: ClientConnection = connect(address, open_timeout=_HANDSHAKE_S, **options)
            return opened
    last: ClientConnection = connect(address, open_timeout=PATIENCE_S, **options)
    return last


class Stream:
    """A stream client written from the protocol reference alone: arrays of msgpack."""

    def __init__(self, address: str, options: dict[str, Any]) -> None:
        self._open = ExitStack()
        self.socket: ClientConnection = self._open.enter_context(connected(address, options))
        self._number = 0
        self._frames: list[list[Any]] = []

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect."""
        self._open.close()

    def send(self, verb: str, **request: Any) -> int:
        """Send a call and return its number."""
        self._number += 1
        self.socket.send(msgspec.msgpack.encode([0, self._number, verb, request]))
        return self._number

    def frame(self) -> list[Any]:
        """Return the next frame."""
        if self._frames:
            return self._frames.pop(0)
        data = self.socket.recv(timeout=PATIENCE_S)
        assert isinstance(data, bytes)
        frame: list[Any] = msgspec.msgpack.decode(data)
        return frame

    def call(self, verb: str, **request: Any) -> Any:
        """Return the answer to a call, and keep other frames for later."""
        number = self.send(verb, **request)
        others: list[list[Any]] = []
        while True:
            frame = self.frame()
            if frame[0] in (1, 2) and frame[1] == number:
                self._frames = others + self._frames
                assert frame[0] == 1, frame
                return frame[2]
            others.append(frame)

    def deliveries(self, count: int) -> list[dict[str, Any]]:
        """Return the next deliveries."""
        found: list[dict[str, Any]] = []
        while len(found) < count:
            frame = self.frame()
            if frame[0] == 3:
                found += frame[2]
        return found
