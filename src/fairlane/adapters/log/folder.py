"""The folder of a log: its lock, and whether what is in it is whole."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fairlane.adapters.folder.file_system import FileSystem, SystemFiles
from fairlane.adapters.folder.high_water import FILE_NAME, HighWater, read_high_water
from fairlane.adapters.folder.mark import LOG, marked
from fairlane.adapters.log.recovery import Found, Progress, Recovery
from fairlane.errors import StoreDamaged, StoreFailed, StoreLocked

LOCK: Final = "LOCK"
_log = logging.getLogger("fairlane.store")


@dataclass(frozen=True, slots=True)
class LogExamination:
    """What was found in the folder of a store, without changing anything.

    Attributes:
        is_made: whether a log was made here once.
        high_water: the high-water mark; None if there is none that can be read.
        found: what the log holds.
        required: the sequence that the store must reach, according to the mark.
        faults: what is wrong, one sentence each; a store with any must not be opened.
    """

    is_made: bool
    high_water: HighWater | None
    found: Found
    required: int
    faults: tuple[str, ...]

    @property
    def reach(self) -> int:
        """Return the next sequence of the journal, as far as it is readable; 1 if there is no log."""
        contents = self.found.contents
        return contents.extent.next_sequence if contents is not None else 1


class FolderLock:
    """The lock of a log, held by one process at a time. A process that dies releases it."""

    def __init__(self, folder: Path, files: FileSystem) -> None:
        self._path = folder / LOCK
        self._files = files
        self._handle: int | None = None

    def acquire(self) -> None:
        """Hold the lock, and create its file if it is missing.

        Raises:
            StoreLocked: another process has the store open, or this one.
            StoreFailed: the file cannot be used.
        """
        try:
            self._handle = self._files.lock(self._path)
        except BlockingIOError as error:
            held = "Another process has the store open, or this process has, in another broker or client"
            raise StoreLocked(f"{held}: {self._path} is locked.") from error
        except OSError as error:
            raise StoreFailed(f"Cannot use the folder of the store: {error}.") from error

    def release(self) -> None:
        """Release the lock."""
        handle, self._handle = self._handle, None
        if handle is not None:
            self._files.close(handle)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of the log in the folder of a store, if there is one.

    Raises:
        StoreLocked: another process has the store open, or this one.
    """
    if not (folder / LOG.data).is_dir():
        yield
        return
    lock = FolderLock(folder / LOG.data, SystemFiles())
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


def examine(
    folder: Path, files: FileSystem, *, is_lenient: bool = False, progress: Progress = lambda _done, _all: None
) -> LogExamination:
    """Find out whether a store is whole, without changing anything.

    Args:
        folder: the folder of the store, which no process has open.
        files: access to them.
        is_lenient: read as much as possible of a damaged log.
        progress: called while segments are read.
    """
    boot = files.boot_id()
    high_water = read_high_water(folder, files)
    is_made, faults = marked(folder, LOG, files)
    mark = high_water if high_water is not None else HighWater()
    is_made = is_made or mark.answered > 1
    is_same_boot = mark.is_same_boot(boot)
    found = Recovery(files, folder / LOG.data, is_same_boot=is_same_boot, is_lenient=is_lenient).find(progress)
    if is_made and high_water is None:
        faults.append(f"{folder / FILE_NAME} is missing or unreadable.")
    faults += found.faults
    required = mark.required(boot)
    if found.contents is not None:
        faults += _end_faults(found.contents.extent.next_sequence, required, mark)
    elif is_made and not found.faults:
        faults.append(f"The log {folder / LOG.data} existed before, but its segments are gone.")
    return LogExamination(is_made, high_water, found, required, tuple(faults))


def _end_faults(reach: int, required: int, mark: HighWater) -> list[str]:
    """Return what is wrong with the end of a store, and log what may be missing there."""
    if reach < required:
        return [f"The store ends before sequence {reach}, but commits before sequence {required} were answered."]
    if reach < mark.answered:
        _log.warning(
            "The machine restarted while durability was 'os': sequences %d to %d are lost.", reach, mark.answered - 1
        )
    return []


def check_whole(folder: Path, files: FileSystem) -> tuple[Found, HighWater]:
    """Return what the log of a store holds, and its high-water mark, if it may be opened.

    Raises:
        StoreDamaged: something is missing or damaged.
        StoreFailed: it cannot be read.
    """
    try:
        found = examine(folder, files)
    except OSError as error:
        raise StoreFailed(f"Cannot read the log in {folder}: {error}.") from error
    if found.faults:
        raise StoreDamaged(f"The store in {folder} is damaged. {' '.join(found.faults)}")
    return found.found, found.high_water if found.high_water is not None else HighWater()
