"""Fills or recovers a broker in a process of its own and prints time and memory; ``benchmarks.broker`` runs it."""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from fairlane.assembly import BrokerConfig, open_broker
from fairlane.model.message import NewMessage

_PAGE_BYTES = resource.getpagesize()


@dataclass(frozen=True, slots=True)
class Sizes:
    """Time and memory of a process."""

    resident_mb: float
    seconds: float

    @classmethod
    def parse(cls, output: str) -> Sizes:
        resident_mb, seconds = output.split()
        return cls(float(resident_mb), float(seconds))


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * _PAGE_BYTES / 1e6


def fill(path: str, count: int) -> None:
    """Enqueue messages of 1 KB for a thousand tenants."""
    payload = bytes(range(256)) * 4
    with open_broker(BrokerConfig(path=path, durability="os")) as broker:
        broker.create_queue("work")
        for at in range(0, count, 1_000):
            broker.enqueue_many(
                "work",
                [
                    NewMessage(payload=payload, fairness_key=f"tenant-{number % 1000}")
                    for number in range(at, at + 1_000)
                ],
            )
        print(resident_mb(), end=" ")


def recover(path: str, count: int) -> None:
    """Open the broker and check that all messages are there."""
    with open_broker(BrokerConfig(path=path)) as broker:
        assert broker.queue("work").waiting == count
        print(resident_mb(), end=" ")


def main() -> None:
    what, path, count = sys.argv[1:]
    begun = time.perf_counter()
    (fill if what == "fill" else recover)(path, int(count))
    print(time.perf_counter() - begun)


if __name__ == "__main__":
    main()
