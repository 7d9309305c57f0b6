"""Recovery: finds what a log holds, and whether something is missing, without changing anything.

*Theory of operation.* The log is a sequence of segments, and a segment a sequence of records. Each commit is a record,
written to the end of the last segment, the *active* one, and then synced. So after a power loss only records that were
not synced can be torn, in the active segment or in one that was just begun. Anything else that cannot be read is
damage, and the store is refused. What tells them apart is never a guess:

- The active segment is the one with the greatest number whose first record, its checkpoint, is whole. A segment whose
  checkpoint is torn was being begun; the one before is still complete, because its file, and every file that its
  checkpoint lists, stays untouched until the next checkpoint is durable.
- Every record says up to where its segment was durable when it was written. If one says so of an offset at or after
  which a record cannot be read, that record was durable once: damage. It does not matter whether the records between
  can be read, nor in which order the disk wrote what was not synced: records after a torn one do not say so.
- All segments that a checkpoint lists must be there, with the salt, the end and the last checksum that it names.
- The end of the log itself cannot testify; the high-water mark does, in a file of its own.

A record counts only if it names the checksum of the record before, and the salt of this use of the file. So nothing
that an earlier use of the file left behind, or an earlier start dropped as torn, comes back to life.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from fairlane.adapters.folder.file_system import FileSystem
from fairlane.adapters.log.checkpoint import (
    Checkpoint,
    ListedSegment,
    decode_checkpoint,
    decode_summary,
    restore,
    set_alive,
    summary_name,
)
from fairlane.adapters.log.contents import Contents, carried_runs
from fairlane.adapters.log.page_index import PageIndex, PageRun
from fairlane.adapters.log.reader import FileWindow, belongs
from fairlane.adapters.log.record import ALIGNMENT, CHECKPOINT, HEAD_BYTES, MAGIC, RecordHead, damaged_parts, place_of
from fairlane.adapters.log.segment import RECORDS_AT, Header, LogSegment, decode_header, file_name, slot_of
from fairlane.ports.store import Extent

Progress = Callable[[int, int], None]
"""Called with how much was done, and how much there is."""
Accept = Callable[[int, int], bool]
"""Returns whether a record is wanted, given the number and the salt of its segment."""
_SEARCH_BYTES: Final = 1 << 20


@dataclass(slots=True)
class LogFile:
    """A file of the log."""

    slot: int
    size: int
    header: Header | None


@dataclass(slots=True)
class Found:
    """What was found in the folder of a log.

    Attributes:
        files: by their slots.
        contents: what can be read; None if there is no log.
        store: the number that all segments share; 0 if there are none.
        durable: up to where the active segment was certainly synced.
        lost_after: the next sequence after the last commit that can't be used, because one before it is damaged.
        faults: what is damaged, one sentence each.
    """

    files: dict[int, LogFile] = field(default_factory=dict)
    contents: Contents | None = None
    store: int = 0
    durable: int = 0
    lost_after: int = 0
    faults: list[str] = field(default_factory=list)


class _Scan(NamedTuple):
    """A record of a segment, and how many of its parts are damaged."""

    at: int
    head: RecordHead
    damaged: int


class Recovery:
    """Reads a log. Nothing is changed."""

    def __init__(self, files: FileSystem, folder: Path, *, is_same_boot: bool, is_lenient: bool = False) -> None:
        """Prepare to read a log.

        Args:
            files: access to them.
            folder: the folder of the segments.
            is_same_boot: whether the machine has been running since the log was last written to, so that what was
                written and not synced is still there.
            is_lenient: read as much as possible of a damaged log, for those who check or repair it.
        """
        self._files = files
        self._folder = folder
        self._is_same_boot = is_same_boot
        self._is_lenient = is_lenient
        self._found = Found()

    def find(self, progress: Progress = lambda _done, _all: None) -> Found:
        """Return what the log holds, and what is damaged."""
        found = self._found
        for name in sorted(self._files.names(self._folder)):
            slot = slot_of(name)
            if slot is not None:
                found.files[slot] = self._file(slot)
        candidates = [
            file for file in found.files.values() if file.header is not None and file.header.slot == file.slot
        ]
        stores = {file.header.store for file in candidates if file.header is not None}
        if len(stores) > 1:
            found.faults.append(f"{self._folder} has segments of {len(stores)} different stores.")
        started = self._active(candidates)
        self._check_unlisted(started[1].segment if started is not None else 0)
        if started is not None:
            found.store = started[1].store
            found.contents = self._read(*started, progress)
            headers = [file.header for file in found.files.values()]
            found.contents.last_number = max(header.segment for header in headers if header is not None)
        return found

    # ------------------------------------------------------------------------------------------- the active segment

    def _file(self, slot: int) -> LogFile:
        with self._opened(slot) as handle:
            return LogFile(slot, self._files.size(handle.handle), decode_header(handle.read(0, RECORDS_AT)))

    def _active(self, candidates: list[LogFile]) -> tuple[Checkpoint, Header] | None:
        """Return the checkpoint and the header of the active segment."""
        headers = [file.header for file in candidates if file.header is not None]
        for header in sorted(headers, key=lambda header: header.segment, reverse=True):
            with self._opened(header.slot) as window:
                segment = _segment_of(header)
                checkpoint = _checkpoint_of(window, segment)
                if checkpoint is not None:
                    return checkpoint, header
                testified, _ = self._testimony(window, segment, RECORDS_AT, self._found.files[header.slot].size)
                if testified > RECORDS_AT:
                    self._found.faults.append(f"{file_name(header.slot)}: the checkpoint is damaged.")
        return None

    def _check_unlisted(self, active: int) -> None:
        """Notice a segment after the active one whose header is lost. Free files have an older header, or zeros."""
        for file in self._found.files.values():
            if file.header is not None:
                continue
            with self._opened(file.slot) as window:
                for at, head in _heads(window, RECORDS_AT, file.size, lambda segment, _salt: segment > active):
                    if self._testified(head) > RECORDS_AT:
                        self._found.faults.append(
                            f"{file_name(file.slot)}: the header is damaged, and a commit follows at offset {at}."
                        )
                        self._found.lost_after = max(self._found.lost_after, head.next_sequence)
                        break

    # -------------------------------------------------------------------------------------------------- all segments

    def _read(self, checkpoint: Checkpoint, header: Header, progress: Progress) -> Contents:
        contents = Contents()
        contents.extent = Extent(first=checkpoint.first, base=checkpoint.base, next_sequence=checkpoint.next_sequence)
        for at, entry in enumerate(checkpoint.segments):
            self._add_listed(contents, entry)
            progress(at, len(checkpoint.segments))
        active = _segment_of(header)
        contents.segments[active.number] = active
        file = self._found.files[header.slot]
        if file.size != header.size:
            self._found.faults.append(f"{file_name(file.slot)} has {file.size} bytes, not {header.size}.")
        with self._opened(header.slot) as window:
            self._follow(contents, active, window, file.size)
        contents.pages.trim(contents.extent.first)
        return contents

    def _add_listed(self, contents: Contents, entry: ListedSegment) -> None:
        segment = LogSegment(number=entry.number, slot=entry.slot, salt=entry.salt, size=entry.size)
        contents.segments[entry.number] = segment
        if not self._is_there(entry):
            set_alive(segment, msgspec.structs.replace(entry, bodies=0, alive=b""))
            return
        runs = self._summarised(segment, entry)
        if runs is None:
            runs = self._scanned(segment, entry)
            if len(segment.numbers) != entry.bodies:  # which one is which is unknown; to keep too many is safe
                entry = msgspec.structs.replace(entry, bodies=len(segment.numbers), alive=b"")
        numbers = segment.numbers
        set_alive(segment, entry)
        segment.payload_bytes = sum(segment.lengths) + sum(run.page_bytes for run in runs)
        put = contents.bodies.put
        for ordinal, (number, alive) in enumerate(zip(numbers, segment.alive, strict=True)):
            if alive:
                put(number, segment.number, ordinal)
        for run in runs:
            contents.pages.assign(run)

    def _is_there(self, entry: ListedSegment) -> bool:
        """Return whether the file of a listed segment exists, and report if it is not as it should be."""
        name = file_name(entry.slot)
        file = self._found.files.get(entry.slot)
        if file is None:
            self._found.faults.append(f"{name} is missing.")
            return False
        header = file.header
        if header is None or (header.slot, header.segment, header.salt) != (entry.slot, entry.number, entry.salt):
            self._found.faults.append(f"{name}: the header is damaged, or of another segment.")
        elif file.size != entry.size:
            self._found.faults.append(f"{name} has {file.size} bytes, not {entry.size}.")
        return True

    def _summarised(self, segment: LogSegment, entry: ListedSegment) -> list[PageRun] | None:
        """Fill a full segment from its summary, and return its runs of pages; None if there is no good one."""
        path = self._folder / summary_name(entry.slot)
        try:
            handle = self._files.open(path)
        except OSError:
            return None
        try:
            data = self._files.read(handle, self._files.size(handle), 0)
        finally:
            self._files.close(handle)
        summary = decode_summary(data, entry)
        return restore(segment, summary) if summary is not None else None

    def _scanned(self, segment: LogSegment, entry: ListedSegment) -> list[PageRun]:
        """Fill a full segment from its records, and return its runs of pages."""
        pages = PageIndex({segment.number: LogSegment(number=segment.number, slot=0, salt=0, size=0)})
        at, check = RECORDS_AT, 0
        with self._opened(entry.slot) as window:
            while at < entry.end:
                head = window.head(at)
                if head is None or not belongs(head, segment):
                    at = self._resume(window, segment, at, entry)
                    continue
                _add(segment, pages, at, head)
                at, check = at + head.length, head.check
        if (at, check) != (entry.end, entry.last_check) or len(segment.offsets) != entry.bodies:
            self._found.faults.append(f"{file_name(entry.slot)} does not end with the record that it should end with.")
        return list(pages)

    def _resume(self, window: FileWindow, segment: LogSegment, at: int, entry: ListedSegment) -> int:
        """Report a record that cannot be read, and return where the next one begins."""
        end = next((found for found, _ in _heads(window, at + 1, entry.end, _wants(segment))), entry.end)
        self._found.faults.append(f"{file_name(entry.slot)}: {end - at} bytes are unreadable at offset {at}.")
        return end

    # ---------------------------------------------------------------------------------- the end of the active segment

    def _follow(self, contents: Contents, active: LogSegment, window: FileWindow, size: int) -> None:
        """Apply the records of the active segment up to the first that is torn."""
        unsure: list[_Scan] = []
        testified, at = 0, RECORDS_AT
        for scan in _records(window, active, size):
            testified = max(testified, self._testified(scan.head))
            at = scan.at + scan.head.length
            if unsure or scan.damaged:
                unsure.append(scan)
            else:
                contents.apply(active, scan.at, scan.head)
        more, reach = self._testimony(window, active, at, size)
        testified = max(testified, more)
        end = unsure[0].at if unsure else at
        self._found.durable = min(testified, end)
        if testified <= end:
            return
        self._found.lost_after = max(self._found.lost_after, reach)
        if unsure and self._is_lenient:  # their heads can be read, so only the damaged bodies are lost
            for scan in unsure:
                contents.apply(active, scan.at, scan.head)
        name = file_name(active.slot)
        self._found.faults += [f"{name}: the record at offset {scan.at} is damaged." for scan in unsure if scan.damaged]
        if testified > at:
            self._found.faults.append(_unreadable(name, at, contents.extent.next_sequence, reach))

    def _testimony(self, window: FileWindow, segment: LogSegment, at: int, size: int) -> tuple[int, int]:
        """Return up to where the records after an offset say that their segment was durable, and what they reach."""
        testified = reach = 0
        for _, head in _heads(window, at, size, _wants(segment)):
            testified = max(testified, self._testified(head))
            reach = max(reach, head.next_sequence)
        return testified, reach

    def _testified(self, head: RecordHead) -> int:
        return max(head.stamp.synced, head.stamp.answered) if self._is_same_boot else head.stamp.synced

    def _opened(self, slot: int) -> _OpenWindow:
        return _OpenWindow(self._files, self._files.open(self._folder / file_name(slot)))


class _OpenWindow(FileWindow):
    """A window that closes its file."""

    def __init__(self, files: FileSystem, handle: int) -> None:
        super().__init__(files, lambda: handle)
        self.handle = handle
        self._closing = files

    def __enter__(self) -> _OpenWindow:
        return self

    def __exit__(self, *_error: object) -> None:
        self._closing.close(self.handle)


def _wants(segment: LogSegment) -> Accept:
    return lambda number, salt: number == segment.number and salt == segment.salt


def _segment_of(header: Header) -> LogSegment:
    return LogSegment(number=header.segment, slot=header.slot, salt=header.salt, size=header.size)


def _checkpoint_of(window: FileWindow, segment: LogSegment) -> Checkpoint | None:
    head = window.head(RECORDS_AT)
    if head is None or not belongs(head, segment) or head.kind != CHECKPOINT:
        return None
    if damaged_parts(head, window.read(RECORDS_AT, head.length)):
        return None
    at = RECORDS_AT + head.head_length
    return decode_checkpoint(window.read(at, head.page_length))


def _records(window: FileWindow, segment: LogSegment, size: int) -> Iterator[_Scan]:
    """Yield the records of a segment, each of which follows the one before, up to the first that cannot be read."""
    at, previous = RECORDS_AT, 0
    while at < size:
        head = window.head(at)
        if head is None or not belongs(head, segment) or head.stamp.previous != previous:
            return
        yield _Scan(at, head, damaged_parts(head, window.read(at, head.length)))
        at, previous = at + head.length, head.check


def _heads(window: FileWindow, at: int, size: int, accept: Accept) -> Iterator[tuple[int, RecordHead]]:
    """Yield every head after an offset that has the right checksum, wherever it is.

    Args:
        window: reads the file.
        at: where to begin.
        size: where to end.
        accept: returns whether a record of a segment, by its number and salt, is wanted. A file that was used before is
            full of others.
    """
    at += -at % ALIGNMENT
    while at < size:
        data = window.read(at, min(_SEARCH_BYTES, size - at))
        place = data.find(MAGIC)
        while place >= 0:
            if place % ALIGNMENT == 0 and len(data) - place >= HEAD_BYTES and accept(*place_of(data, place)):
                head = window.head(at + place)
                if head is not None:
                    yield at + place, head
            place = data.find(MAGIC, place + 1)
        if len(data) < _SEARCH_BYTES:
            return
        at += len(data) - HEAD_BYTES  # one that reaches beyond is looked at again


def _add(segment: LogSegment, pages: PageIndex, at: int, head: RecordHead) -> None:
    """Add the bodies and pages of a record to those of its segment."""
    if head.has_page:
        pages.append(head.sequence, head.next_sequence, segment=segment.number, offset=at, page_bytes=head.page_length)
    for run in carried_runs(head.carried, segment.number, at):
        pages.assign(run)
    offset = at + head.bodies_at
    for number, length, check in head.bodies:
        segment.add(number, offset, length, check)
        offset += length


def _unreadable(file: str, at: int, first: int, reach: int) -> str:
    """Return what is wrong with a log that has commits after a record that cannot be read."""
    return (
        f"{file}: the record at offset {at} is unreadable, and commits come after it. "
        f"Sequences {first} to {max(reach, 2) - 1} are affected."
    )
