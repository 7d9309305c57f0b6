"""Exports sealed segments of the journal as Parquet files, for Spark and for the archive. Needs ``fairlane[arrow]``.

A segment becomes one file, see ``journal/segments.py``. The file is written under a hidden name, made durable, and only
then renamed. So a file under its own name is complete, an interrupted export leaves only a hidden file, and an export
can be repeated at any time. One process exports into a folder at a time.

Names and metadata tell which journal a file is of, so a folder can hold several, and none overwrites another.

A file holds the segment's events and nothing else. Sequences that gave no event are gaps inside it, not a loss: what
it covers is said by its name and again by its metadata.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from fairlane.errors import InvalidArgument, JournalTrimmed, StoreCorrupt, StoreFailed
from fairlane.files import replacing
from fairlane.journal.arrow import SCHEMA, batch_of, batch_of_rows
from fairlane.journal.codec import decode
from fairlane.journal.events import Columns
from fairlane.journal.identity import JournalIdentity
from fairlane.journal.records import SegmentImage
from fairlane.journal.segments import Range, SegmentFile, file_name, gaps, is_unfinished, segments_in
from fairlane.model.partitions import NUMBER_BITS
from fairlane.ports.store import StoredPage
from fairlane.verbs.journal import Events, OnTrimmed

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as error:
    raise ImportError("Exports need the package pyarrow with Parquet: install fairlane[arrow].") from error

FIRST_FIELD = b"fairlane.journal.first"
LAST_FIELD = b"fairlane.journal.last"
"""The names under which a file's metadata has the first and the last sequence it covers."""

_FILE_EVENTS = 250_000
"""About how many events of a server's journal go to one file."""
_GROUP_ROWS = 128 * 1024
_GROUP_BYTES = 32 * 1024 * 1024
"""Events, and bytes of pages, that are held in memory before they are written out as a row group."""
_DELTA = {
    **dict.fromkeys(("sequence", "at_ms", "record", "token", "expires_ms"), "DELTA_BINARY_PACKED"),
    "message_id": "DELTA_BYTE_ARRAY",
}
"""Columns that mostly grow by a little: their differences take a small part of what they would."""
_LISTS = {field.name for field in SCHEMA if pa.types.is_list(field.type)}
_DICTIONARIES = [f"{name}.list.element" if name in _LISTS else name for name in SCHEMA.names if name not in _DELTA]
"""All other columns, by the names they have in Parquet: they repeat a few values, or fall back by themselves."""


class Export(msgspec.Struct, frozen=True, kw_only=True):
    """A segment as a file.

    Attributes:
        path: the file.
        first: the first sequence it covers.
        last: the last.
        events: how many events it holds.
        size: how many bytes it has.
        is_new: whether this call wrote it; otherwise it was there already.
    """

    path: Path
    first: int
    last: int
    events: int
    size: int
    is_new: bool


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """What a folder holds of journals.

    Attributes:
        files: the segments, by journal and in order of the sequences they cover.
        unfinished: what interrupted exports have left.
    """

    files: tuple[SegmentFile, ...]
    unfinished: tuple[Path, ...]

    def of(self, journal_id: str) -> tuple[SegmentFile, ...]:
        """Return the segments of one journal."""
        return tuple(file for file in self.files if file.journal_id == journal_id)

    def gaps(self, journal_id: str) -> list[Range]:
        """Return the stretches between the files of a journal that no file covers."""
        return gaps(file.covers for file in self.of(journal_id))


def export_segment(
    segment: SegmentImage, pages: Iterable[StoredPage], folder: Path, *, journal: JournalIdentity
) -> Export:
    """Write a sealed segment to a folder, unless it is there already.

    Args:
        segment: what to export.
        pages: the pages that hold it, in order; more before and after do no harm.
        folder: where to; it is made if it is not there.
        journal: the journal that the segment is of.

    Raises:
        InvalidArgument: the segment holds no sequence.
        StoreFailed: the file could not be written. Unless only its name could not be made durable, it is not there.
        JournalTrimmed: the pages begin after the segment does.
        StoreCorrupt: a page can't be read, or one is missing.
    """
    return export_batches(segment, _groups(segment, pages, journal.journal_id), folder, journal=journal)


def export_batches(
    segment: SegmentImage, batches: Iterable[pa.RecordBatch], folder: Path, *, journal: JournalIdentity
) -> Export:
    """Write a stretch of the journal whose events are there in Arrow to a folder, unless it is there already.

    Raises:
        InvalidArgument: the stretch holds no sequence.
        StoreFailed: the file could not be written. Unless only its name could not be made durable, it is not there.
    """
    path = folder / _name_of(segment, journal.journal_id)
    told = _span(segment) | journal.metadata()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        found = _existing(segment, path, told)
        if found is not None:
            return found
        events = _write(told, batches, path)
        return _export_of(segment, path, events=events, is_new=True)
    except OSError as error:
        raise StoreFailed(f"Could not export segment {segment.first} to {path}: {error}.") from error


