"""The simulated disk: a ``FaultyStore`` that reports durable commits, and on which a process can die anywhere."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from fairlane.adapters.memory.store import MemoryStore
from fairlane.ports.store import Commit, Extent, StoredPage
from fairlane.testing.faulty_store import Fault, Faults, FaultyStore


class ProcessDied(BaseException):
    """The simulated process died. Not an ``Exception``, so that no handler can survive it by catching too much."""


class CountedFaults(Faults):
    """Faults that remember how often each kind has struck."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self.struck: Counter[Fault] = Counter()

    def strikes(self, fault: Fault) -> bool:
        """Return whether this operation fails."""
        has_struck = super().strikes(fault)
        if has_struck:
            self.struck[fault] += 1
        return has_struck


class SimulatedDisk(FaultyStore):
    """A faulty store that reports what becomes durable.

    Attributes:
        on_durable: called with each commit, in order, once no crash can lose it any more.
        on_recover: called whenever a broker opens the store.
        dies_at_page: after so many more pages read in recovery the process dies; None for never.
    """

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self.faults: CountedFaults = CountedFaults(chance)
        self.on_durable: Callable[[Commit], None] = lambda _commit: None
        self.on_recover: Callable[[], None] = lambda: None
        self.dies_at_page: int | None = None

    def recover(self) -> Extent:
        """Open the store and return its extent."""
        extent = super().recover()
        self.on_recover()
        return extent

    def pages(self, after: int) -> Iterator[StoredPage]:
        """Yield the pages that hold sequences greater than ``after``, in order, until the process dies."""
        for page in super().pages(after):
            if self.dies_at_page is not None:
                self.dies_at_page -= 1
                if self.dies_at_page < 0:
                    self.dies_at_page = None
                    raise ProcessDied
            yield page

    def kept_bodies(self) -> dict[int, bytes]:
        """Return all bodies that are durable, by number."""
        return dict(self._disk._bodies)

    def durable(self) -> MemoryStore:
        """Return a copy of what is durable, not open."""
        return self._disk.copy()

    def journal(self) -> FaultyStore:
        """Return a copy of what is durable, on a disk without faults."""
        other = FaultyStore(random.Random(0))
        other._disk = self._disk.copy()
        other._disk.recover()
        return other

    def _settle(self, kept: int) -> None:
        settled: Sequence[Commit] = self._volatile[:kept]
        super()._settle(kept)
        for commit in settled:
            self.on_durable(commit)
