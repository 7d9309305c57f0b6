"""What it takes to repair a folder: reading what is left of a log, and writing a new one.

A log is read leniently here: records whose heads are whole count, even if a body in them is damaged, so only the
messages of those bodies are lost. The journal ends at a head that cannot be read, since nothing tells what is missing
after it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fairlane.adapters.copying import copy_contents
from fairlane.adapters.folder.examination import Examination
from fairlane.adapters.folder.file_system import SystemFiles
from fairlane.adapters.folder.mark import LOG
from fairlane.adapters.folder.replacement import building, complete, repaired
from fairlane.adapters.log.folder import examine as examine_folder
from fairlane.adapters.log.folder import locked
from fairlane.adapters.log.open_log import LogReader
from fairlane.adapters.log.recovery import Found, Progress, Recovery
from fairlane.adapters.log.store import LogStore, ReadingStore
from fairlane.errors import StoreCorrupt
from fairlane.ports.store import Commit, Extent, Store

__all__ = ["build", "examine", "locked", "readable_part", "reading", "unfinished_end"]


class ReadOnlyLog(ReadingStore):
    """A store that is only read, as far as it can be: opening it changes nothing."""

    fault = ""

    def __init__(self, log: Path) -> None:
        super().__init__()
        self._log = log

    def recover(self) -> Extent:
        """Open the log, and return the extent of the store.

        Raises:
            StoreCorrupt: it has no segment that can be read.
        """
        self.close()
        found = _found(self._log)
        if found.contents is None:
            raise StoreCorrupt(f"{self._log} has no segment with a checkpoint that can be read.")
        self._reader = LogReader(SystemFiles(), self._log, found.contents)
        return found.contents.extent

    def write(self, commit: Commit) -> None:
        """Refuse: the store is only read."""
        raise StoreCorrupt(f"The store was opened for reading only; commit {commit.sequence} cannot be written.")

    def sync(self) -> None:
        """Do nothing: nothing is written."""

    def check_owned(self) -> None:
        """Do nothing: the folder is locked."""

    def close(self) -> None:
        """Close without writing anything."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()


def _found(log: Path) -> Found:
    return Recovery(SystemFiles(), log, is_same_boot=False, is_lenient=True).find()


def examine(folder: Path, progress: Progress) -> Examination:
    """Find out whether a store is whole, without changing anything."""
    found = examine_folder(folder, SystemFiles(), progress=progress)
    return Examination(
        high_water=found.high_water,
        expected_end=max(found.required, found.reach, found.found.lost_after),
        is_damaged=bool(found.found.faults),
        faults=found.faults,
    )


@contextmanager
def reading(folder: Path) -> Iterator[ReadOnlyLog | None]:
    """Provide the store as far as it can be read; None if it is gone."""
    store = ReadOnlyLog(folder / LOG.data)
    try:
        yield store if any((folder / LOG.data).glob("*.segment")) else None
    finally:
        store.close()


readable_part = reading


def build(folder: Path, source: Store | None, extent: Extent, bodies: Sequence[int], progress: Progress) -> None:
    """Write a new log with the pages of an extent and some bodies, and make it durable."""
    place = building(folder, LOG)
    shutil.rmtree(place, ignore_errors=True)
    target = LogStore(place)
    target.recover()
    try:
        if source is not None:
            copy_contents(source, target, extent, bodies, progress)
    finally:
        target.close()
    complete(folder, LOG, place / LOG.data)
    shutil.rmtree(place)


def unfinished_end(folder: Path) -> int:
    """Return the next sequence of the new log of an interrupted repair."""
    store = ReadOnlyLog(repaired(folder, LOG))
    try:
        return store.recover().next_sequence
    finally:
        store.close()
