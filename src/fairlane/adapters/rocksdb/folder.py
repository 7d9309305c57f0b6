"""The folder of a store: its lock, and whether what is in it is whole.

```
FAIRLANE      marks the folder as a store, and says whether its database was made; see ``adapters.folder.mark``
HIGH-WATER    how far the store reaches at least; see ``adapters.folder.high_water``
rocksdb/      the database
```
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from fairlane.adapters.folder.high_water import FILE_NAME, HighWater, read_high_water
from fairlane.adapters.folder.mark import ROCKSDB, marked
from fairlane.adapters.rocksdb.survey import LogSurvey, Progress, survey_logs
from fairlane.errors import StoreDamaged, StoreLocked

DATABASE = ROCKSDB.data
_DATA_SUFFIXES = frozenset({".sst", ".log", ".blob"})
_log = logging.getLogger("fairlane.store")
if sys.platform != "win32":
    import fcntl
open_here: set[Path] = set()
"""The databases that this process has open; a lock of the operating system does not keep a process from itself."""


@dataclass(frozen=True, slots=True)
class FolderExamination:
    """What was found in the folder of a store, without changing anything.

    Attributes:
        is_made: whether a database was made here once.
        high_water: the high-water mark; None if there is none that can be read.
        survey: what the logs hold.
        reach: the next sequence of the journal, as far as it is readable; 0 if unknown.
        faults: what is wrong, one sentence each; a store with any must not be opened.
    """

    is_made: bool
    high_water: HighWater | None
    survey: LogSurvey
    reach: int
    faults: tuple[str, ...]


@contextmanager
def locked(database: Path) -> Iterator[None]:
    """Hold the lock of a database that this process does not have open, so that no other process opens it.

    Raises:
        StoreLocked: another process has it open, or this one.
    """
    if database.resolve() in open_here:  # to close its lock file would release the lock that RocksDB holds
        raise StoreLocked("This process has the store open already, in another broker or client.")
    path = database / "LOCK"
    if sys.platform == "win32" or not path.exists():  # there, RocksDB's own lock has to do
        yield
        return
    with path.open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StoreLocked(f"Another process has the store open: {path} is locked.") from error
        yield


def locked_folder(folder: Path) -> AbstractContextManager[None]:
    """Hold the lock of the database in the folder of a store."""
    return locked(folder / DATABASE)


def examine(folder: Path, *, probe: Callable[[Path], int], progress: Progress | None = None) -> FolderExamination:
    """Find out whether a store is whole, without changing anything.

    Args:
        folder: the folder of the store, which no process has open.
        probe: opens a database read-only and returns the next sequence of its journal.
        progress: called while logs are read.
    """
    database = folder / DATABASE
    high_water = read_high_water(folder)
    is_made, faults = marked(folder, ROCKSDB)
    is_made = is_made or (high_water is not None and high_water.answered > 1)
    survey = survey_logs(database, progress)
    if not (database / "CURRENT").exists():
        if is_made or survey.ends or any(database.glob("*.sst")):
            faults.append(_root_fault(database))
        return FolderExamination(is_made, high_water, survey, 0, tuple(faults))
    if is_made and high_water is None:
        faults.append(f"{folder / FILE_NAME} is missing or unreadable.")
    mark = high_water if high_water is not None else HighWater()
    # With durability "os", a machine that fails writes what it likes of the logs: holes are no damage then.
    is_lenient = mark.answered > mark.synced and not mark.is_same_boot()
    if survey.damage is not None and not is_lenient:
        faults.append(_log_fault(survey, mark))
        return FolderExamination(is_made, high_water, survey, survey.reach, tuple(faults))
    reach = survey.reach if survey.reach >= mark.answered else probe(database)
    faults += _end_faults(reach, mark)
    return FolderExamination(is_made, high_water, survey, reach, tuple(faults))


def _end_faults(reach: int, mark: HighWater) -> list[str]:
    """Return what is wrong with the end of a store, and log what may be missing there."""
    required = mark.required()
    if reach < required:
        return [f"The store ends before sequence {reach}, but commits before sequence {required} were answered."]
    if reach < mark.answered:
        _log.warning(
            "The machine restarted while durability was 'os': sequences %d to %d are lost.", reach, mark.answered - 1
        )
    return []


def _root_fault(database: Path) -> str:
    """Return what is missing, so that RocksDB would create a new database in place of one that was lost."""
    if not database.exists():
        return f"The database {database} existed before and is gone."
    if any(entry.suffix in _DATA_SUFFIXES for entry in database.iterdir()):
        return f"{database} has data but the file CURRENT is missing."
    return f"{database} existed before, but the file CURRENT and all data are gone."


def _log_fault(survey: LogSurvey, mark: HighWater) -> str:
    damage = survey.damage
    if damage is None:
        return ""
    end = max(damage.after_reach, mark.required())
    lost = f"Sequences {survey.reach} to {end - 1} are affected" if survey.reach else f"Sequences up to {end - 1} are"
    return f"{damage}. {lost}; everything before is readable."


def check_whole(folder: Path, *, probe: Callable[[Path], int]) -> HighWater:
    """Return the high-water mark of a store that may be opened.

    Raises:
        StoreDamaged: something is missing or damaged.
    """
    found = examine(folder, probe=probe)
    if found.faults:
        raise StoreDamaged(f"The store in {folder} is damaged. {' '.join(found.faults)}")
    return found.high_water if found.high_water is not None else HighWater()
