"""Kills drivers with kill -9 at random moments of a streaming query, starts them again, and counts rows.

``python -m tests.spark.chaos journal|queue|sink|relay|pipeline [KILLS] [SEED]`` prints what came of it.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from fairlane.client import Client
from fairlane.spark.pipeline.stream import CHECKPOINT
from tests.kit.waiting import PATIENCE_S
from tests.spark.chaos_driver import COPIES
from tests.spark.queues import address, fill, until
from tests.system.server_process import ROOT, ServerProcess, serving

_SLICE = 50_000


@dataclass(frozen=True, slots=True)
class Pace:
    """How far apart kills are, so that they hit any moment of a batch, and none of them comes after the last row.

    Attributes:
        batches: how many batches a driver begins at most before its end draws near.
        longest_s: how much later it is killed at most.
        rows: how many rows there are for each kill.
    """

    batches: int
    longest_s: float
    rows: int


PACES = {
    "journal": Pace(batches=4, longest_s=1.0, rows=4_000),
    "queue": Pace(batches=4, longest_s=1.0, rows=4_000),
    "sink": Pace(batches=4, longest_s=1.0, rows=4_000),
    "relay": Pace(batches=4, longest_s=1.0, rows=4_000),
    "pipeline": Pace(batches=1, longest_s=10.0, rows=6_000),  # a batch is a whole run of the pipeline
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it: how many drivers were running when they were killed, how many rows there should be, and what is
    wrong with those there are."""

    kind: str
    kills: int
    expected: int
    lost: int
    doubled: int
    left_leased: int

    def __str__(self) -> str:
        rows = f"{self.expected} rows, {self.lost} lost, {self.doubled} doubled, {self.left_leased} left leased"
        return f"{self.kind}: {self.kills} kills, {rows}"


class Driver:
    """A driver in a process group of its own, so that nothing of it outlives its kill."""

    def __init__(self, kind: str, folder: Path, server: str, *, rows: int, master: str = "local[2,4]") -> None:
        command = [sys.executable, "-m", "tests.spark.chaos_driver", kind, str(folder), server, str(rows), master]
        self._log = (folder / "driver.log").open("a")
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=self._log, text=True, start_new_session=True
        )

    def said(self, word: str) -> bool:
        """Wait until it says a word; false if it ends without."""
        assert self._process.stdout is not None
        return any(line.strip() == word for line in self._process.stdout)

    @property
    def lives(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def kill(self) -> bool:
        """Kill it, its JVM and its workers; return whether it had not ended before."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self.end()
        return self._process.returncode == -signal.SIGKILL

    def end(self) -> None:
        """Release its remaining resources."""
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process.wait(timeout=PATIENCE_S)
        self._log.close()


def rampage(kind: str, folder: Path, server: ServerProcess, *, kills: int, chance: random.Random) -> Outcome:
    """Kill the driver of a query so often, let the last one finish, and count."""
    place, pace = address(server), PACES[kind]
    rows = kills * pace.rows
    with Client(place) as client:
        for name in ("orders", COPIES):
            client.create_queue(name)
        sent = fill(client, rows) if kind != "sink" else []
        killed = 0
        for _ in range(kills):
            goal = _begun(folder) + chance.randint(0, pace.batches)
            driver = Driver(kind, folder, place, rows=rows)
            if driver.said("running"):
                until(lambda goal=goal, driver=driver: _begun(folder) >= goal or not driver.lives)  # type: ignore[misc] # mypy knows no defaults of lambdas
                threading.Event().wait(chance.uniform(0.0, pace.longest_s))
            killed += driver.kill()
            print(f"{kind}: killed {killed}, {_begun(folder)} batches begun", file=sys.stderr)
        last = Driver(kind, folder, place, rows=rows)
        assert last.said("through"), (folder / "driver.log").read_text()[-3_000:]
        last.end()
        return counted(kind, folder, client, sent, kills=killed, rows=rows)


def _begun(folder: Path) -> int:
    """Return how many batches have begun: Spark notes each before it runs."""
    checkpoints = (folder / "checkpoint", folder / "tables" / CHECKPOINT)
    return sum(1 for checkpoint in checkpoints for _ in (checkpoint / "offsets").glob("[0-9]*"))


def counted(kind: str, folder: Path, client: Client, sent: list[str], *, kills: int, rows: int) -> Outcome:
    """Compare what is written with what should be."""
    leased = client.queue("orders").leased
    if kind.startswith(("journal", "pipeline")):
        is_stream = kind.startswith("journal")
        seen = Counter(_written(folder, "sequence") if is_stream else _in_tables(folder))
        expected = _journalled(client, reached=max(int(sequence) for sequence in seen))
    elif kind.startswith(("queue", "relay")):
        seen = Counter(_peeked(client, COPIES) if kind == "relay" else _written(folder, "payload"))
        expected = set(sent)
    else:
        seen = Counter(_peeked(client, "orders"))
        expected = {str(number) for number in range(rows)}
    doubled = sum(count - 1 for count in seen.values())
    return Outcome(kind, kills, len(expected), len(expected - seen.keys()), doubled, leased)


def _journalled(client: Client, *, reached: int) -> set[str]:
    """Return the sequences of the broker's journal up to one of them."""
    found: set[str] = set()
    position = 0
    while position < reached:
        part = client.read_journal(position, count=_SLICE)
        found.update(str(event["sequence"]) for event in part.events if event["sequence"] <= reached)
        position = part.position
    return found


def _written(folder: Path, column: str) -> list[str]:
    """Return a column of what the file sink counts as written: its log says which files those are."""
    names: list[str] = []
    for log in sorted((folder / "out" / "_spark_metadata").iterdir(), key=lambda path: path.name):
        if log.name.startswith("."):
            continue
        names += [line.split('"path":"file://')[1].split('"')[0] for line in log.read_text().splitlines()[1:]]
    found: list[str] = []
    for name in sorted(set(names)):
        found += map(str, pq.read_table(name, columns=[column]).column(0).to_pylist())
    return found


def _in_tables(folder: Path) -> list[str]:
    """Return the sequences in the table of events."""
    files = (folder / "tables" / "events").rglob("[!._]*.parquet")
    return [str(each) for file in files for each in pq.ParquetFile(file).read(["sequence"]).column(0).to_pylist()]


def _peeked(client: Client, queue: str) -> list[str]:
    found: list[str] = []
    after: str | None = None
    while views := client.peek(queue, 10_000, after=after, with_body=True):
        found += [(view.payload or b"").decode() for view in views]
        after = views[-1].id
    return found


def main(kind: str, kills: int, seed: int) -> None:
    """Run it by hand."""
    with tempfile.TemporaryDirectory(prefix="fairlane-chaos-") as name:
        folder = Path(name)
        with serving(folder / "data") as server:
            outcome = rampage(kind, folder, server, kills=kills, chance=random.Random(seed))
    print(outcome)


if __name__ == "__main__":
    main(sys.argv[1], int((sys.argv[2:] or ["10"])[0]), int((sys.argv[3:] or ["1"])[0]))
