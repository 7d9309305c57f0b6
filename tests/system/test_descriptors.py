"""File descriptors: however many connections are opened, callers are served and the store can write."""

from __future__ import annotations

import re
import resource
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path

from .server_process import ServerProcess, running

LIMIT = 1_024
SILENT = 1_300


class LimitedServer(ServerProcess):
    """A server that starts with a low limit of open files, and whose log is kept."""

    def __init__(self, data: Path, *flags: str, soft: int, hard: int) -> None:
        super().__init__(data, *flags)
        self.log = data.parent / "log"
        limit = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))"
        run = "import runpy, sys; sys.argv[0] = 'server'; runpy.run_module('fairlane.server', run_name='__main__')"
        self._command[1:3] = ["-c", f"{limit}; {run}"]

    def popen(self, environ: dict[str, str]) -> subprocess.Popen[str]:
        """Start the process with its log in a file."""
        with self.log.open("w") as log:
            return subprocess.Popen(self._command, env=environ, stdout=subprocess.PIPE, stderr=log, text=True)


def test_silent_connections_starve_neither_callers_nor_the_store(tmp_path: Path) -> None:
    """Under a limit of 1,024 files and 1,300 silent connections, a client with an API key and the store go on."""
    mine, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(mine, 4 * SILENT)), hard))
    server = LimitedServer(tmp_path / "data", "--auth", "true", soft=LIMIT, hard=LIMIT)
    with running(server), ExitStack() as stack:
        key = (tmp_path / "data" / "admin.key").read_text().strip()
        http = stack.enter_context(server.http(headers={"authorization": f"Bearer {key}"}))
        http.post("/queues/create", json={"queue": "orders"})
        host, port = server.address.split(":")
        for _ in range(SILENT):
            stack.enter_context(socket.create_connection((host, int(port))))
        for number in range(50):
            assert http.post("/queue/enqueue", json={"queue": "orders", "messages": [{}] * 9}).status_code == 200, (
                number
            )
        with server.http(headers={"authorization": f"Bearer {key}"}) as other:
            assert other.get("/queues/orders").json()["waiting"] == 450
        assert "The limit of open files, 1024, is too small for connections_max, 4096" in server.log.read_text()
        assert "Too many open files" not in server.log.read_text()


def test_the_soft_limit_is_raised(tmp_path: Path) -> None:
    """A server whose hard limit allows it raises its soft limit, says so, and accepts more than the soft limit."""
    server = LimitedServer(tmp_path / "data", soft=256, hard=8_192)
    with running(server):
        assert server.process is not None
        limits = Path(f"/proc/{server.process.pid}/limits").read_text()
        found = re.search(r"Max open files +(\d+) +(\d+)", limits)
        assert found is not None
        assert found.groups() == ("5184", "8192")
        assert "Raised the limit of open files from 256 to 5184." in server.log.read_text()
        assert "too small" not in server.log.read_text()
