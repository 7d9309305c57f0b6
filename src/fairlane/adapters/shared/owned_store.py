"""The common part of stores that several processes can reach: one owner at a time, and nothing is sent before ``sync``.

Each store adds how it talks to its server: how to open and release, send a heartbeat, commit and read.
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
    """A ``Store`` for one process at a time, which buffers commits until ``sync``."""

    def __init__(self, *, ownership: Ownership | None, monotonic: Callable[[], float], thread_name: str) -> None:
        self._ownership = ownership if ownership is not None else Ownership()
        self._monotonic = monotonic
        self._thread_name = thread_name
        self._lock = threading.RLock()
        self._tenure = Tenure(self._ownership, monotonic)
        self._heartbeat_thread: HeartbeatThread | None = None
        self._opened: Opened | None = None
        self._has_failed = False
        self._unsynced = Unsynced(EMPTY)

    # --------------------------------------------------------------------------------------------------------- opening

    def recover(self) -> Extent:
        """Open, or reopen after a failure, and return the extent of the store.

        The epoch grows with each opening. So a commit of ours that got no answer before the failure either is in the
        store when ``recover`` reads it, or can never arrive afterwards.

        Raises:
            StoreLocked: another process owns the store.
            StoreFenced: another process has taken it over from this one.
            InvalidArgument: the server cannot hold a store.
        """
        with self._lock:
            self._tenure.check()
            self._let_go()
            self._opened, extent = self._open()
            self._has_failed = False
            self._unsynced = Unsynced(extent)
            if self._heartbeat_thread is None:
                self._heartbeat_thread = start_heartbeats(self._ownership, self._heartbeat, name=self._thread_name)
            return extent

    @abstractmethod
    def _open(self) -> tuple[Opened, Extent]:
        """Become the owner, or renew an own ownership, record that as a heartbeat, and return what is open."""

    def _usable(self) -> Opened:
        if self._opened is None:
            raise StoreFailed("The store is not open.")
        if self._has_failed:
            raise StoreFailed("The store has failed and has not been recovered since.")
        return self._opened

    # ------------------------------------------------------------------------------------------------------- ownership

    def check_owned(self) -> None:
        """Make sure that the store is still ours. Asks the server only after a silence longer than the timeout, or
        in doubt.
        """
        self._tenure.check()
        if self._has_failed or self._tenure.has_lapsed:
            self.renew()

    def renew(self) -> None:
        """Send a heartbeat. Raises StoreFenced if another process has taken over."""
        with self._lock:
            self._tenure.check()
            self._usable()
            sent_s = self._tenure.now()
            self._send_heartbeat()
            self._tenure.note(sent_s)

    @abstractmethod
    def _send_heartbeat(self) -> None:
        """Send a heartbeat. If that fails, or another process has taken over, mark the store as failed."""

    def _heartbeat(self) -> None:
        if self._tenure.is_due and not self._has_failed and not self._ownership.is_stuck:
            self.renew()

    # --------------------------------------------------------------------------------------------------------- writing

    def write(self, commit: Commit) -> None:
        """Buffer a commit. Nothing is sent before ``sync``."""
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
            # Synced and unsynced pages meet at ``before.next_sequence``. A trim that is not synced yet already hides
            # the pages before ``after.first``, although the server still has them.
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
        """Read some consecutive pages, among them the one that holds a sequence."""

    def bodies(self, numbers: Sequence[int]) -> list[bytes | None]:
        """Return bodies in the order of their numbers as given; None for one that is missing."""
        with self._lock:
            self._usable()
            unsynced = self._unsynced
            wanted = [number for number in dict.fromkeys(numbers) if not unsynced.hides(number)]
            found = self._read_bodies(wanted) if wanted else {}
            return [unsynced.bodies.get(number, found.get(number)) for number in numbers]

    @abstractmethod
    def _read_bodies(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """Read the bodies that exist."""

    @abstractmethod
    def size(self) -> int:
        """Return the approximate size of the store in bytes."""

    # --------------------------------------------------------------------------------------------------------- closing

    def close(self) -> None:
        """Sync, give up ownership, and close. A store that has failed is closed as it is."""
        heartbeat_thread, self._heartbeat_thread = self._heartbeat_thread, None
        if heartbeat_thread is not None:
            heartbeat_thread.stop()
        with self._lock:
            try:
                if self._opened is not None and not self._has_failed:
                    self.sync()
                    with contextlib.suppress(StoreFailed, StoreFenced):  # then the ownership times out by itself
                        self._release()
            finally:
                self._let_go()
                self._tenure = Tenure(self._ownership, self._monotonic)
                self._forget()

    @abstractmethod
    def _release(self) -> None:
        """Give up ownership, so that others need not wait for the timeout."""

    def _let_go(self) -> None:
        self._opened = None

    @abstractmethod
    def _forget(self) -> None:
        """Forget earlier openings, under a new tenure: the next opening is like that of another process."""
