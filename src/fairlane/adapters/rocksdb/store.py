"""A store in RocksDB on the local disk.

A commit is one atomic write batch; ``layout`` describes its content.

Writing and syncing are separate. ``write`` passes the batch to the write-ahead log in the operating system's page
cache, where it survives the death of the process but not of the machine. ``sync`` flushes the log to the disk.

A small file beside the database, the high-water mark, says how far answers were given and which sequences may have been
issued; see ``high_water``. A store that has lost something is not opened.

No read begins before the first page that is kept: deleted pages leave tombstones there, and RocksDB would have to step
over them one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, cast

import msgspec

from fairlane.adapters.folder.high_water import HighWaterKeeper
from fairlane.adapters.folder.mark import ROCKSDB, mark_made
from fairlane.adapters.rocksdb.database import failure, note_closed, open_database
from fairlane.adapters.rocksdb.layout import NUMBER, OpenDatabase, batch_of, read_extent, read_slice
from fairlane.adapters.succession import EMPTY, check_follows, check_unbroken, extent_after
from fairlane.errors import InvalidArgument, StoreFailed
from fairlane.ports.store import Commit, Extent, StoredPage

Durability = Literal["fsync", "os"]

_SLICE_COUNT_MAX = 64
_DROPPED_MAX = 4096


class RocksDbStore:
    """A ``Store`` in a folder of the local disk, for one process at a time."""

    def __init__(self, path: str | Path, *, durability: Durability = "fsync") -> None:
        """Create a store; ``recover`` opens it.

        Args:
            path: the folder; created if it does not exist.
            durability: with ``"fsync"`` synced commits survive a power loss; with ``"os"`` they survive only the death
                of the process.
        """
        if durability not in {"fsync", "os"}:
            raise InvalidArgument(f"durability must be 'fsync' or 'os', got {durability!r}.")
        self.folder = Path(path)
        self._durability = durability
        self._open: OpenDatabase | None = None
        self._has_failed = False
        self._extent = EMPTY
        self._dropped = 0
        self._high_water = HighWaterKeeper(self.folder)

    def recover(self) -> Extent:
        """Open, or reopen after a failure, and return the extent of the store.

        Reopening writes the content of the log to new files and syncs them, so nothing depends on page-cache pages
        whose sync failed.
        """
        self._let_go()
        opened = OpenDatabase(*open_database(self.folder))
        try:
            extent = read_extent(opened)
            reserved = self._high_water.begin(extent.next_sequence, opened.found)
            mark_made(self.folder, ROCKSDB)
        except BaseException:
            self._high_water.abandon()
            self._release(opened)
            raise
        self._open = opened
        self._has_failed = False
        self._extent = extent
        return msgspec.structs.replace(extent, reserved=reserved) if reserved > extent.next_sequence else extent

    def check_owned(self) -> None:
        """Do nothing: RocksDB holds a lock on its folder."""

    def write(self, commit: Commit) -> None:
        """Add a commit. It survives the process at once, and the machine once ``sync`` returns."""
        opened = self._writable()
        check_follows(commit, self._extent)
        after = extent_after(commit, self._extent, page_start=self._page_start)
        if after.next_sequence > self._high_water.reserved:
            self._high_water.reserve(after.next_sequence)
        try:
            opened.db.write(batch_of(opened, commit, before=self._extent, after=after))
            self._dropped += len(commit.dropped)
            if self._dropped >= _DROPPED_MAX:
                self._free_space(opened)
        except Exception as error:
            self._has_failed = True
            raise failure(error, "write") from error
        self._extent = after

    def sync(self) -> None:
        """Flush the log to the disk, unless durability is left to the operating system."""
        opened = self._writable()
        high_water, end = self._high_water, self._extent.next_sequence
        if self._durability == "fsync":
            self._flush_log(opened)
            high_water.synced = end
        high_water.answered = end

    def pages(self, after: int) -> Iterator[StoredPage]:
        """Yield the pages that hold sequences greater than ``after``, in order."""
        sequence = after + 1
        while pages := self._slice(sequence):
            yield from pages
            sequence = pages[-1].next_sequence

    def bodies(self, numbers: Sequence[int]) -> list[bytes | None]:
        """Return bodies in the order of their numbers as given; None for one that is missing."""
        opened = self._readable()
        try:
            found = opened.bodies.get([NUMBER.pack(number) for number in numbers])
        except Exception as error:
            raise failure(error, "read bodies") from error
        return cast("list[bytes | None]", found)

    def size(self) -> int:
        """Return the size of all files in bytes."""
        self._readable()
        total = 0
        for file in self.folder.rglob("*"):
            try:
                total += file.stat().st_size
            except FileNotFoundError:
                continue  # RocksDB deletes files while we list them
        return total

    def reclaim(self) -> None:
        """Begin to return the space of dropped bodies to the disk, if there are any; see ``Disk``."""
        if self._open is None or self._has_failed or not self._dropped:
            return
        try:
            self._free_space(self._open)
        except Exception as error:
            self._has_failed = True
            raise failure(error, "return space to the disk") from error

    def close(self) -> None:
        """Sync at any durability, and close. A store that has failed is closed as it is."""
        try:
            if self._open is not None and not self._has_failed:
                self._flush_log(self._open)
                self._high_water.close(self._extent.next_sequence)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        opened, self._open = self._open, None
        if opened is None:
            return
        self._high_water.abandon()
        try:
            self._release(opened)
        except Exception as error:
            if not self._has_failed:
                raise failure(error, "close") from error

    def _release(self, opened: OpenDatabase) -> None:
        try:
            opened.close()
        finally:
            note_closed(self.folder)

    def _readable(self) -> OpenDatabase:
        if self._open is None:
            raise StoreFailed("The store is not open.")
        return self._open

    def _writable(self) -> OpenDatabase:
        """Return the open database unless it has failed.

        After a failed fsync the kernel may have dropped the dirty pages, and a later fsync would report success without
        them. So nothing is written until ``recover``.
        """
        if self._has_failed:
            raise StoreFailed("The store has failed and has not been recovered since.")
        return self._open if self._open is not None else self._readable()

    def _flush_log(self, opened: OpenDatabase) -> None:
        try:
            opened.db.flush_wal(sync=True)
        except Exception as error:
            self._has_failed = True
            raise failure(error, "sync") from error

    def _free_space(self, opened: OpenDatabase) -> None:
        """Flush deletions, so that RocksDB deletes the bodies on disk.

        Deletions take little memory, so without new bodies they would stay in the buffer for hours, and the old bodies
        on the disk.
        """
        self._dropped = 0
        opened.bodies.flush(wait=False)

    def _page_start(self, sequence: int) -> int:
        return self._slice(sequence, count_max=1)[0].sequence

    def _slice(self, sequence: int, *, count_max: int = _SLICE_COUNT_MAX) -> list[StoredPage]:
        """Return some pages, beginning with the one that holds a sequence, or else the first after it.

        An iterator of RocksDB pins the files and memory of its instant, so none stays alive between two calls.
        """
        opened = self._readable()
        sequence = max(sequence, self._extent.first)
        if sequence >= self._extent.next_sequence:
            return []
        try:
            pages = read_slice(opened, sequence, count_max=count_max)
        except Exception as error:
            raise failure(error, "read pages") from error
        check_unbroken(pages, sequence)
        return pages
