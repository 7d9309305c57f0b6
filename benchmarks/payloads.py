"""Large payloads on every store: ``python -m benchmarks.payloads [--quick] [--check] [--size MB] [--store NAME ...]``.

For each store a server is started, and a payload of 1 GB goes in and out over HTTP (curl), the stream (the Python
client) and the command line. Meanwhile another tenant enqueues, leases and acknowledges small messages. The table has
how much the server's memory grew, exactly as the kernel counts it, the CPU seconds of the server and of PostgreSQL, and
what the other tenant waited, next to what it waited in the same run before.

The goals are that the memory of the server grows by at most 64 MiB, that a client takes at most 64 MiB more than for a
payload of 1 KB, and that the p99 of the other tenant at most doubles.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from benchmarks.report import Options, Report
from fairlane.client import Client
from tests.kit.servers.azurite import AzuriteServer
from tests.kit.servers.stores import PostgresServer, S3Server
from tests.system.server_process import ServerProcess, running

MIB: Final = 1024 * 1024
GROWTH_MIB_MAX: Final = 64.0
WAIT_FACTOR_MAX: Final = 2.0
ROUNDS_MIN: Final = 100
"""Of fewer rounds the 99th percentile is the longest."""
STORES: Final = ("memory", "log", "rocksdb", "postgresql", "s3", "azure")
_IDLE_S: Final = 8.0
"""Before each transfer the other tenant is alone with the server for at least this time, and for ``ROUNDS_MIN``."""
_IDLE_S_MAX: Final = 120.0
_PAUSE_S: Final = 0.01


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="64 MB on the log")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a goal is missed")
    parser.add_argument("--size", type=int, default=1_000, help="megabytes of the payload")
    parser.add_argument("--store", action="append", choices=STORES, help="only this store; repeatable")
    given = parser.parse_args()
    report = Report(Options(quick=given.quick, check=given.check))
    stores = given.store or (["log"] if given.quick else list(STORES))
    with tempfile.TemporaryDirectory() as folder:
        payload = Path(folder, "payload")
        size = (64 if given.quick else given.size) * 1_000_000
        digest = write_payload(payload, size)
        write_payload(Path(folder, "small"), 1_000)
        for name in stores:
            measure(report, name, Path(folder), payload, digest)
    report.finish()


def write_payload(path: Path, size: int) -> str:
    """Write a payload that does not compress, and return its digest."""
    digest = hashlib.sha256()
    with path.open("wb") as file:
        while size:
            part = os.urandom(min(size, MIB))
            digest.update(part)
            file.write(part)
            size -= len(part)
    return digest.hexdigest()


Processes = Callable[[], list[int]]
"""Returns the processes that belong to a store, besides the server."""


@contextmanager
def served(name: str, folder: Path) -> Iterator[tuple[ServerProcess, Processes]]:
    """Run a server on a store."""
    data = folder / f"data-{name}"
    if name in ("memory", "log", "rocksdb"):
        flags = ["--store", f"{name}:{folder / name}"] if name != "memory" else []
        with running(ServerProcess(Path(":memory:") if name == "memory" else data, *flags)) as server:
            yield server, list
    elif name == "postgresql":
        postgres = PostgresServer(settings=["max_wal_size=2GB"])
        with postgres, running(ServerProcess(data, "--store", postgres.url)) as server:
            yield server, postgres.pids
    elif name == "s3":
        with S3Server() as s3:
            s3.make_bucket("payloads")
            with running(ServerProcess(data, "--store", s3.url("payloads", "store"))) as server:
                yield server, list
    else:
        with AzuriteServer() as azure:
            azure.make_container("payloads")
            os.environ.update(azure.credentials)
            with running(ServerProcess(data, "--store", azure.url("payloads", "store"))) as server:
                yield server, list


# ------------------------------------------------------------------------------------------------------------ transfers


class Clients:
    """Runs client programs, and notes the most memory that one of them took."""

    _RUN: Final = """if True:
        import pathlib, resource, subprocess, sys
        code = subprocess.call(sys.argv[2:])
        with pathlib.Path(sys.argv[1]).open("a") as peaks:
            print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=peaks)
        sys.exit(code)
    """
    """A program begins with the peak of the one that starts it, so a small one starts it."""

    def __init__(self, folder: Path) -> None:
        self._peaks = folder / "peaks"

    def command(self, *command: str) -> list[str]:
        """Return a command that runs another and notes its peak."""
        return [sys.executable, "-c", self._RUN, str(self._peaks), *command]

    def peak_mib(self) -> float:
        """Return the most memory that a program has taken since the last call."""
        peaks = self._peaks.read_text().split()
        self._peaks.unlink()
        return max(map(int, peaks)) / 1024


def over_http(server: ServerProcess, payload: Path, clients: Clients) -> Callable[[], str]:
    """Send the payload in chunks, and return what reads it again and returns its digest."""
    address, raw = f"http://{server.address}/v1/queue", "content-type: application/octet-stream"
    with payload.open("rb") as file:
        curl = clients.command("curl", "-sf", "-T", "-", "-X", "POST", "-H", raw, f"{address}/enqueue?queue=large")
        subprocess.run(curl, stdin=file, check=True, stdout=subprocess.DEVNULL)

    def out() -> str:
        accept = ["-H", "accept: application/octet-stream", "-H", "content-type: application/json"]
        body = ["-d", '{"queue": "large"}']
        return digest_of(clients.command("curl", "-sf", *accept, *body, f"{address}/lease"))

    return out


def over_stream(server: ServerProcess, payload: Path, clients: Clients) -> Callable[[], str]:
    """Send and read the payload with the Python client, in a process of its own."""
    client = "import sys, hashlib; from fairlane.client import Client; c = Client(sys.argv[1]); c.connect()"
    address = f"ws://{server.address}"
    send = f"{client}; c.enqueue_stream('large', sys.argv[2])"
    subprocess.run(clients.command(sys.executable, "-c", send, address, str(payload)), check=True)
    read = "m, = c.lease('large'); r = m.reader(); d = hashlib.file_digest(r, 'sha256')"
    command = clients.command(sys.executable, "-c", f"{client}; {read}; print(d.hexdigest())", address)

    def out() -> str:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    return out


def over_cli(server: ServerProcess, payload: Path, clients: Clients) -> Callable[[], str]:
    """Send the payload from standard input, and read it on standard output."""
    command = clients.command(sys.executable, "-m", "fairlane", "--server", f"http://{server.address}")
    with payload.open("rb") as file:
        subprocess.run([*command, "enqueue", "large"], stdin=file, check=True, stdout=subprocess.DEVNULL)
    size = payload.stat().st_size
    return lambda: digest_of([*command, "consume", "large", "--count", "1", "--no-ack"], size=size)


def digest_of(command: list[str], size: int | None = None) -> str:
    """Return the digest of what a command prints, of ``size`` bytes if given."""
    digest = hashlib.sha256()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        left = size
        while part := process.stdout.read(MIB):
            digest.update(part if left is None else part[:left])
            left = None if left is None else max(0, left - len(part))
    return digest.hexdigest()


# ------------------------------------------------------------------------------------------------------------ measuring


def bystand(address: str, pipe: Connection) -> None:
    """Enqueue, lease and acknowledge small messages of another tenant, and send the seconds of each round."""
    with Client(f"ws://{address}") as client:
        client.ensure_queue("small")
        rounds: list[float] = []
        while True:
            begun = time.perf_counter()
            client.enqueue("small", b"x" * 100)
            (message,) = client.lease("small", wait_ms=60_000)
            message.ack()
            rounds.append(time.perf_counter() - begun)
            if pipe.poll(_PAUSE_S):
                pipe.recv()
                pipe.send(rounds)
                rounds = []


class Bystander:
    """Another tenant, in a process of its own."""

    def __init__(self, server: ServerProcess) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=bystand, args=(server.address, theirs), daemon=True)
        self._process.start()

    def rounds(self) -> list[float]:
        """Return how long the rounds since the last call took, in milliseconds, shortest first."""
        self._pipe.send(None)
        return sorted(1_000 * seconds for seconds in self._pipe.recv())

    def calm_rounds(self) -> list[float]:
        """Return how long rounds take while nothing else happens, as many as are judged unless that takes too long."""
        end_s = time.monotonic() + _IDLE_S_MAX
        self.rounds()
        threading.Event().wait(_IDLE_S)
        rounds = self.rounds()
        while len(rounds) < ROUNDS_MIN and time.monotonic() < end_s:
            threading.Event().wait(1)
            rounds = sorted(rounds + self.rounds())
        return rounds

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.join()


def peak_mib(server: ServerProcess, *, reset: bool = False) -> float:
    """Return the most memory that the server has had since the last reset."""
    assert server.process is not None
    folder = Path(f"/proc/{server.process.pid}")
    if reset:
        (folder / "clear_refs").write_text("5")
    line = next(line for line in (folder / "status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def at(rounds: list[float], share: float) -> float:
    """Return a percentile."""
    return rounds[min(len(rounds) - 1, int(share * len(rounds)))] if rounds else 0.0


def judge_bystander(report: Report, what: str, calm: list[float], busy: list[float]) -> None:
    """Compare how long a bystander waited while a payload went in and out with how long it waited before."""
    goal = f"{what}: p99 of a bystander, compared with before"
    if min(len(calm), len(busy)) < ROUNDS_MIN:
        report.not_run(goal)
    else:
        report.goal(goal, measured=at(busy, 0.99) / at(calm, 0.99), most=WAIT_FACTOR_MAX, unit=" times")


def cpu_s(pids: list[int]) -> float:
    """Return the CPU seconds of processes and of their children that have ended; 0 for one that has ended itself."""
    ticks = 0
    for pid in pids:
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


class Transfer:
    """What the server took during a transfer, from its creation to ``end``."""

    def __init__(self, server: ServerProcess, store: Processes, bystander: Bystander) -> None:
        assert server.process is not None
        self._server, self._bystander = server, bystander
        self._pids = [[server.process.pid], store()]
        self._before_s = [cpu_s(pids) for pids in self._pids]
        self._begun = time.perf_counter()
        self.seconds = self.peak_mib = 0.0
        self.cpu_s: list[float] = []
        self.rounds: list[float] = []

    def end(self) -> None:
        """Note how long it took, the most memory since the last reset, CPU seconds, and what the bystander waited."""
        self.seconds = time.perf_counter() - self._begun
        self.peak_mib = peak_mib(self._server)
        self.cpu_s = [cpu_s(pids) - before for pids, before in zip(self._pids, self._before_s, strict=True)]
        self.rounds = self._bystander.rounds()

    def cpu_text(self) -> str:
        """Return the CPU seconds of the server, and where they are known those of the store."""
        return " + ".join(f"{seconds:.1f}" for seconds, pids in zip(self.cpu_s, self._pids, strict=True) if pids)


COLUMNS: Final = (
    *("interface", "MB/s in", "MB/s out", "MiB in", "MiB in+out", "CPU s in", "CPU s out"),
    *(f"p{p} {when}, ms" for p in (50, 99) for when in ("before", "in", "out")),
)


def measure(report: Report, name: str, folder: Path, payload: Path, digest: str) -> None:
    """Measure one store."""
    report.heading(f"{payload.stat().st_size / 1e6:.0f} MB on {name}", repeats=1)
    rows, least_mib, clients = [], float("inf"), Clients(folder)
    with served(name, folder) as (server, store), Client(f"ws://{server.address}") as client:
        client.create_queue("large")
        bystander = Bystander(server)
        for interface, send in (("HTTP", over_http), ("stream", over_stream), ("CLI", over_cli)):
            send(server, folder / "small", clients)()
            client.purge("large", with_leased=True)
            small_mib = clients.peak_mib()
            calm = bystander.calm_rounds()
            least_mib = min(least_mib, peak_mib(server, reset=True))
            sent = Transfer(server, store, bystander)
            read = send(server, payload, clients)
            sent.end()
            received = Transfer(server, store, bystander)
            if read() != digest:
                report.missed.append(f"{name}, {interface}: every byte arrives")
            received.end()
            client.purge("large", with_leased=True)
            # Memory that a purge has left to the process is not growth. In memory the payload itself is there, once.
            base_mib = least_mib + (payload.stat().st_size / MIB if name == "memory" else 0.0)
            rows.append(row_of(interface, payload.stat().st_size / 1e6, base_mib, calm, sent, received))
            growth = received.peak_mib - base_mib
            report.goal(f"{name}, {interface}: memory of the server", measured=growth, most=GROWTH_MIB_MAX, unit=" MiB")
            taken = clients.peak_mib() - small_mib
            report.goal(f"{name}, {interface}: memory of a client", measured=taken, most=GROWTH_MIB_MAX, unit=" MiB")
            judge_bystander(report, f"{name}, {interface}", calm, sorted(sent.rounds + received.rounds))
        bystander.stop()
    report.table(COLUMNS, rows)


def row_of(
    interface: str, megabytes: float, base_mib: float, calm: list[float], sent: Transfer, received: Transfer
) -> list[str]:
    """Return a row of the table."""
    both = (sent, received)
    return [
        interface,
        *(f"{megabytes / each.seconds:.0f}" for each in both),
        *(f"{each.peak_mib - base_mib:.0f}" for each in both),
        *(each.cpu_text() for each in both),
        *(f"{at(rounds, p):.1f}" for p in (0.5, 0.99) for rounds in (calm, sent.rounds, received.rounds)),
    ]


if __name__ == "__main__":
    main()