def export_stream(read: Callable[[int, OnTrimmed], Events], folder: Path, *, tell: Callable[[int], None]) -> list[Path]:
    """Write the events of a journal that ``read`` returns; see ``fairlane.assembly.export_events``."""
    told = read(0, "skip")
    journal = JournalIdentity(journal_id=told.journal_id, since=told.since)
    position = max((file.covers[1] for file in exported(folder).of(journal.journal_id)), default=0)
    files: list[Path] = []
    while True:
        first, batches, count = position + 1, [], 0
        while count < _FILE_EVENTS:
            found = read(position, "fail")
            if found.position <= position:
                break
            # A partition's journal begins far above 0.
            first = max(first, (found.position >> NUMBER_BITS << NUMBER_BITS) + 1)
            position = found.position
            count += len(found.events)
            batches.append(batch_of_rows(found.events, journal_id=journal.journal_id))
            tell(position)
        if position < first:
            return files
        stretch = SegmentImage(first, position + 1, 0, 0, 0)
        files.append(export_batches(stretch, batches, folder, journal=journal).path)


def exported(folder: Path) -> Exported:
    """Return what a folder holds of journals. Files of other names are none of ours.

    Raises:
        StoreFailed: the folder could not be read.
    """
    try:
        names = sorted(entry.name for entry in folder.iterdir()) if folder.exists() else []
    except OSError as error:
        raise StoreFailed(f"Could not list the exports in {folder}: {error}.") from error
    unfinished = tuple(folder / name for name in names if is_unfinished(name))
    return Exported(files=tuple(segments_in(names)), unfinished=unfinished)


def remove_unfinished(folder: Path) -> int:
    """Remove what interrupted exports have left, while none is running, and return how many files that were.

    Raises:
        StoreFailed: a file could not be removed.
    """
    leftovers = exported(folder).unfinished
    try:
        for path in leftovers:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise StoreFailed(f"Could not remove unfinished exports from {folder}: {error}.") from error
    return len(leftovers)


def _name_of(segment: SegmentImage, journal_id: str) -> str:
    if not 0 <= segment.first < segment.end:
        raise InvalidArgument(f"Segment from {segment.first} up to {segment.end} is empty.")
    return file_name(journal_id, (segment.first, segment.end - 1))


def _span(segment: SegmentImage) -> dict[bytes, bytes]:
    return {FIRST_FIELD: str(segment.first).encode(), LAST_FIELD: str(segment.end - 1).encode()}


def _existing(segment: SegmentImage, path: Path, told: Mapping[bytes, bytes]) -> Export | None:
    """Return an export that is there and whole, of any version; a damaged one is written again."""
    try:
        footer = pq.read_metadata(path)
    except (FileNotFoundError, pa.ArrowInvalid):
        return None
    except OSError as error:
        if error.errno is None:  # Arrow could read the bytes, but made nothing of them
            return None
        raise
    known = footer.metadata or {}
    if any(known.get(name) != value for name, value in told.items()):
        return None
    return _export_of(segment, path, events=footer.num_rows, is_new=False)


def _export_of(segment: SegmentImage, path: Path, *, events: int, is_new: bool) -> Export:
    size = path.stat().st_size
    return Export(path=path, first=segment.first, last=segment.end - 1, events=events, size=size, is_new=is_new)


def _write(told: Mapping[bytes, bytes], batches: Iterable[pa.RecordBatch], path: Path) -> int:
    """Write a file in one step, as seen from outside, and return how many events it holds."""
    events = 0
    with replacing(path) as file, _writer(file, told) as writer:
        for batch in batches:
            writer.write_batch(batch)
            events += batch.num_rows
    return events


def _writer(file: object, told: Mapping[bytes, bytes]) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        file,
        SCHEMA.with_metadata({**SCHEMA.metadata, **told}),
        compression="zstd",
        use_dictionary=_DICTIONARIES,
        column_encoding=_DELTA,
        sorting_columns=[pq.SortingColumn(SCHEMA.get_field_index("sequence"))],
    )


def _groups(segment: SegmentImage, pages: Iterable[StoredPage], journal_id: str) -> Iterator[pa.RecordBatch]:
    """Yield the events of a segment as row groups."""
    columns, size = Columns(), 0
    for stored in _covering(segment, pages):
        try:
            columns.append(decode(stored.page))
        except ValueError as error:
            raise StoreCorrupt(f"Could not export the page at {stored.sequence}: {error}") from error
        size += len(stored.page)
        if columns.count >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield _inside(segment, columns, journal_id)
            columns, size = Columns(), 0
    if columns.count:
        yield _inside(segment, columns, journal_id)


def _inside(segment: SegmentImage, columns: Columns, journal_id: str) -> pa.RecordBatch:
    """Return the events inside a segment: its first and its last page may reach beyond it."""
    sequences = columns.column("sequence") or []
    first = bisect_left(sequences, segment.first)
    return batch_of(columns, journal_id=journal_id).slice(first, bisect_left(sequences, segment.end) - first)


def _covering(segment: SegmentImage, pages: Iterable[StoredPage]) -> Iterator[StoredPage]:
    """Yield the pages that hold something of a segment, and make sure that together they hold all of it."""
    reached = segment.first
    for page in pages:
        if page.next_sequence <= segment.first:
            continue
        if page.sequence > reached:
            _refuse_gap(segment, reached, page.sequence)
        yield page
        reached = page.next_sequence
        if reached >= segment.end:
            return
    _refuse_gap(segment, reached, segment.end)


def _refuse_gap(segment: SegmentImage, reached: int, found: int) -> None:
    cause = f"Could not export segment {segment.first}: the journal has no pages from {reached} up to {found}."
    raise JournalTrimmed(cause) if reached == segment.first else StoreCorrupt(cause)
