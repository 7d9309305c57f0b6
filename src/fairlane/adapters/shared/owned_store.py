"""What the stores share that several processes can reach: one owner at a time, and nothing is sent before ``sync``.

What is left to each is how it asks its server: how to open and to let go, to renew the lease, to commit and to read.
"""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from fairlane.adapters.shared.ownership import HeartbeatThread, Ownership, Tenure, start_heartbeats
from fairlane.adapters.shared.unsynced import Unsynced
from fairlane.adapters.succession import EMPTY, check_unbroken
from fairlane.errors import StoreFailed, StoreFenced
from fairlane.ports.store import Commit, Extent, StoredPage

Opened = TypeVar("Opened")


class OwnedStore(ABC, Generic[Opened]):
    """A ``Store`` for one process at a time, which remembers what is written until it is told to sync."""

    def __init__(self, *, ownership: Ownership | None, monotonic: Callable[[], float], keeper_name: str) -> None:
        self._ownership = ownership if ownership is not None else Ownership()
        self._monotonic = monotonic
        self._keeper_name = keeper_name
        self._lock = threading.RLock()
        self._tenure = Tenure(self._ownership.heartbeat_timeout_ms, monotonic)
        self._keeper: HeartbeatThread | None = None
        self._opened: Opened | None = None
        self._has_failed = False
        self._unsynced = Unsynced(EMPTY)

    # --------------------------------------------------------------------------------------------------------- opening

    def recover(self) -> Extent:
        """Open, or open anew after a failure, and return how far the store reaches.

        The epoch grows with each opening, so nothing that was sent before can arrive afterwards.

        Raises:
            StoreLocked: another process owns the store.
            StoreFenced: another process has taken it over from this one.
            InvalidArgument: the server can't be a store.
        """
        with self._lock:
            self._tenure.check()
            self._let_go()
            self._opened, extent = self._open()
            self._has_failed = False
            self._unsynced = Unsynced(extent)
            if self._keeper is None:
                self._keeper = start_heartbeats(self._ownership, self._keep, name=self._keeper_name)
            return extent

    @abstractmethod
    def _open(self) -> tuple[Opened, Extent]:
        """Become the owner, or the same anew, note that as a sign of life, and return what is open then."""

    def _usable(self) -> Opened:
        if self._opened is None:
            raise StoreFailed("The store is not open.")
        if self._has_failed:
            raise StoreFailed("The store has failed and was not recovered since.")
        return self._opened

    # ------------------------------------------------------------------------------------------------------- ownership

    def check_owned(self) -> None:
        """Make sure that the store is still ours; ask only if we were silent for so long that it may not be."""
        self._tenure.check()
        if self._has_failed or self._tenure.has_lapsed:
            self.renew()

    def renew(self) -> None:
        """Show a sign of life.

        Raises:
            StoreFenced: another process has taken over.
        """
        with self._lock:
            self._tenure.check()
            self._usable()
            sent_s = self._tenure.now()
            self._renew_lease()
            self._tenure.note(sent_s)

    @abstractmethod
    def _renew_lease(self) -> None:
        """Send a sign of life; where that fails, or another has taken over, the store has failed."""

    def _keep(self) -> None:
        if self._tenure.is_due and not self._has_failed:
            self.renew()

    # --------------------------------------------------------------------------------------------------------- writing

    def write(self, commit: Commit) -> None:
        """Add a commit. Nothing is sent before ``sync``."""
        with self._lock:
            self._tenure.check()
            self._usable()
            self._unsynced.add(commit, page_start=self._page_start)

    @abstractmethod
    def sync(self) -> None:
        """Make everything written so far durable, as one change.

        Raises:
            StoreFenced: another process has taken over; nothing was changed.
        """

    # --------------------------------------------------------------------------------------------------------- reading

    def pages(self, after: int) -> Iterator[StoredPage]:
        """Yield the pages that hold sequences greater than ``after``, in order."""
        sequence = after + 1
        while pages := self._slice(sequence):
            yield from pages
            sequence = pages[-1].next_sequence

    def _slice(self, sequence: int) -> list[StoredPage]:
        """Return some pages, beginning with the one that holds a sequence, or else the first after it."""
        with self._lock:
            self._usable()
            unsynced = self._unsynced
            sequence = max(sequence, unsynced.after.first)
            end = unsynced.before.next_sequence
            if sequence >= end:
                return list(unsynced.pages_from(sequence))
            pages = self._read_pages(sequence)
        pages = [page for page in pages if page.next_sequence > sequence and page.sequence < end]
        check_unbroken(pages, sequence)
        return pages

    def _page_start(self, sequence: int) -> int:
        return self._slice(sequence)[0].sequence

    @abstractmethod
    def _read_pages(self, sequence: int) -> Sequence[StoredPage]:
        """Read some pages that follow each other, the one among them that holds a sequence."""

    def bodies(self, numbers: Sequence[int]) -> list[bytes | None]:
        """Return bodies by number, in the order asked; None for one that is not there."""
        with self._lock:
            self._usable()
            unsynced = self._unsynced
            wanted = [number for number in dict.fromkeys(numbers) if not unsynced.hides(number)]
            found = self._read_bodies(wanted) if wanted else {}
            return [unsynced.bodies.get(number, found.get(number)) for number in numbers]

    @abstractmethod
    def _read_bodies(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """Read those bodies that are there."""

    @abstractmethod
    def size(self) -> int:
        """Return about how many bytes the store takes."""

    # --------------------------------------------------------------------------------------------------------- closing

    def close(self) -> None:
        """Sync, give the store up for others, and let go. A store that has failed is let go as it is."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.stop()
        with self._lock:
            try:
                if self._opened is not None and not self._has_failed:
                    self.sync()
                    with contextlib.suppress(StoreFailed, StoreFenced):  # then the lease runs out by itself
                        self._release()
            finally:
                self._let_go()
                self._tenure = Tenure(self._ownership.heartbeat_timeout_ms, self._monotonic)
                self._forget()

    @abstractmethod
    def _release(self) -> None:
        """Tell others that the store is free."""

    def _let_go(self) -> None:
        self._opened = None

    @abstractmethod
    def _forget(self) -> None:
        """Know of no opening before, under a new tenure: the next is like another process's."""
