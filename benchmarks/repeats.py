"""What it costs that an enqueue may be repeated: ``python -m benchmarks.repeats [--check]``.

Producer numbers are measured next to dedup ids, and next to neither.

The time is CPU of enqueues of 100 messages, with the store in memory; the three ways take turns in one process. The
memory is what Python's objects grow by while a client of an embedded broker enqueues, leases and acknowledges messages,
each way in its own process.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from statistics import median

from benchmarks.report import Report, parse_options
from fairlane.assembly import BrokerConfig
from fairlane.client import Client
from fairlane.embedded import EmbeddedTransport
from fairlane.model.message import NewMessage
from fairlane.testing.stepped import SteppedBroker
from fairlane.verbs.messages import Enqueue

BATCH = 100
TENANTS = 10
WARM_UP = 50_000
ROUNDS = 150
_PAYLOAD = bytes(1024)


def _messages(first: int, prefix: str | None = None) -> list[NewMessage]:
    return [
        NewMessage(
            payload=_PAYLOAD,
            fairness_key=f"tenant-{number % TENANTS}",
            dedup_id=None if prefix is None else f"{prefix}-{number:x}",
        )
        for number in range(first, first + BATCH)
    ]


WAYS: dict[str, Callable[[int], Enqueue]] = {
    "neither": lambda first: Enqueue(queue="work", messages=_messages(first)),
    "numbers": lambda first: Enqueue(queue="work", messages=_messages(first), producer="p" * 16, numbers=(first,)),
    "dedup ids": lambda first: Enqueue(queue="work", messages=_messages(first, "p" * 16)),
}


def enqueue_us() -> dict[str, float]:
    """Return the CPU time of a message, for each way: the median of many batches."""
    brokers = {way: SteppedBroker() for way in WAYS}
    spent: dict[str, list[float]] = {way: [] for way in WAYS}
    for broker in brokers.values():
        broker.create_queue("work")
    for turn in range(ROUNDS):
        for way, broker in brokers.items():
            request = WAYS[way](BATCH * turn)
            begun = time.process_time()
            broker.call(request)
            spent[way].append(time.process_time() - begun)
            broker.ack_many("work", broker.lease("work", BATCH))
    return {way: 1e6 * median(each) / BATCH for way, each in spent.items()}


def print_growth(way: str, count: int) -> None:
    """Print by how many bytes Python's objects grow for each message that is enqueued, leased and acknowledged."""
    before, prefix = 0, "p" * 16 if way == "dedup ids" else None
    tracemalloc.start()
    with tempfile.TemporaryDirectory() as path:
        transport = EmbeddedTransport(BrokerConfig(path=path, durability="os"))
        with Client(transport, dedup=way != "neither") as client:  # it numbers messages that have no dedup ids
            client.create_queue("work")
            for first in range(0, WARM_UP + count, BATCH):
                if first == WARM_UP:
                    before = _allocated()
                client.enqueue_many("work", _messages(first, prefix))
                client.ack_many("work", client.lease("work", BATCH))
            print((_allocated() - before) / count)


def _allocated() -> int:
    """Return the bytes of all Python objects; the size of the process would depend on RocksDB's buffers."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def main() -> None:
    """Print a table, and whether the goal is reached for the client's default."""
    if sys.argv[1:2] and sys.argv[1] in WAYS:
        print_growth(sys.argv[1], int(sys.argv[2]))
        return
    options = parse_options(__doc__ or "")
    report = Report(options)
    spent = enqueue_us()
    count = "50000" if options.quick else "200000"
    grown: dict[str, float] = {}
    for way in WAYS:
        command = [sys.executable, "-m", "benchmarks.repeats", way, count]
        grown[way] = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    rows = [[way, f"{spent[way]:.2f}", f"{grown[way]:.0f}"] for way in WAYS]
    report.table(["repeats are known by", "CPU µs per enqueued message", "bytes per acknowledged message"], rows)
    report.goal("memory per acknowledged message, by numbers", measured=round(grown["numbers"]), most=0, unit=" B")
    report.finish()


if __name__ == "__main__":
    main()
