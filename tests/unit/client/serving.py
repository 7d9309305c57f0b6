"""A real server in its own process, which tests can kill and restart."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.kit.waiting import PATIENCE_S


def free_port() -> int:
    """Return a free port."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


class ServerProcess:
    """A server on loopback, always at the same port, so that clients can reconnect."""

    def __init__(self, data: Path | str = ":memory:", *flags: str) -> None:
        self._command = [sys.executable, "-m", "fairlane.server", "--data", str(data), "--log-level", "error", *flags]
        self._port = free_port()
        self.process: subprocess.Popen[str] | None = None
        self.url = f"ws://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start the server, and wait until it accepts connections."""
        self.process = subprocess.Popen(
            [*self._command, "--port", str(self._port)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self.process.stdout is not None
        said = ""
        for line in self.process.stdout:
            said += line
            if re.search(r"^\s+auth ", line):
                self._knock()
                return
        raise AssertionError(f"The server did not start: {said}")

    def _knock(self) -> None:
        while True:  # the server prints its address shortly before it listens
            try:
                socket.create_connection(("127.0.0.1", self._port)).close()
            except ConnectionRefusedError:
                continue
            return

    def kill(self) -> None:
        """Kill the process."""
        assert self.process is not None
        self.process.kill()
        self._wait()

    def terminate(self) -> int:
        """Shut the server down gracefully, and return its exit code."""
        assert self.process is not None
        self.process.terminate()
        return self._wait()

    def _wait(self) -> int:
        assert self.process is not None
        assert self.process.stdout is not None
        code = self.process.wait(timeout=PATIENCE_S)
        self.process.stdout.close()
        self.process = None
        return code

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.process is not None:
            self.kill()
