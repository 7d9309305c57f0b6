"""Measure what waiting messages cost: memory, the time a broker that has them takes to open, and its rates.

    python -m benchmarks.broker_memory                            # a million messages in batches of 1,000
    python -m benchmarks.broker_memory --one-by-one               # each enqueued by itself
    python -m benchmarks.broker_memory 10000000 --payload-bytes 8 --rates --check

Each line is measured in a process of its own. ``benchmarks.broker`` runs the same processes. The cache of payloads is
small, since what it takes is always the same once it is full.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import Options, Report
from fairlane.assembly import BrokerConfig, open_broker
from fairlane.broker.frontends.threads import Broker
from fairlane.broker.settings import Settings
from fairlane.model.message import NewMessage

_PAGE_BYTES = resource.getpagesize()
_BATCH = 1_000
_TENANTS = 1_000
_REQUEST = 100
_ROUND = 5_000
_ROUNDS = 7
_GOALS_FROM = 10_000_000
_SETTINGS = Settings(cache_bytes_max=1_048_576, waiting_max=None)
FEW = 10_000
"""What a process has besides messages is measured with that many."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Time and memory of a process, and the messages that it enqueued and consumed in a second of CPU time."""

    resident_mb: float
    seconds: float
    cpu_seconds: float
    enqueued: float = 0.0
    consumed: float = 0.0

    @classmethod
    def parse(cls, output: str) -> Sizes:
        return cls(*map(float, output.split()))


def sizes_after(what: str, folder: Path, count: int, payload_bytes: int = 1_024) -> Sizes:
    """Fill, recover or use a broker in a process of its own, and return what that took.

    ``what`` is "fill", "one-by-one", "recover" or "rates".
    """
    arguments = [str(folder / str(count)), str(count), str(payload_bytes)]
    command = [sys.executable, "-m", "benchmarks.broker_memory", what, *arguments]
    return Sizes.parse(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * _PAGE_BYTES / 1e6


def messages_from(at: int, count: int, payload: bytes) -> list[NewMessage]:
    return [NewMessage(payload=payload, fairness_key=f"tenant-{number % _TENANTS}") for number in range(at, at + count)]


def fill(path: str, count: int, payload_bytes: int, *, batch: int) -> Sizes:
    """Enqueue messages for a thousand tenants, and return what that took."""
    payload = bytes(payload_bytes)
    begun, cpu_begun = time.perf_counter(), time.process_time()
    with open_broker(BrokerConfig(path=path, durability="os", settings=_SETTINGS)) as broker:
        broker.create_queue("work", {"waiting_max": None})
        for at in range(0, count, batch):
            broker.enqueue_many("work", messages_from(at, batch, payload))
        assert broker.queue("work").waiting == count
        return Sizes(resident_mb(), time.perf_counter() - begun, time.process_time() - cpu_begun)


def recover(path: str, count: int) -> Sizes:
    """Open the broker, check that all messages are there, and return what that took."""
    begun, cpu_begun = time.perf_counter(), time.process_time()
    with open_broker(BrokerConfig(path=path, settings=_SETTINGS)) as broker:
        assert broker.queue("work").waiting == count
        return Sizes(resident_mb(), time.perf_counter() - begun, time.process_time() - cpu_begun)


def use(path: str, payload_bytes: int) -> Sizes:
    """Enqueue and consume while all messages wait, and return the best rates of several rounds that take turns."""
    messages = messages_from(0, _REQUEST, bytes(payload_bytes))
    enqueued = consumed = 0.0
    begun, cpu_begun = time.perf_counter(), time.process_time()
    with open_broker(BrokerConfig(path=path, durability="os", settings=_SETTINGS)) as broker:
        for _ in range(_ROUNDS):
            enqueued = max(enqueued, rate_of(lambda: broker.enqueue_many("work", messages)))
            consumed = max(consumed, rate_of(lambda: consume(broker)))
        seconds, cpu_seconds = time.perf_counter() - begun, time.process_time() - cpu_begun
        return Sizes(resident_mb(), seconds, cpu_seconds, enqueued, consumed)


def consume(broker: Broker) -> None:
    deliveries = broker.lease("work", _REQUEST)
    assert broker.ack_many("work", deliveries) == [None] * _REQUEST


def rate_of(request: Callable[[], object]) -> float:
    """Return the messages a second of CPU time of a request with a hundred."""
    begun = time.process_time()
    for _ in range(_ROUND // _REQUEST):
        request()
    return _ROUND / (time.process_time() - begun)


def run_child(what: str, path: str, count: int, payload_bytes: int) -> None:
    """Print the sizes of this process, for ``sizes_after``."""
    if what == "recover":
        sizes = recover(path, count)
    elif what == "rates":
        sizes = use(path, payload_bytes)
    else:
        sizes = fill(path, count, payload_bytes, batch=1 if what == "one-by-one" else _BATCH)
    print(sizes.resident_mb, sizes.seconds, sizes.cpu_seconds, sizes.enqueued, sizes.consumed)


def compare(report: Report, arguments: argparse.Namespace) -> None:
    """Print what few messages take, and many."""
    count: int = arguments.messages
    works = ["one-by-one" if arguments.one_by_one else "fill", "recover", *(["rates"] if arguments.rates else [])]
    rows = []
    found: dict[tuple[int, str], Sizes] = {}
    with tempfile.TemporaryDirectory(prefix="fairlane-memory-") as folder:
        for messages in (FEW, count):
            for what in works:
                sizes = found[messages, what] = sizes_after(what, Path(folder), messages, arguments.payload_bytes)
                cells = [f"{sizes.resident_mb:.0f}", f"{sizes.seconds:.1f}", f"{sizes.cpu_seconds:.1f}"]
                cells += [f"{rate:,.0f}" if rate else "" for rate in (sizes.enqueued, sizes.consumed)]
                rows.append([f"{messages:,}", what, *cells])
    report.table(["messages", "after", "resident MB", "s", "CPU s", "enqueued/CPU s", "consumed/CPU s"], rows)
    filled, few = found[count, works[0]], found[FEW, works[0]]
    growth = (filled.resident_mb - few.resident_mb) * 1e6 / (count - FEW)
    report.goal("memory per waiting message", measured=growth, most=80, unit=" B")
    if count >= _GOALS_FROM:
        most_mb = max(sizes.resident_mb for (messages, _), sizes in found.items() if messages == count)
        report.goal(f"memory with {count:,}", measured=most_mb, most=1_000 * count / _GOALS_FROM, unit=" MB")
        report.goal("start", measured=found[count, "recover"].seconds, most=15 * count / _GOALS_FROM, unit=" s")
    if arguments.rates:
        many, base = found[count, "rates"], found[FEW, "rates"]
        report.goal("enqueue rate, against few", measured=many.enqueued / base.enqueued, least=0.8, unit="x")
        report.goal("consume rate, against few", measured=many.consumed / base.consumed, least=0.8, unit="x")


def main() -> None:
    if sys.argv[1:2] and sys.argv[1] in ("fill", "one-by-one", "recover", "rates"):
        run_child(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("messages", type=int, nargs="?", default=1_000_000, help="a multiple of 1,000 above 10,000")
    parser.add_argument("--payload-bytes", type=int, default=1_024)
    parser.add_argument("--one-by-one", action="store_true", help="enqueue each message by itself")
    parser.add_argument("--rates", action="store_true", help="also enqueue and consume while all messages wait")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a goal is missed")
    arguments = parser.parse_args()
    report = Report(Options(quick=False, check=arguments.check))
    compare(report, arguments)
    report.finish()


if __name__ == "__main__":
    main()
