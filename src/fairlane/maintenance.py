"""Checking and repairing a store that no broker has open, and declaring that it was restored from a backup.

A broker refuses a damaged store. Checking says what is damaged and how much that affects; repairing copies what is
readable to a new place, keeps the damaged files, and continues with sequences that were certainly never issued.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from fairlane.adapters.folder.examination import Examination
from fairlane.adapters.folder.high_water import FILE_NAME, HighWater, write_high_water
from fairlane.adapters.folder.mark import LOG, MARK, ROCKSDB, Kind, kind_of, write_mark
from fairlane.adapters.folder.replacement import UNKNOWN_SKIP, finish, is_unfinished, move_aside
from fairlane.adapters.folder_store import check_there
from fairlane.adapters.log import repair as log_repair
from fairlane.adapters.numbered_store import NumberedStore
from fairlane.adapters.store_url import is_url, split_folder
from fairlane.adapters.succession import EMPTY
from fairlane.adapters.system import SystemClock, SystemEntropy
from fairlane.assembly import open_hooks, open_store
from fairlane.broker.engine.engine import Engine
from fairlane.broker.inspection import Inspection, inspect_store
from fairlane.data_folder import loss_of, marked_sequence, note_reached
from fairlane.errors import FairlaneError, InvalidArgument, StoreFailed
from fairlane.journal.codec import decode
from fairlane.ports.store import Extent, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreReport:
    """What a check found.

    Attributes:
        faults: what is damaged, one sentence each; empty if the store is whole.
        first: the first sequence of the journal that is kept.
        end: the journal is readable up to, but excluding, this sequence.
        expected_end: where it should end, as far as anything tells.
        messages: how many messages are alive at the readable end.
        unreadable: the messages among them whose body can't be read, as a queue and an id.
    """

    faults: tuple[str, ...]
    first: int
    end: int
    expected_end: int
    messages: int
    unreadable: tuple[tuple[str, str], ...]

    @property
    def is_whole(self) -> bool:
        """Whether nothing is damaged."""
        return not self.faults


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairReport:
    """What a repair did, or would do.

    Attributes:
        found: what was damaged.
        next_sequence: the first sequence that is issued afterwards, above all that may have been issued before.
        aside: where the damaged files are; None if nothing was changed, or an interrupted repair had moved them.
    """

    found: StoreReport
    next_sequence: int
    aside: Path | None


Progress = Callable[[int, int], None]
"""Called with how much was done, and how much there is."""


def _no_progress(_done: int, _all: int) -> None:
    pass


def check_store(place: Path | str, progress: Progress = _no_progress) -> StoreReport:
    """Read a whole store, and return what is damaged. Nothing in it is changed.

    A store at a URL is owned for as long as the check takes.

    Raises:
        StoreLocked: a broker has the store open.
        InvalidArgument: there is no store.
    """
    if isinstance(place, str) and is_url(place):
        return _check_url(place, progress)
    if loss := _loss_of(place):
        return _nothing_left(loss)
    folder, kind = _store_folder(place)
    repair = _repair_of(kind)
    with repair.locked(folder):
        found = repair.examine(folder, progress)
        try:
            with repair.reading(folder) as store:
                inspected = inspect_store(store, store.recover(), progress) if store is not None else None
        except FairlaneError as error:
            return _report(found, None, error.cause)
    return _report(found, inspected)


def _check_url(url: str, progress: Progress) -> StoreReport:
    store = open_store(url)
    try:
        inspected = inspect_store(store, store.recover(), progress)
    finally:
        store.close()
    return _summary((), inspected, inspected.extent.next_sequence)


def repair_store(place: Path | str, *, is_dry_run: bool, progress: Progress = _no_progress) -> RepairReport:
    """Copy what is readable of a damaged store to a new database, which takes its place.

    The damaged files are kept in a folder ``damaged-N`` beside it. An interrupted repair can be repeated at any time.

    Args:
        place: the folder of the store.
        is_dry_run: only find out what would be lost.
        progress: called while something is read or copied.

    Raises:
        StoreLocked: a broker has the store open.
        StoreDamaged, StoreCorrupt: nothing can be read; only a backup helps.
        InvalidArgument: there is no store in the folder, or it is at a URL.
    """
    if isinstance(place, str) and is_url(place):
        raise InvalidArgument("Only a store in a folder can be repaired. Restore a backup of the database or bucket.")
    if loss := _loss_of(place):
        if is_dry_run:
            return RepairReport(found=_nothing_left(loss), next_sequence=_after_loss(place), aside=None)
        _begin_again(place)
    return _repair(*_store_folder(place), is_dry_run=is_dry_run, progress=progress)


def _repair(folder: Path, kind: Kind, *, is_dry_run: bool, progress: Progress) -> RepairReport:
    repair = _repair_of(kind)
    with repair.locked(folder):
        found = repair.examine(folder, progress)
        if is_unfinished(folder, kind):
            return _finish(folder, kind, found, is_dry_run=is_dry_run)
        with repair.readable_part(folder) as source:
            inspected = None if source is None else inspect_store(source, source.recover(), progress)
            report = _report(found, inspected, "" if source is None else source.fault)
            if report.is_whole or is_dry_run:
                return RepairReport(found=report, next_sequence=_reserved(found, report), aside=None)
            is_readable = source is not None and inspected is not None and inspected.is_whole and not source.fault
            needs_new = not is_readable or found.is_damaged
            if needs_new:
                bodies = () if inspected is None else inspected.bodies
                repair.build(folder, source, _kept(inspected), bodies, progress)
        aside = move_aside(folder, kind, with_data=needs_new)
        reserved = _reserved(found, report)
        note_reached(folder, sequence=reserved)
        finish(folder, kind, end=report.end, reserved=reserved)
    return RepairReport(found=report, next_sequence=reserved, aside=aside)


def _loss_of(place: Path | str) -> str:
    """Return how it is known that the store of a server is gone as a whole; empty unless it is."""
    return loss_of(Path(split_folder(str(place))[1]))


def _nothing_left(loss: str) -> StoreReport:
    return StoreReport(faults=(loss,), first=1, end=1, expected_end=1, messages=0, unreadable=())


def _after_loss(place: Path | str) -> int:
    """Return the first sequence that a store which is gone certainly never issued."""
    return marked_sequence(Path(split_folder(str(place))[1]).parent) + UNKNOWN_SKIP


def _begin_again(place: Path | str) -> None:
    """Make the folder of a store that is gone, marked as one that has lost its data, which a repair then replaces."""
    reserved = _after_loss(place)
    folder = Path(split_folder(str(place))[1])
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        write_high_water(folder, HighWater(reserved=reserved))
        write_mark(folder, LOG, is_made=True)
    except OSError as error:
        raise StoreFailed(f"Cannot recreate the folder of the store: {error}.") from error


def _finish(folder: Path, kind: Kind, found: Examination, *, is_dry_run: bool) -> RepairReport:
    """Finish a repair that was interrupted after the damaged data was moved aside."""
    end = _repair_of(kind).unfinished_end(folder)
    report = StoreReport(
        faults=("A repair was interrupted; its new database is complete.",),
        first=1,
        end=end,
        expected_end=end,
        messages=0,
        unreadable=(),
    )
    reserved = _reserved(found, report)
    if not is_dry_run:
        note_reached(folder, sequence=reserved)
        finish(folder, kind, end=end, reserved=reserved)
    return RepairReport(found=report, next_sequence=reserved, aside=None)


class ReadableStore(Store, Protocol):
    """What can be read of a store.

    Attributes:
        fault: why the store itself cannot be opened, if this is only what could be salvaged of it.
    """

    fault: str


class Repair(Protocol):
    """What repairs a kind of store: a module of its adapter."""

    def locked(self, folder: Path) -> AbstractContextManager[None]:
        """Hold the lock of a store that no process has open."""

    def examine(self, folder: Path, progress: Progress) -> Examination:
        """Find out whether a store is whole, without changing anything."""

    def reading(self, folder: Path) -> AbstractContextManager[ReadableStore | None]:
        """Provide the store as it is, to be read only; None if it is gone."""

    def readable_part(self, folder: Path) -> AbstractContextManager[ReadableStore | None]:
        """Provide as much of a store as can be read; None if it is gone."""

    def build(
        self, folder: Path, source: ReadableStore | None, extent: Extent, bodies: Sequence[int], progress: Progress
    ) -> None:
        """Build new data beside the damaged data."""

    def unfinished_end(self, folder: Path) -> int:
        """Return the next sequence of the new data of an interrupted repair."""


def _repair_of(kind: Kind) -> Repair:
    if kind is LOG:
        return cast("Repair", log_repair)
    from fairlane.adapters.rocksdb import repair as rocksdb_repair

    return cast("Repair", rocksdb_repair)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreReport:
    """How a restored store goes on.

    Attributes:
        journal_id: the new id of its journal.
        next_sequence: the first sequence that is issued from now on, above all that may have been issued before.
    """

    journal_id: str
    next_sequence: int


def declare_restored(place: Path | str) -> RestoreReport:
    """Give the journal of a store that was restored from a backup a new id, and skip sequences it may have issued.

    Readers of the journal that continue from a position then learn that it is another journal. Otherwise events that
    the broker records from now on would pass for those that it recorded under the same sequences after the backup.

    Raises:
        StoreLocked: a broker has the store open.
        InvalidArgument: there is no store.
        StoreFailed, StoreCorrupt, StoreDamaged: the store can't be opened.
    """
    check_there(place)
    if not (isinstance(place, str) and is_url(place)):
        place, _ = _store_folder(place)
    store = _numbered(open_store(place))
    engine = Engine(store, hooks=open_hooks(lambda _key: None), clock=SystemClock(), entropy=SystemEntropy())
    try:
        engine.open()
        journal_id = engine.renew_journal(skip=UNKNOWN_SKIP)
        cycle = engine.begin()
        engine.write(cycle)
        engine.sync()
        engine.finish(cycle)
        return RestoreReport(journal_id=journal_id, next_sequence=engine.ledger.next_sequence)
    finally:
        store.close()


def _numbered(store: Store) -> Store:
    """Return a store as its broker sees it: that of a partition counts from a high number, as its records tell."""
    first = counts_from(store)
    return NumberedStore(store, first=first) if first else store


def counts_from(store: Store) -> int:
    """Return the number that the sequences of a store, which is closed, begin after for its broker."""
    try:
        store.recover()
        page = next(store.pages(0), None)
    finally:
        store.close()
    return decode(page.page).records[0].sequence - page.sequence if page is not None else 0


def _store_folder(place: Path | str) -> tuple[Path, Kind]:
    """Return the folder of a store, and its kind."""
    folder = Path(split_folder(str(place))[1])
    names = (MARK, FILE_NAME, LOG.data, ROCKSDB.data)
    if not any((folder / name).exists() for name in names):
        raise InvalidArgument(f"{folder} is not a Fairlane store. Name the data folder of a server or broker.")
    kind = kind_of(folder)
    if kind is None:  # the mark is damaged and the data is gone, or an interrupted repair has moved it aside
        kind = next((each for each in (LOG, ROCKSDB) if is_unfinished(folder, each)), LOG)
    return folder, kind


def _kept(inspected: Inspection | None) -> Extent:
    """Return the extent of the new database."""
    if inspected is None:
        return EMPTY
    extent = inspected.extent
    first = extent.base if inspected.history_fault else extent.first
    return Extent(first=min(first, inspected.end), base=extent.base, next_sequence=inspected.end)


def _reserved(found: Examination, report: StoreReport) -> int:
    """Return the first sequence that was certainly never issued."""
    if found.high_water is None:
        return report.expected_end + UNKNOWN_SKIP
    return max(found.high_water.reserved, report.expected_end)


def _report(found: Examination, inspected: Inspection | None, fault: str = "") -> StoreReport:
    expected_end = found.expected_end
    faults = (*found.faults, *([fault] if fault else []))
    if inspected is None:
        return StoreReport(faults=faults, first=1, end=1, expected_end=expected_end, messages=0, unreadable=())
    return _summary(faults, inspected, expected_end)


def _summary(faults: tuple[str, ...], inspected: Inspection, expected_end: int) -> StoreReport:
    unreadable = inspected.unreadable
    more = [fault for fault in (inspected.fault, inspected.history_fault) if fault]
    if unreadable:
        more.append(f"The bodies of {len(unreadable)} messages can't be read.")
    return StoreReport(
        faults=(*faults, *more),
        first=inspected.extent.first,
        end=inspected.end,
        expected_end=max(expected_end, inspected.extent.next_sequence),
        messages=inspected.messages,
        unreadable=unreadable,
    )
