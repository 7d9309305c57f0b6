"""Backs up a store while its broker keeps running, and restores backups.

A backup is a store in a folder, with a note that says up to where it goes: the *mark*. It is read in slices through the
verb ``read_store``, so it works for every kind of store, from another machine, and for a broker in the same process.

*Why slices of different instants make a whole.* Pages never change, so they can be copied at any time. Bodies are
dropped with the last message that needs them. A slice has pages together with those of their bodies that exist at its
instant. A body that is missing there was dropped by a page up to the end of the journal at that instant. So once the
copy has reached an end, all that it lacks is dropped as well, except bodies that are older than the pages. The ledger,
which is folded from the pages on the way, tells which these are; they are requested by their numbers, and then the copy
follows the journal to its end again. When it stands at an end and lacks nothing, that is the mark.

The broker is never held up for longer than a slice takes, and nothing in it is held back for the backup.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec

from fairlane.broker.engine.recovery import fold_page
from fairlane.broker.inspection import inspect_store, needed_bodies
from fairlane.core.ledger import Ledger
from fairlane.errors import InvalidArgument, JournalTrimmed, StoreCorrupt, StoreFailed
from fairlane.files import replacing
from fairlane.ports.store import Commit, Store
from fairlane.store_copy import CopyReport, begin_copy, copy_store, finish_copy
from fairlane.verbs.stores import StoreBody, StoreSlice

Progress = Callable[[int, int], None]
"""Called with how much was done, and how much there is."""
STORE: Final = "store"
NOTE: Final = "backup.json"
_PASSES: Final = 1_000
_BODIES: Final = 64
_UNSYNCED_BYTES_MAX: Final = 8 << 20


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """Up to where a backup goes.

    Attributes:
        at_ms: the instant of the mark, by the broker's clock. What was answered before is in the backup.
        position: of the last event of the journal in it.
        journal_id: the journal that was backed up.
        messages: how many messages are alive at the mark.
    """

    at_ms: int
    position: int
    journal_id: str
    messages: int


class ReadableBroker(Protocol):
    """What is backed up: a broker in this process, or a client of a server."""

    def read_store(self, after: int = 0, *, bodies: Sequence[int] = (), queue: str | None = None) -> StoreSlice:
        """Return a part of the store."""


def back_up(
    source: ReadableBroker, folder: Path, *, queue: str | None = None, progress: Progress = lambda _done, _all: None
) -> Mark:
    """Copy the store of a running broker to a new folder, and verify the copy.

    Args:
        source: the broker.
        folder: where to; it must be new or empty.
        queue: in a cluster, a queue of the group whose store to back up.
        progress: called while something is read.

    Raises:
        InvalidArgument: the folder is not empty.
        JournalTrimmed: the journal was trimmed faster than it could be read; repeat the backup.
        StoreCorrupt: a body is missing from the store, or the copy is incomplete.
        StoreFailed: the folder can't be written, or the broker writes faster than it can be read.
    """
    _make_folder(folder)
    reached = source.read_store(queue=queue)
    place = str(folder / STORE)
    target = begin_copy(place, reached.counts_from)
    try:
        copying = _Copying(source, target, reached, queue)
        reached = copying.run(reached, progress)
        target.close()
        messages = _verify(target, reached)
    finally:
        target.close()
    finish_copy(place, reached.counts_from)
    mark = _mark(reached, messages)
    with replacing(folder / NOTE) as note:
        note.write(msgspec.json.format(msgspec.json.encode(mark)) + b"\n")
    return mark


def _make_folder(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidArgument(f"{folder} is not empty. Name a new folder for each backup.")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreFailed(f"The folder of the backup can't be created: {error}.") from error


def _mark(reached: StoreSlice, messages: int) -> Mark:
    position = reached.next_sequence - 1
    return Mark(at_ms=reached.at_ms, position=position, journal_id=reached.journal_id, messages=messages)


def read_mark(folder: Path) -> Mark:
    """Return the mark of a backup. Raises InvalidArgument if there is no complete backup in the folder."""
    try:
        return msgspec.json.decode((folder / NOTE).read_bytes(), type=Mark)
    except FileNotFoundError:
        raise InvalidArgument(f"{folder} has no {NOTE}: it is not a backup, or the backup was interrupted.") from None
    except (OSError, msgspec.DecodeError) as error:
        raise InvalidArgument(f"{folder / NOTE} can't be read: {error}.") from error


def restore_backup(folder: Path, target: str, progress: Progress = lambda _done, _all: None) -> CopyReport:
    """Copy a backup to a new store, compare both, and give the store a journal id of its own.

    Args:
        folder: the backup. It is not changed, and can be restored again.
        target: the folder or URL of the new store.
        progress: called while something is read or copied.

    Raises:
        InvalidArgument: there is no complete backup in the folder, or the target is not empty.
        StoreDamaged, StoreCorrupt: the backup is damaged.
        StoreFailed: the target can't be written.
    """
    mark = read_mark(folder)
    done = copy_store(str(folder / STORE), target, progress)
    if done.last_sequence < mark.position:
        raise StoreCorrupt(f"The backup ends at position {done.last_sequence}; its mark says {mark.position}.")
    return done


def _verify(target: Store, reached: StoreSlice) -> int:
    """Open a copy, read all of it, and return how many messages are alive in it. Raises StoreCorrupt on any fault."""
    inspected = inspect_store(target, target.recover())
    if not inspected.is_whole or inspected.end != reached.next_sequence:
        found = inspected.fault or inspected.history_fault or f"it ends before {inspected.end}"
        raise StoreCorrupt(f"The backup is not whole: {found}")
    return inspected.messages


class _Copying:
    """Follows a store slice by slice; see the theory above."""

    def __init__(self, source: ReadableBroker, target: Store, begin: StoreSlice, queue: str | None) -> None:
        self._source = source
        self._target = target
        self._queue = queue
        self._journal_id = begin.journal_id
        self._base = begin.base
        self._first = begin.pages[0].sequence if begin.pages else begin.next_sequence
        self._ledger = Ledger(sequence=begin.base)
        self._end = self._first
        self._held: set[int] = set()
        self._unsynced = 0
        start = begin.counts_from + 1
        target.write(Commit(sequence=start, next_sequence=self._first, page=b"", base=self._first, trim=self._first))

    def run(self, part: StoreSlice, progress: Progress) -> StoreSlice:
        """Copy everything, and return the slice whose end is the mark."""
        missing: set[int] = set()
        for _ in range(_PASSES):
            part = self._follow(part, progress)
            lacking = needed_bodies(self._ledger).keys() - self._held
            if lacking & missing:
                raise StoreCorrupt(f"Body {min(lacking & missing)} is missing from the store.")
            if not lacking:
                self._complete()
                return part
            missing = self._fetch(sorted(lacking))
            part = self._read(after=self._end - 1)
        raise StoreFailed(
            "The broker writes faster than the backup can read. Start the backup again when there is less load."
        )

    def _follow(self, part: StoreSlice, progress: Progress) -> StoreSlice:
        """Copy a slice and all that follow, and return the one that reached the end."""
        while True:
            self._take(part)
            progress(self._end - self._first, part.next_sequence - self._first)
            if self._end >= part.next_sequence:
                return part
            part = self._read(after=self._end - 1)

    def _read(self, *, after: int) -> StoreSlice:
        part = self._source.read_store(after, queue=self._queue)
        if part.journal_id != self._journal_id:
            raise StoreFailed("The server's journal was replaced during the backup. Start the backup again.")
        return part

    def _take(self, part: StoreSlice) -> None:
        self._keep(part.bodies)
        for page in part.pages:
            if page.sequence != self._end:
                raise JournalTrimmed(
                    f"The journal after {self._end - 1} was trimmed before it was read; start the backup again."
                )
            fold_page(self._ledger, page.page)
            self._write(page.page, page.next_sequence)
        dropped = [number for number in self._ledger.dropped if number in self._held]
        self._ledger.dropped.clear()
        if dropped:
            self._held.difference_update(dropped)
            self._write(dropped=dropped)

    def _fetch(self, numbers: Sequence[int]) -> set[int]:
        """Copy bodies by their numbers, and return the numbers of those that are missing by now."""
        missing = set()
        for begin in range(0, len(numbers), _BODIES):
            left = list(numbers[begin : begin + _BODIES])
            while left:
                found = self._source.read_store(bodies=left, queue=self._queue).bodies
                self._keep(found)
                if not found:
                    missing.update(left)
                    break
                left = [number for number in left if number not in self._held]
        return missing

    def _keep(self, bodies: Sequence[StoreBody]) -> None:
        new = [(body.number, body.data) for body in bodies if body.number not in self._held]
        if new:
            self._held.update(number for number, _ in new)
            self._write(bodies=new)

    def _write(
        self,
        page: bytes = b"",
        end: int = 0,
        *,
        bodies: Sequence[tuple[int, bytes]] = (),
        dropped: Sequence[int] = (),
    ) -> None:
        begin, self._end = self._end, max(self._end, end)
        base = max(self._first, min(self._base, self._end))
        commit = Commit(sequence=begin, next_sequence=self._end, page=page, bodies=bodies, dropped=dropped, base=base)
        self._target.write(commit)
        self._unsynced += len(page) + sum(len(data) for _, data in bodies)
        if self._unsynced > _UNSYNCED_BYTES_MAX:
            self._target.sync()
            self._unsynced = 0

    def _complete(self) -> None:
        self._write()  # no page says where the base is, if there is none
        self._target.sync()
