"""``fairlane pipeline run`` against real processes that are killed: the broker, and the command itself."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fairlane.cli.errors import INTERRUPTED
from fairlane.client import Client
from fairlane.spark.pipeline import read_manifest
from tests.docs.test_first_steps import free_port
from tests.kit.waiting import PATIENCE_S
from tests.spark.queues import address, until
from tests.system.server_process import ROOT, ServerProcess, serving


class FollowerProcess:
    """The command in a process of its own, and what it writes to standard error."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process, self.lines = process, list[str]()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            self.lines.extend(lines)

    def has_said(self, text: str) -> bool:
        """Return whether a line begins so."""
        return any(line.startswith(text) for line in list(self.lines))

    def metrics(self) -> str:
        """Return what a scrape gets."""
        (line,) = [line for line in list(self.lines) if line.startswith("Metrics: ")]
        with urllib.request.urlopen(line.split()[1], timeout=PATIENCE_S) as answer:
            return str(answer.read(), "utf-8")

    def end(self, number: int) -> int:
        """Send a signal, and return the exit code."""
        self.process.send_signal(number)
        code = self.process.wait(PATIENCE_S)
        self._reader.join()
        return code


@contextmanager
def following(server: ServerProcess, tables: Path) -> Iterator[FollowerProcess]:
    """Follow a server while the context lasts."""
    command = [
        sys.executable,
        "-m",
        "fairlane",
        "--server",
        address(server),
        "pipeline",
        "run",
        "--tables",
        str(tables),
    ]
    command += ["--interval", "200ms", "--metrics-listen", "127.0.0.1:0", "--master", "local[2]"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    follower = FollowerProcess(process)
    try:
        yield follower
    finally:
        if process.poll() is None:
            follower.end(signal.SIGKILL)


def enqueue(server: ServerProcess, count: int) -> None:
    with Client(address(server)) as client:
        if not client.queues():
            client.create_queue("orders")
        for _ in range(count):
            client.enqueue("orders", b"x", fairness_key="acme")


def has_events(tables: Path, count: int) -> bool:
    manifest = read_manifest(tables)
    return manifest is not None and manifest.events >= count


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_follower_outlives_its_server_and_itself(tmp_path: Path) -> None:
    """While the server is down it waits and says so; once it is back, and after kill -9, the tables catch up."""
    tables = tmp_path / "tables"
    with serving(tmp_path / "data", "--port", str(free_port())) as server:
        with following(server, tables) as follower:
            enqueue(server, 10)
            until(lambda: has_events(tables, 10))
            server.kill()
            until(lambda: follower.has_said("Attempt 2 failed"))
            assert 'fairlane_pipeline_last_error_timestamp_seconds{code="disconnected"}' in follower.metrics()
            server.start()
            enqueue(server, 10)
            until(lambda: has_events(tables, 20))
            until(lambda: follower.has_said("A run succeeded after"))
            assert re.search(r"^fairlane_pipeline_failures 0$", follower.metrics(), re.MULTILINE)
            until(lambda: follower.has_said("The tables are up to date"))
            follower.end(signal.SIGKILL)
        server.kill()
        with following(server, tables) as follower:  # it starts before the server does
            until(lambda: follower.has_said("Attempt 1 failed"))
            server.start()
            enqueue(server, 10)
            until(lambda: has_events(tables, 30))
            assert follower.end(signal.SIGTERM) == INTERRUPTED
