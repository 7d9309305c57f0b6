"""Measure what waiting messages cost in memory, and how long a broker that has them takes to open.

Each line is measured in a process of its own. ``benchmarks.broker`` runs the same processes.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import Options, Report
from fairlane.assembly import BrokerConfig, open_broker
from fairlane.model.message import NewMessage

_PAGE_BYTES = resource.getpagesize()
_BATCH = 1_000
_TENANTS = 1_000
FEW = 10_000
"""What a process has besides messages is measured with that many."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Time and memory of a process."""

    resident_mb: float
    seconds: float
    cpu_seconds: float

    @classmethod
    def parse(cls, output: str) -> Sizes:
        return cls(*map(float, output.split()))


def sizes_after(what: str, folder: Path, count: int, payload_bytes: int = 1_024) -> Sizes:
    """Fill or recover a broker in a process of its own, and return what that took."""
    arguments = [str(folder / str(count)), str(count), str(payload_bytes)]
    command = [sys.executable, "-m", "benchmarks.broker_memory", what, *arguments]
    return Sizes.parse(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * _PAGE_BYTES / 1e6


def fill(path: str, count: int, payload_bytes: int) -> float:
    """Enqueue messages for a thousand tenants, and return the resident memory."""
    payload = bytes(payload_bytes)
    with open_broker(BrokerConfig(path=path, durability="os")) as broker:
        broker.create_queue("work", {"waiting_max": None})
        for at in range(0, count, _BATCH):
            numbers = range(at, at + _BATCH)
            messages = [NewMessage(payload=payload, fairness_key=f"tenant-{number % _TENANTS}") for number in numbers]
            broker.enqueue_many("work", messages)
        assert broker.queue("work").waiting == count
        return resident_mb()


def recover(path: str, count: int) -> float:
    """Open the broker, check that all messages are there, and return the resident memory."""
    with open_broker(BrokerConfig(path=path)) as broker:
        assert broker.queue("work").waiting == count
        return resident_mb()


def run_child(what: str, path: str, count: int, payload_bytes: int) -> None:
    """Print the sizes of this process, for ``sizes_after``."""
    begun, cpu_begun = time.perf_counter(), time.process_time()
    resident = fill(path, count, payload_bytes) if what == "fill" else recover(path, count)
    print(resident, time.perf_counter() - begun, time.process_time() - cpu_begun)


def compare(count: int, payload_bytes: int) -> None:
    """Print what few messages take, and many."""
    report = Report(Options(quick=False, check=False))
    rows = []
    filled: dict[int, Sizes] = {}
    with tempfile.TemporaryDirectory(prefix="fairlane-memory-") as folder:
        for messages in (FEW, count):
            for what in ("fill", "recover"):
                sizes = sizes_after(what, Path(folder), messages, payload_bytes)
                filled.setdefault(messages, sizes)
                cells = (f"{sizes.resident_mb:.0f}", f"{sizes.seconds:.1f}", f"{sizes.cpu_seconds:.1f}")
                rows.append([f"{messages:,}", what, *cells])
    report.table(["messages", "after", "resident MB", "seconds", "CPU seconds"], rows)
    growth = (filled[count].resident_mb - filled[FEW].resident_mb) * 1e6 / (count - FEW)
    report.console.print(f"  grows by {growth:.1f} bytes per message")


def main() -> None:
    if sys.argv[1:2] in (["fill"], ["recover"]):
        run_child(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("messages", type=int, nargs="?", default=1_000_000, help="a multiple of 1,000 above 10,000")
    parser.add_argument("--payload-bytes", type=int, default=1_024)
    arguments = parser.parse_args()
    compare(arguments.messages, arguments.payload_bytes)


if __name__ == "__main__":
    main()
