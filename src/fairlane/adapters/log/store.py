"""A store in a segmented log on the local disk.

```
FAIRLANE         marks the folder as a store; see ``adapters.folder.mark``
HIGH-WATER       how far the store reaches at least; see ``adapters.folder.high_water``
log/LOCK         held while a process has the store open
log/*.segment    the log: see ``segment`` and ``record`` for the format, ``recovery`` for how it is read
log/*.summary    where everything in a full segment is; see ``checkpoint``
```

A commit is one record: one write, and one sync. Bodies are read in place. What is in memory is ``contents``: about
30 bytes for each body, and next to nothing for a page.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from fairlane.adapters.folder.file_system import FileSystem, SystemFiles
from fairlane.adapters.folder.high_water import HighWaterKeeper
from fairlane.adapters.folder.mark import LOG, claim_folder, mark_made
from fairlane.adapters.log.folder import FolderLock, check_whole
from fairlane.adapters.log.open_log import LogReader, OpenLog
from fairlane.adapters.log.record import COMMIT, Content
from fairlane.adapters.log.slots import SEGMENT_BYTES_MAX, Background, in_thread
from fairlane.adapters.succession import check_follows, check_unbroken, extent_after, keeps_page
from fairlane.errors import InvalidArgument, StoreFailed
from fairlane.ports.store import Commit, Extent, StoredPage

Durability = Literal["fsync", "os"]


class ReadingStore:
    """The calls of a store that read."""

    def __init__(self) -> None:
        self._reader: LogReader | None = None

    def pages(self, after: int) -> Iterator[StoredPage]:
        """Yield the pages that hold sequences greater than ``after``, in order."""
        sequence = after + 1
        while pages := self._slice(sequence):
            yield from pages
            sequence = pages[-1].next_sequence

    def bodies(self, numbers: Sequence[int]) -> list[bytes | None]:
        """Return bodies in the order of their numbers as given; None for one that is missing."""
        reader = self._readable()
        try:
            return [reader.body(number) for number in numbers]
        except OSError as error:
            raise StoreFailed(f"The log could not read bodies: {error}.") from error

    def size(self) -> int:
        """Return the size of all files in bytes."""
        return self._readable().size()

    def _readable(self) -> LogReader:
        if self._reader is None:
            raise StoreFailed("The store is not open.")
        return self._reader

    def _page_start(self, sequence: int) -> int:
        return self._slice(sequence, count_max=1)[0].sequence

    def _slice(self, sequence: int, *, count_max: int | None = None) -> list[StoredPage]:
        """Return the pages of a run, beginning with the one that holds a sequence, or else the first after it."""
        reader = self._readable()
        extent = reader.contents.extent
        sequence = max(sequence, extent.first)
        if sequence >= extent.next_sequence:
            return []
        try:
            pages = reader.pages(sequence, count_max)
        except OSError as error:
            raise StoreFailed(f"The log could not read pages: {error}.") from error
        check_unbroken(pages, sequence)
        return pages


class LogStore(ReadingStore):
    """A ``Store`` in a folder of the local disk, for one process at a time."""

    def __init__(
        self,
        path: str | Path,
        *,
        durability: Durability = "fsync",
        files: FileSystem | None = None,
        background: Background = in_thread,
        entropy: Callable[[int], bytes] = os.urandom,
        segment_bytes_max: int = SEGMENT_BYTES_MAX,
    ) -> None:
        """Create a store; ``recover`` opens it.

        Args:
            path: the folder; created if it does not exist.
            durability: with ``"fsync"`` synced commits survive a power loss; with ``"os"`` they survive only the death
                of the process.
            files: access to files.
            background: runs what prepares files ahead of their use.
            entropy: returns a number of random bytes, for salts.
            segment_bytes_max: how large segments get, once the store is large enough.
        """
        if durability not in {"fsync", "os"}:
            raise InvalidArgument(f"durability must be 'fsync' or 'os', got {durability!r}.")
        super().__init__()
        self.folder = Path(path)
        self._durability = durability
        self._files = files if files is not None else SystemFiles()
        self._background = background
        self._entropy = entropy
        self._segment_bytes_max = segment_bytes_max
        self._lock = FolderLock(self.folder / LOG.data, self._files)
        self._open: OpenLog | None = None
        self._has_failed = False
        self._high_water = HighWaterKeeper(self.folder, self._files)

    def recover(self) -> Extent:
        """Open, or reopen after a failure, and return the extent of the store.

        What is not known to be durable is written once more and synced, so nothing depends on pages of the page cache
        whose sync failed.
        """
        self._let_go()
        claim_folder(self.folder, LOG, self._files)
        try:
            self._files.make_folder(self.folder / LOG.data)
            self._files.sync_folder(self.folder)
        except OSError as error:
            raise StoreFailed(f"Cannot use the folder of the store: {error}.") from error
        self._lock.acquire()
        try:
            return self._recover()
        except BaseException:
            self._let_go()
            raise

    def _recover(self) -> Extent:
        found, mark = check_whole(self.folder, self._files)
        try:
            opened = OpenLog(
                self._files,
                self.folder / LOG.data,
                found,
                background=self._background,
                entropy=self._entropy,
                segment_bytes_max=self._segment_bytes_max,
            )
            self._open = self._reader = opened
            opened.settle(found.durable)
        except OSError as error:
            self._has_failed = True
            raise StoreFailed(f"Cannot open the log in {self.folder}: {error}.") from error
        extent = opened.contents.extent
        reserved = self._high_water.begin(extent.next_sequence, mark)
        mark_made(self.folder, LOG, self._files)
        self._has_failed = False
        return msgspec.structs.replace(extent, reserved=reserved) if reserved > extent.next_sequence else extent

    def check_owned(self) -> None:
        """Do nothing: the folder is locked."""

    def write(self, commit: Commit) -> None:
        """Add a commit. It survives the process at once, and the machine once ``sync`` returns."""
        opened = self._writable()
        before = opened.contents.extent
        check_follows(commit, before)
        after = extent_after(commit, before, page_start=self._page_start)
        if after.next_sequence > self._high_water.reserved:
            self._high_water.reserve(after.next_sequence)
        try:
            opened.append(_content(commit, after))
        except OSError as error:
            self._has_failed = True
            raise StoreFailed(f"The log could not write: {error}.") from error

    def sync(self) -> None:
        """Flush the log to the disk, unless durability is left to the operating system."""
        opened = self._writable()
        high_water, end = self._high_water, opened.contents.extent.next_sequence
        try:
            opened.writer.sync(is_durable=self._durability == "fsync")
        except OSError as error:
            self._has_failed = True
            raise StoreFailed(f"The log could not sync: {error}.") from error
        if self._durability == "fsync":
            high_water.synced = end
        high_water.answered = end

    def reclaim(self) -> None:
        """Return the space of dropped bodies to the disk, a few megabytes at a time; see ``Disk``."""
        if self._open is None or self._has_failed:
            return
        try:
            self._open.reclaim()
        except OSError as error:
            self._has_failed = True
            raise StoreFailed(f"The log could not return space to the disk: {error}.") from error

    def close(self) -> None:
        """Sync at any durability, and close. A store that has failed is closed as it is."""
        opened = self._open
        try:
            if opened is not None and not self._has_failed:
                opened.writer.sync(is_durable=True)
                self._high_water.close(opened.contents.extent.next_sequence)
        except OSError as error:
            raise StoreFailed(f"The log could not sync: {error}.") from error
        finally:
            self._let_go()

    def _let_go(self) -> None:
        opened, self._open, self._reader = self._open, None, None
        if opened is not None:
            self._high_water.abandon()
            opened.close()
        self._lock.release()

    def _writable(self) -> OpenLog:
        """Return the open log unless it has failed.

        After a failed fsync the kernel may have dropped the dirty pages, and a later fsync would report success without
        them. So nothing is written until ``recover``.
        """
        if self._open is None:
            raise StoreFailed("The store is not open.")
        if self._has_failed:
            raise StoreFailed("The store has failed and has not been recovered since.")
        return self._open


def _content(commit: Commit, after: Extent) -> Content:
    """Return what the record of a commit holds. Bodies that the commit itself drops are not written."""
    bodies, dropped = commit.bodies, commit.dropped
    if bodies and dropped:
        gone = set(dropped)
        bodies = [body for body in bodies if body[0] not in gone]
    page = commit.page if keeps_page(commit, after) else b""
    return Content(COMMIT, commit.sequence, after.next_sequence, after.base, after.first, page, bodies, dropped)
