"""The simulation with a real store below the simulated disk: brokers recover from PostgreSQL and S3."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from fairlane.adapters.log.store import LogStore
from fairlane.adapters.postgres.store import PostgresStore
from fairlane.adapters.s3.bucket import S3Bucket
from fairlane.adapters.s3.store import S3Store
from fairlane.adapters.shared.ownership import Ownership
from fairlane.ports.store import Extent, Store, StoredPage
from tests.conftest import BUCKET
from tests.kit.servers.stores import PostgresServer, S3Server
from tests.kit.simulation.simulation import Simulation
from tests.kit.simulation.store import SimulatedDisk

_numbers = itertools.count(1)
OWNERSHIP = Ownership(owner="simulated", sends_heartbeats=False)
MakeStore = Callable[[], Store]


class RealDisk(SimulatedDisk):
    """A disk that decides what fails and what a crash keeps, and has what is durable in a real store.

    Each recovery opens the real store anew, as another process of the same owner. Whatever is read then comes from
    there, and must be what the model has.
    """

    make_real: MakeStore

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._real = self.make_real()
        self._real.recover()

    def recover(self) -> Extent:
        extent = super().recover()
        self._real = self.make_real()
        assert self._real.recover() == extent
        return extent

    def pages(self, after: int) -> Iterator[StoredPage]:
        if self.volatile_count:
            yield from super().pages(after)
            return
        for page, expected in zip(self._real.pages(after), super().pages(after), strict=True):
            assert page == expected
            yield page

    def bodies(self, numbers: Sequence[int]) -> list[bytes | None]:
        expected = super().bodies(numbers)
        if self.volatile_count:
            return expected
        bodies = self._real.bodies(numbers)
        assert bodies == expected
        return bodies

    def _settle(self, kept: int) -> None:
        for commit in self._volatile[:kept]:
            self._real.write(commit)
        if kept:
            self._real.sync()
        super()._settle(kept)


def simulation_on(make: MakeStore) -> type[Simulation]:
    disk = type("Disk", (RealDisk,), {"make_real": staticmethod(make)})
    return type("RealSimulation", (Simulation,), {"disk_type": disk})


@pytest.mark.parametrize("seed", range(9, 15))
def test_every_promise_holds_in_a_log(tmp_path: Path, seed: int) -> None:
    """With this seed and durable data in a log of small segments the auditor finds no violation."""
    stores: list[LogStore] = []

    def make() -> Store:
        for store in stores:
            store.close()  # a kill would leave sequences reserved, which the simulated disk knows nothing of
        stores[:] = [LogStore(tmp_path / "store", durability="os", segment_bytes_max=64 * 1024)]
        return stores[0]

    assert simulation_on(make)(seed).run().deliveries > 0
    stores[0].close()


@pytest.mark.parametrize("seed", range(1, 6))
def test_every_promise_holds_on_postgresql(postgres: PostgresServer, seed: int) -> None:
    """With this seed and durable data in PostgreSQL the auditor finds no violation."""
    namespace = f"simulated-{next(_numbers)}"
    stores: list[PostgresStore] = []

    def make() -> Store:
        for store in stores:
            store._let_go()  # its process is gone
        stores[:] = [PostgresStore(postgres.url, namespace=namespace, ownership=OWNERSHIP)]
        return stores[0]

    assert simulation_on(make)(seed).run().deliveries > 0
    stores[0].close()


@pytest.mark.parametrize("seed", range(6, 9))
def test_every_promise_holds_in_s3(s3: S3Server, seed: int) -> None:
    """With this seed and durable data in S3, merged from time to time, the auditor finds no violation."""
    prefix = f"{BUCKET}/simulated-{next(_numbers)}"
    merges = random.Random(seed)

    class Merging(S3Store):
        def sync(self) -> None:
            super().sync()
            if merges.random() < 0.1:
                self.compact()

    def make() -> Store:
        bucket = S3Bucket(prefix, endpoint=s3.endpoint, is_anonymous=True)
        return Merging(bucket, window_ms=0, ownership=OWNERSHIP, segments_max=8)

    assert simulation_on(make)(seed).run().deliveries > 0
