"""A store that fails as disks fail, repeatably for a seed.

It models a disk under a page cache. A write is visible at once but volatile: a crash keeps a prefix of the unsynced
commits, which may be all or none; never a later commit without an earlier one, and never half of one. Commits that
``sync`` covered or ``recover`` returned are permanent.
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
"""The kinds of failure.

- ``before_write``: a write fails and nothing was written.
- ``after_write``: a write fails although the commit was written.
- ``full``: the disk is full from this write on, until ``free``.
- ``sync``: a sync fails; any prefix of the commits that it should cover may survive.
- ``read``: one read of pages or bodies fails, without further effect.
- ``recover``: the store cannot be opened once.
"""


class Faults:
    """Decides when an operation fails: at the next opportunity if armed, otherwise at random."""

    def __init__(self, chance: random.Random, *, rates: Mapping[Fault, float] | None = None) -> None:
        self._chance = chance
        self._armed: Counter[Fault] = Counter()
        self.rates: dict[Fault, float] = dict(rates or {})

    def arm(self, fault: Fault, *, times: int = 1) -> None:
        """Make the next operations of a kind fail, this many in a row."""
        self._armed[fault] += times

    def disarm(self) -> None:
        """Cancel all armed and random failures."""
        self._armed.clear()
        self.rates.clear()

    def strikes(self, fault: Fault) -> bool:
        """Return whether this operation fails."""
        if self._armed[fault] > 0:
            self._armed[fault] -= 1
            return True
        rate = self.rates.get(fault, 0.0)
        return rate > 0.0 and self._chance.random() < rate


class FaultyStore:
    """A ``Store`` in memory that fails on demand or at random, and loses what a disk may lose.

    After a failed write or sync it rejects both until ``recover``, because the broker must not continue without it.
    """

    def __init__(self, chance: random.Random, *, rates: Mapping[Fault, float] | None = None) -> None:
        """Create an empty store.

        Args:
            chance: a seeded generator that decides what fails and what a crash keeps.
            rates: the probability of each fault per operation, from 0 to 1.
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
        """The number of commits that a crash may lose."""
        return len(self._volatile)

    def crash(self) -> None:
        """Lose power: keep a random prefix of the unsynced commits, and reject every call but ``recover``."""
        kept = self._chance.randint(0, len(self._volatile))
        self._settle(kept)
        self._seen.close()

    @property
    def is_full(self) -> bool:
        """Whether the disk is full, until ``free``."""
        return self._is_full

    def free(self) -> None:
        """Free space on a full disk."""
        self._is_full = False

    def recover(self) -> Extent:
        """Open the store, keeping a random prefix of the unsynced commits, and return its extent."""
        self.crash()
        if self.faults.strikes("recover"):
            raise StoreFailed("The store could not be opened (injected fault).")
        self._seen = self._disk.copy()
        self._has_failed = False
        return self._seen.recover()

    def check_owned(self) -> None:
        """Do nothing: no other process can reach this store."""

    def write(self, commit: Commit) -> None:
        """Write a commit, which a crash may lose until it is synced."""
        self._check_writable()
        if self.faults.strikes("full"):
            self._is_full = True
        if self._is_full:
            self._fail("The disk is full.")
        if self.faults.strikes("before_write"):
            self._fail("A write failed (injected fault).")
        self._seen.write(commit)
        self._volatile.append(commit)
        if self.faults.strikes("after_write"):
            self._fail("A write failed after the commit was written (injected fault).")

    def sync(self) -> None:
        """Make all written commits permanent."""
        self._check_writable()
        if self.faults.strikes("sync"):
            self._fail("A sync failed (injected fault).")
        self._settle(len(self._volatile))

    def pages(self, after: int) -> Iterator[StoredPage]:
        """Yield the pages that hold sequences greater than ``after``, in order."""
        for page in self._seen.pages(after):
            self._check_read()
            yield page

    def bodies(self, numbers: Sequence[int]) -> list[bytes | None]:
        """Return bodies by number, in the requested order; None for a missing one."""
        self._check_read()
        return self._seen.bodies(numbers)

    def size(self) -> int:
        """Return the size of pages and bodies in bytes."""
        return self._seen.size()

    def close(self) -> None:
        """Sync unless the store has failed or is closed, then close it."""
        try:
            if self._seen.is_open and not self._has_failed:
                self.sync()
        finally:
            self._seen.close()

    def _check_writable(self) -> None:
        if self._has_failed:
            raise StoreFailed("The store has failed; call recover() first.")
        if not self._seen.is_open:
            raise StoreFailed("The store is not open; call recover() first.")

    def _check_read(self) -> None:
        if self.faults.strikes("read"):
            raise StoreFailed("A read failed (injected fault).")

    def _fail(self, cause: str) -> None:
        self._has_failed = True
        raise StoreFailed(cause)

    def _settle(self, kept: int) -> None:
        for commit in self._volatile[:kept]:
            self._disk.write(commit)
        self._volatile.clear()
