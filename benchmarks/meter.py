"""Measures what a piece of work costs: time, and the CPU time of the server and of its clients.

On a busy machine rates vary by a factor of two from one second to the next, and CPU time per message by a few per cent.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a piece of work cost: a rate, and CPU microseconds for each message."""

    rate: float
    server_us: float
    client_us: float


def cpu_s(process: int) -> float:
    """Return the CPU seconds that all threads of a process have used; 0.0 where the system does not tell."""
    try:
        threads = list(Path(f"/proc/{process}/task").iterdir())
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9
    except OSError:
        return 0.0


class Meter:
    """Measures a ``with`` block.

    Attributes:
        clients: processes besides this one that count as clients.
        servers: processes besides the server that count as it.
    """

    def __init__(self, server: int) -> None:
        self._server = server
        self.clients: Sequence[int] = ()
        self.servers: Sequence[int] = ()
        self._spent = (0.0, 0.0, 0.0)

    def __enter__(self) -> Self:
        self._spent = self._now()
        return self

    def __exit__(self, *_: object) -> None:
        wall, server, client = self._now()
        begun = self._spent
        self._spent = (wall - begun[0], server - begun[1], client - begun[2])

    def _now(self) -> tuple[float, float, float]:
        client = time.process_time() + sum(map(cpu_s, self.clients))
        return time.perf_counter(), cpu_s(self._server) + sum(map(cpu_s, self.servers)), client

    def measured(self, count: int) -> Measured:
        """Return what the block cost for each of so many messages."""
        wall, server, client = self._spent
        return Measured(rate=count / wall, server_us=server / count * 1e6, client_us=client / count * 1e6)


def best(found: Sequence[Measured]) -> Measured:
    """Return the highest rate and the lowest costs of several runs: noise only ever slows."""
    return Measured(
        rate=max(one.rate for one in found),
        server_us=min(one.server_us for one in found),
        client_us=min(one.client_us for one in found),
    )
