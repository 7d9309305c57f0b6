"""A Spark cluster in miniature: a standalone master and two workers on loopback, one of which is killed mid-job.

``python -m tests.spark.cluster journal|queue|sink`` prints what came of it.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from fairlane.client import Client
from fairlane.spark.java import find_java, make_java_home
from tests.kit.waiting import PATIENCE_S
from tests.spark.chaos import Driver, Outcome, counted
from tests.spark.queues import address, fill, until
from tests.system.server_process import ROOT, ServerProcess, serving

_ROWS = 20_000
_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"


class Daemon:
    """A process of the cluster, with what it starts, in a group of its own."""

    def __init__(self, folder: Path, name: str, *arguments: str) -> None:
        self.log = folder / f"{name}.log"
        home = make_java_home(folder / "java", java=find_java(os.environ))
        environ = os.environ | {"JAVA_HOME": str(home), "PYSPARK_PYTHON": sys.executable, "SPARK_NO_DAEMONIZE": "1"}
        role = name.partition("-")[0]
        kind = f"org.apache.spark.deploy.{role}.{role.capitalize()}"
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                [str(_CLASS), kind, "--host", "127.0.0.1", "--webui-port", "0", *arguments],
                cwd=folder,
                env=environ,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def says(self, pattern: str) -> bool:
        """Return whether its log contains a text."""
        return re.search(pattern, self.log.read_text()) is not None

    def kill(self) -> None:
        """Kill it, and its executors."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(timeout=PATIENCE_S)


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[str, list[Daemon]]]:
    """Start a master and two workers; yield the master's address and the workers."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    master = Daemon(folder, "master", "--port", str(port))
    daemons = [master]
    try:
        until(lambda: master.says("Starting Spark master"))
        place = f"spark://127.0.0.1:{port}"
        for number in (1, 2):
            work = str(folder / f"work-{number}")
            daemons.append(Daemon(folder, f"worker-{number}", "-c", "1", "-m", "1g", "--work-dir", work, place))
        for worker in daemons[1:]:
            until(lambda worker=worker: worker.says("Successfully registered with master"))  # type: ignore[misc] # mypy knows no defaults of lambdas
        yield place, daemons[1:]
    finally:
        for daemon in daemons:
            daemon.kill()


def lose_a_worker(kind: str, folder: Path, server: ServerProcess) -> Outcome:
    """Run a query on a cluster, kill a worker once it has done something, and count."""
    with Client(address(server)) as client, cluster(folder) as (master, workers):
        client.create_queue("orders")
        sent = fill(client, _ROWS) if kind != "sink" else []
        driver = Driver(kind, folder, address(server), rows=_ROWS, master=master)
        assert driver.said("running"), (folder / "driver.log").read_text()[-3_000:]
        commits = folder / "checkpoint" / "commits"
        until(lambda: commits.is_dir() and sum(1 for _ in commits.glob("[0-9]*")) >= 3)
        workers[0].kill()
        assert driver.said("through"), (folder / "driver.log").read_text()[-3_000:]
        driver.end()
        return counted(f"{kind} on a cluster", folder, client, sent, kills=1, rows=_ROWS)


def main(kind: str) -> None:
    """Run it by hand."""
    with tempfile.TemporaryDirectory(prefix="fairlane-cluster-") as name:
        folder = Path(name)
        with serving(folder / "data") as server:
            print(lose_a_worker(kind, folder, server))


if __name__ == "__main__":
    os.chdir(ROOT)
    main(sys.argv[1])
