"""A store that fails as disks fail, in ways that a seed repeats.

It models a disk under a page cache. What is written is visible at once but volatile: a crash keeps the first few of the
commits that were not synced, or all, or none; never a later one without an earlier, never half of one. What ``sync``
has covered, and what ``recover`` has returned, stays.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from fairlane.adapters.memory.store import MemoryStore
from fairlane.errors import StoreFailed
from fairlane.ports.store import Commit, Extent, StoredPage

Fault = Literal["before_write", "after_write", "full", "sync", "read", "recover"]
"""What can go wrong.

- ``before_write``: the write fails and nothing was written.
- ``after_write``: the write fails though the commit is there.
- ``full``: the disk is full from this write on, until ``free``.
- ``sync``: the sync fails; any first few of the commits it was to cover may be there later.
- ``read``: one read of pages or bodies fails, and that is all.
- ``recover``: the store can't be opened this time.
"""


class Faults:
    """Decides when something goes wrong: at the next occasion if armed, and else by chance."""

    def __init__(self, chance: random.Random, *, rates: Mapping[Fault, float] | None = None) -> None:
        self._chance = chance
        self._armed: Counter[Fault] = Counter()
        self.rates: dict[Fault, float] = dict(rates or {})

    def arm(self, fault: Fault, *, times: int = 1) -> None:
        """Let the next occasions of a kind fail, this many in a row."""
        self._armed[fault] += times

    def disarm(self) -> None:
        """Let nothing fail from here on, neither armed nor by chance."""
        self._armed.clear()
        self.rates.clear()

    def strikes(self, fault: Fault) -> bool:
        """Return whether it goes wrong on this occasion."""
        if self._armed[fault] > 0:
            self._armed[fault] -= 1
            return True
        rate = self.rates.get(fault, 0.0)
        return rate > 0.0 and self._chance.random() < rate


class FaultyStore:
    """A ``Store`` in memory that fails on demand or by chance, and loses what a disk may lose.

    After a failed write or sync both are refused until ``recover``, as the broker must not go on without it.
    """

    def __init__(self, chance: random.Random, *, rates: Mapping[Fault, float] | None = None) -> None:
        """Make an empty store.

        Args:
            chance: seeded; decides what goes wrong and what a crash keeps.
            rates: for each fault how likely it is on each occasion, from 0 to 1.
        """
        self._chance = chance
        self.faults = Faults(chance, rates=rates)
        self._disk = MemoryStore()
        self._disk.recover()
        self._seen = self._disk.copy()
        self._volatile: list[Commit] = []
        self._has_failed = False
        self._is_full = False

    @property
    def volatile_count(self) -> int:
        """How many commits a crash may lose."""
        return len(self._volatile)

    def crash(self) -> None:
        """Lose power: some first few of the unsynced commits stay, and nothing but ``recover`` may be called."""
        kept = self._chance.randint(0, len(self._volatile))
        self._settle(kept)
        self._seen.close()

    def free(self) -> None:
        """Make room on a full disk."""
        self._is_full = False

    def recover(self) -> Extent:
        """Open, and return how far the store reaches. Of what was not synced some first few commits stay."""
        self.crash()
        if self.faults.strikes("recover"):
            raise StoreFailed("The disk could not be opened, as the simulation decided.")
        self._seen = self._disk.copy()
        self._has_failed = False
        return self._seen.recover()

    def check_owned(self) -> None:
        """Do nothing: nobody else can reach it."""

    def write(self, commit: Commit) -> None:
        """Add a commit, in what a crash may lose."""
        self._check_writable()
        if self.faults.strikes("full"):
            self._is_full = True
        if self._is_full:
            self._fail("The disk is full.")
        if self.faults.strikes("before_write"):
            self._fail("A write failed, as the simulation decided.")
        self._seen.write(commit)
        self._volatile.append(commit)
        if self.faults.strikes("after_write"):
            self._fail("A write failed after all was written, as the simulation decided.")

    def sync(self) -> None:
        """Put what was written where no crash can lose it."""
        self._check_writable()
        if self.faults.strikes("sync"):
            self._fail("A sync failed, as the simulation decided.")
        self._settle(len(self._volatile))

    def pages(self, after: int) -> Iterator[StoredPage]:
        """Yield the pages that hold sequences greater than ``after``, in order."""
        for page in self._seen.pages(after):
            self._check_read()
            yield page

    def bodies(self, numbers: Sequence[int]) -> list[bytes | None]:
        """Return bodies by number, in the order asked; None for one that is not there."""
        self._check_read()
        return self._seen.bodies(numbers)

    def size(self) -> int:
        """Return how many bytes pages and bodies have."""
        return self._seen.size()

    def close(self) -> None:
        """Sync, unless the store has failed or is closed, and let go."""
        try:
            if self._seen.is_open and not self._has_failed:
                self.sync()
        finally:
            self._seen.close()

    def _check_writable(self) -> None:
        if self._has_failed:
            raise StoreFailed("The store has failed and was not recovered since.")
        if not self._seen.is_open:
            raise StoreFailed("The store is not open.")

    def _check_read(self) -> None:
        if self.faults.strikes("read"):
            raise StoreFailed("A read failed, as the simulation decided.")

    def _fail(self, cause: str) -> None:
        self._has_failed = True
        raise StoreFailed(cause)

    def _settle(self, kept: int) -> None:
        for commit in self._volatile[:kept]:
            self._disk.write(commit)
        self._volatile.clear()
