"""A cluster of real server processes on loopback, whose nodes tests can kill, stop and restart."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from tests.kit.waiting import PATIENCE_S, wait_until

_SERVER = ("-m", "fairlane.server")
_ANSWER_S = 5.0
_STOPPED = "T"
_PORTS = (10_000, 20_000)


class Node:
    """One node: a process that can be killed, stopped, resumed and restarted, always at the same address.

    Attributes:
        name: its name in the cluster.
        tls: how to connect to it; None if it does not use TLS.
        url: its address.
        process: its process, once it is started.
    """

    def __init__(
        self,
        name: str,
        store: str,
        folder: Path,
        *,
        flags: Sequence[str] = (),
        program: Sequence[str] = _SERVER,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Choose a port and a log file.

        Args:
            name: its name in the cluster.
            store: the URL of the store that all nodes share.
            folder: where its log is kept.
            flags: more settings of the server, such as ``--heartbeat-timeout-ms``.
            program: what Python runs; by default the server.
            tls: how to connect to it, if the flags make it use TLS.
        """
        self.name = name
        self._port = _free_port()
        self.tls = tls
        self.url = f"http{'' if tls is None else 's'}://127.0.0.1:{self._port}"
        self._log = folder / f"{name}.log"
        self._command = [sys.executable, *program, "--node", name, "--store", store, "--port", str(self._port), *flags]
        self.process: subprocess.Popen[bytes] | None = None
        self._is_silent = False

    def start(self) -> None:
        """Start the process without waiting until it answers."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLANE_")}
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._command, env=environ, stdout=log, stderr=log)

    def signal(self, number: int) -> None:
        """Send a signal to the process."""
        if self.process is not None:
            self.process.send_signal(number)

    def silence(self, number: int) -> None:
        """Send a signal after which the process answers nothing, until ``wake``."""
        self._is_silent = True
        self.signal(number)

    def wake(self, number: int) -> None:
        """Send the signal that ends the silence."""
        self.signal(number)
        self._is_silent = False

    def kill(self) -> None:
        """Kill the process, as a power cut would."""
        self.signal(signal.SIGKILL)
        self.wait()

    def wait(self) -> int | None:
        """Wait until the process has ended, and return its exit code."""
        return None if self.process is None else self.process.wait(timeout=PATIENCE_S)

    @property
    def is_up(self) -> bool:
        """Whether the process runs, and is neither stopped nor silent."""
        if self.process is None or self.process.poll() is not None or self._is_silent:
            return False
        return Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0] != _STOPPED

    @property
    def log(self) -> str:
        """The log of the process."""
        return self._log.read_text() if self._log.exists() else ""

    def view(self) -> dict[str, Any] | None:
        """Return the node's view of the cluster; None if it does not answer."""
        with (
            contextlib.suppress(OSError, urllib.error.URLError, ValueError),
            urllib.request.urlopen(f"{self.url}/v1/cluster", timeout=_ANSWER_S, context=self.tls) as answer,
        ):
            seen: dict[str, Any] = json.load(answer)
            return seen
        return None


class Cluster:
    """Nodes over one store, which run while the context lasts."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = list(nodes)

    @classmethod
    def of(
        cls, count: int, store: str, folder: Path, *, flags: Sequence[str] = (), tls: ssl.SSLContext | None = None
    ) -> Self:
        """Create nodes named ``n1``, ``n2`` and so on, over a store."""
        return cls([Node(f"n{number}", store, folder, flags=flags, tls=tls) for number in range(1, count + 1)])

    @property
    def addresses(self) -> str:
        """The addresses of all nodes, as a client expects them."""
        return ",".join(node.url for node in self.nodes)

    def start(self, nodes: Sequence[Node] | None = None) -> None:
        """Start nodes, all of them by default, and wait until they answer."""
        nodes = self.nodes if nodes is None else nodes
        for node in nodes:
            node.start()
        wait_until(lambda: all(self.answers(node) for node in nodes), what="The nodes answer")

    def answers(self, node: Node) -> bool:
        """Return whether a node answers.

        Raises:
            RuntimeError: it has ended, and never will.
        """
        if node.process is None or node.process.poll() is not None:
            raise RuntimeError(f"{node.name} ended: {node.log[-3000:]}")
        return node.view() is not None

    def view(self) -> dict[str, Any]:
        """Return the view that a running node has of the cluster."""
        for node in self.nodes:
            if node.is_up and (seen := node.view()) is not None:
                return seen
        return {"nodes": [], "groups": []}

    def owners(self) -> dict[str, str]:
        """Return the name of the node that owns each queue, of those that have an owner."""
        return {queue: group["owner"] for group in self.view()["groups"] for queue in group["queues"] if group["owner"]}

    def owner(self, queue: str) -> Node:
        """Wait until a queue has an owner, and return that node."""
        wait_until(lambda: queue in self.owners(), what=f"{queue} has an owner")
        name = self.owners()[queue]
        return next(node for node in self.nodes if node.name == name)

    def wait_for(self, queue: str, node: Node) -> None:
        """Wait until a node owns a queue."""
        wait_until(lambda: self.owners().get(queue) == node.name, what=f"{node.name} has {queue}")

    def end(self) -> None:
        """Kill all nodes that still run."""
        for node in self.nodes:
            if node.process is not None and node.process.poll() is None:
                node.kill()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def _free_port() -> int:
    """Return a free port outside the ephemeral range, so that no connection takes it meanwhile."""
    while True:
        port = random.randrange(*_PORTS)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
