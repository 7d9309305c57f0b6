"""What the logs of a store hold, found out before RocksDB opens them.

Opening is destructive: RocksDB drops what it cannot read and deletes the logs. So everything that can be known is found
out first, without changing anything.

All logs together are one sequence of batches, each of which begins with the number that the one before ends with.
RocksDB keeps to that across restarts too: a torn end that an earlier start has dropped is followed by a log that begins
with exactly the number at which the torn end began. So a number that does not follow means that batches are missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fairlane.adapters.rocksdb.wal import BatchRun, Unreadable, read_log

Progress = Callable[[int, int], None]
"""Called with how much was done, and how much there is."""


@dataclass(frozen=True, slots=True)
class LogDamage:
    """Damage in the logs.

    Attributes:
        path: the log in which the readable part ends.
        offset: where it ends.
        unreadable_bytes: how much is unreadable there; 0 if batches are missing altogether.
        after_commits: how many complete commits come after it. They cannot be used without the ones before.
        after_reach: the next sequence of the journal after the last of these; 0 if none says.
    """

    path: Path
    offset: int
    unreadable_bytes: int
    after_commits: int
    after_reach: int

    def __str__(self) -> str:
        what = f"{self.unreadable_bytes} bytes are unreadable" if self.unreadable_bytes else "commits are missing"
        return f"{self.path}: {what} at offset {self.offset}, and {self.after_commits} commits come after that"


@dataclass(frozen=True, slots=True)
class LogSurvey:
    """What the logs of a store hold.

    Attributes:
        reach: the next sequence of the journal after the readable part of the logs; 0 if they do not say.
        ends: where the readable part ends in each log; a log that comes after damage ends at 0.
        damage: None if nothing but the very end may be torn.
    """

    reach: int
    ends: dict[Path, int]
    damage: LogDamage | None


def log_files(database: Path) -> list[Path]:
    """Return the logs of a database, in the order in which they were written."""
    found = [path for path in database.glob("*.log") if path.stem.isdecimal()]
    return sorted(found, key=lambda path: int(path.stem))


def survey_logs(database: Path, progress: Progress | None = None) -> LogSurvey:
    """Read all logs of a database, and return what they hold."""
    logs = log_files(database)
    reader = _Reader(logs)
    sizes = [log.stat().st_size for log in logs]
    for at, log in enumerate(logs):
        reader.read(log)
        if progress is not None:
            progress(sum(sizes[: at + 1]), sum(sizes))
    return reader.result()


class _Reader:
    """Follows runs of batches through logs, up to the first that does not follow."""

    def __init__(self, logs: list[Path]) -> None:
        self._expected = -1
        self._reach = 0
        self._ends = dict.fromkeys(logs, 0)
        self._last = logs[0] if logs else Path()
        self._unreadable: Unreadable | None = None
        self._damaged_at: tuple[Path, int, int] | None = None
        self._after_commits = self._after_reach = 0

    def read(self, log: Path) -> None:
        self._unreadable = None  # what is torn at the end of the log before is told by the numbers
        for item in read_log(log):
            if isinstance(item, Unreadable):
                if self._unreadable is None:
                    self._unreadable = item
            elif self._damaged_at is not None:
                self._count(item)
            elif self._unreadable is not None or (item.sequence != self._expected >= 0):
                self._note_damage(log)
                self._count(item)
            else:
                self._accept(log, item)

    def _accept(self, log: Path, run: BatchRun) -> None:
        self._expected = run.next_sequence
        self._ends[log] = run.end
        self._last = log
        if run.reach:
            self._reach = run.reach

    def _note_damage(self, log: Path) -> None:
        if self._unreadable is not None:
            offset, end = self._unreadable
            self._damaged_at = (log, offset, end - offset)
        else:
            self._damaged_at = (self._last, self._ends[self._last], 0)

    def _count(self, run: BatchRun) -> None:
        self._after_commits += run.commits
        self._after_reach = max(self._after_reach, run.reach)

    def result(self) -> LogSurvey:
        damage = None
        if self._damaged_at is not None:
            path, offset, unreadable_bytes = self._damaged_at
            damage = LogDamage(path, offset, unreadable_bytes, self._after_commits, self._after_reach)
        return LogSurvey(self._reach, self._ends, damage)
