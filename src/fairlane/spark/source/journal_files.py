"""The journal as exported segments: Parquet files, each named after the sequences it covers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs
import pyarrow.parquet as pq

from fairlane.errors import InvalidArgument, JournalTrimmed, StoreCorrupt
from fairlane.journal.arrow import SCHEMA
from fairlane.journal.identity import identity_in
from fairlane.journal.segments import segments_in
from fairlane.journal.selection import Selection
from fairlane.spark.source.ranges import JournalBounds, ReadRange, first_of, split

_BATCH: Final = 32_768


class JournalFiles:
    """Reads exported segments from a folder that driver and executors can both reach. It can be pickled."""

    def __init__(self, path: str, *, on_trimmed: str, journal_id: str | None = None) -> None:
        """Prepare, without reading.

        Args:
            path: the folder, or its URI.
            on_trimmed: what to do about a position that no file covers: ``fail`` or ``skip``.
            journal_id: the journal to read, if the folder holds several.
        """
        self._path = path
        self._on_trimmed = on_trimmed
        self._journal_id = journal_id

    def span(self, near: int = 0) -> JournalBounds:  # noqa: ARG002 - a server wants to know
        """Return the range that the files cover. Raises InvalidArgument if the folder does not exist."""
        files = self._files()
        if not files:
            return JournalBounds(0, 0, self._journal_id or "")
        return JournalBounds(files[0].after, max(file.until for file in files), files[0].journal_id or "")

    def since(self) -> int:
        """Return from where on the journal has its id, which each of its files tells; see ``JournalIdentity``."""
        system, _ = _located(self._path)
        file = self._files()[0]
        try:
            told = identity_in(pq.read_metadata(file.file, filesystem=system).metadata)
        except (pa.ArrowInvalid, OSError) as error:
            raise StoreCorrupt(f"{file.file} is damaged or not a journal segment: {error}.") from error
        return 0 if told is None else told.since

    def has_news(self, after: int, until: int) -> bool:
        """Return whether a range is not empty. Only sealed segments are exported, so an idle journal adds nothing."""
        return until > after

    def parts(self, after: int, until: int, *, least: int) -> list[ReadRange]:
        """Split a range into parts that each lie inside one file.

        Raises:
            JournalTrimmed: a part of the range is in no file.
        """
        parts: list[ReadRange] = []
        reached = after
        for file in self._files():
            if file.until <= reached or file.after >= until:
                continue
            if file.after > reached:
                self._check_gap(reached, file.after)
            first, last = max(reached, file.after), min(until, file.until)
            share = max(1, least * (last - first) // (until - after))
            parts += [replace(part, file=file.file) for part in split(first, last, least=share)]
            reached = last
        if reached < until:
            self._check_gap(reached, until)
        return parts

    def _check_gap(self, reached: int, found: int) -> None:
        if self._on_trimmed == "fail":
            raise JournalTrimmed(f"No file in {self._path} covers the journal from {reached + 1} to {found}.")

    def read(self, part: ReadRange, selection: Selection) -> Iterator[pa.RecordBatch]:
        """Yield the events of a part."""
        system, _ = _located(self._path)
        data = ds.dataset(part.file, filesystem=system, format="parquet")
        # Files of an older version lack columns that were added since; they read as nulls.
        data = data.replace_schema(pa.unify_schemas([SCHEMA.remove_metadata()]))
        columns = None if selection.columns is None else list(selection.columns)
        for batch in data.to_batches(columns=columns, filter=_expression(part, selection), batch_size=_BATCH):
            if batch.num_rows:
                yield batch

    def _files(self) -> list[ReadRange]:
        """Return the range of each file, in order."""
        system, root = _located(self._path)
        try:
            found = system.get_file_info(pyarrow.fs.FileSelector(root))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise InvalidArgument(
                f"Folder {self._path!r:.200} does not exist. Set the option path to a folder with exported segments."
            ) from error
        paths = {info.base_name: info.path for info in found}
        segments = [each for each in segments_in(paths) if self._journal_id in (None, each.journal_id)]
        if len(journals := sorted({each.journal_id for each in segments})) > 1:
            raise InvalidArgument(
                f"Folder {self._path!r:.200} holds segments of several journals: {', '.join(journals)}. "
                "Set the option journal_id to the one to read."
            )
        return [
            ReadRange(
                after=max(each.covers[0] - 1, first_of(each.covers[1])),
                until=each.covers[1],
                file=paths[each.name],
                journal_id=each.journal_id,
            )
            for each in segments
        ]


def _located(path: str) -> tuple[pyarrow.fs.FileSystem, str]:
    if "://" in path:
        system, root = pyarrow.fs.FileSystem.from_uri(path)
        return system, root
    return pyarrow.fs.LocalFileSystem(), path


def _expression(part: ReadRange, selection: Selection) -> ds.Expression:
    wanted = (pc.field("sequence") > part.after) & (pc.field("sequence") <= part.until)
    for column, texts in (
        ("kind", selection.kinds),
        ("queue", selection.queues),
        ("message_id", selection.message_ids),
    ):
        if texts is not None:
            wanted &= pc.field(column).isin(pa.array(sorted(texts), pa.string()))
    if selection.since_ms is not None:
        wanted &= pc.field("at_ms") >= selection.since_ms
    if selection.until_ms is not None:
        wanted &= pc.field("at_ms") <= selection.until_ms
    return wanted
