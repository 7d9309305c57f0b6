"""A cluster of real server processes on loopback, and what can befall them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from fairlead.testing.servers import wait_until

ROOT = Path(__file__).parents[2]
LEASE_MS = 1_500


class Node:
    """One node: a process that can be killed, stopped, woken and started again, always at the same address."""

    def __init__(self, name: str, store: str, folder: Path, *, lease_ms: int = LEASE_MS, skew_ms: int = 0) -> None:
        self.name = name
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.folder = folder / name
        self.folder.mkdir()
        module = ["fairlead.server"] if skew_ms == 0 else ["tests.system.skewed_server", str(skew_ms)]
        self._command = [sys.executable, "-m", *module, "--node", name, "--store", store, "--port", str(self.port)]
        self._command += ["--data", str(self.folder), "--lease-ms", str(lease_ms), "--advertise", self.url]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, without waiting."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLEAD_")}
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(self._command, cwd=ROOT, env=environ, stdout=log, stderr=log)

    def kill(self) -> None:
        """Kill it without a word."""
        self.signal(signal.SIGKILL)
        self.wait()

    def signal(self, number: int) -> None:
        """Send it a signal."""
        assert self.process is not None
        self.process.send_signal(number)

    def wait(self) -> int:
        """Return what it ends with."""
        assert self.process is not None
        return self.process.wait(timeout=60)

    @property
    def is_up(self) -> bool:
        """Whether the process is there and not stopped."""
        if self.process is None or self.process.poll() is not None:
            return False
        return Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T"

    @property
    def log(self) -> str:
        """What it has said."""
        return (self.folder / "log").read_text()


class Cluster:
    """Nodes over one store."""

    def __init__(self, store: str, folder: Path, *, count: int = 3, lease_ms: int = LEASE_MS) -> None:
        self._store = store
        self._folder = folder
        self._lease_ms = lease_ms
        self.nodes = [self.make(f"n{number}") for number in range(1, count + 1)]

    def make(self, name: str, *, store: str | None = None, skew_ms: int = 0) -> Node:
        """Return one more node, which is not started yet; its way to the store or its clock may be another."""
        return Node(name, store or self._store, self._folder, lease_ms=self._lease_ms, skew_ms=skew_ms)

    def start(self, nodes: Sequence[Node] | None = None) -> None:
        """Start nodes, all of them by default, and wait until they answer."""
        for node in self.nodes if nodes is None else nodes:
            node.start()
        for node in self.nodes if nodes is None else nodes:
            wait_until(lambda node=node: self.answers(node), what=f"{node.name} answers")  # type: ignore[misc] # bound early

    @property
    def addresses(self) -> str:
        """The addresses of all nodes, as a client wants them."""
        return ",".join(node.url for node in self.nodes)

    def view(self) -> dict[str, Any]:
        """Return how a node that is up sees the cluster."""
        for node in self.nodes:
            if node.is_up:
                try:
                    answer = httpx.get(f"{node.url}/v1/cluster", timeout=5)
                except httpx.HTTPError:
                    continue
                if answer.is_success:
                    seen: dict[str, Any] = answer.json()
                    return seen
        return {"nodes": [], "groups": []}

    def owners(self) -> dict[str, str]:
        """Return the name of the node that is to own each queue, as a node that is up sees it."""
        return {queue: group["home"] for group in self.view()["groups"] for queue in group["queues"] if group["home"]}

    def owner(self, queue: str) -> Node:
        """Return the node that is to own a queue, as soon as there is one."""
        wait_until(lambda: queue in self.owners(), what=f"{queue} has an owner")
        name = self.owners()[queue]
        return next(node for node in self.nodes if node.name == name)

    def answers(self, node: Node) -> bool:
        """Tell whether a node answers; one that has ended never will."""
        if node.process is None or node.process.poll() is not None:
            raise AssertionError(f"{node.name} ended: {node.log[-3000:]}")
        try:
            return httpx.get(f"{node.url}/v1/cluster", timeout=2).is_success
        except httpx.HTTPError:
            return False

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Kill what is left."""
        for node in self.nodes:
            if node.process is not None and node.process.poll() is None:
                node.kill()


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port
