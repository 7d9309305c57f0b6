"""An open log: its contents, with what reads, writes and compacts them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Final

from fairlane.adapters.folder.file_system import FileSystem
from fairlane.adapters.log.compaction import Compactor
from fairlane.adapters.log.contents import Contents
from fairlane.adapters.log.moves import Mover
from fairlane.adapters.log.reader import FileWindow, Handles, body_of, pages_of
from fairlane.adapters.log.record import Content
from fairlane.adapters.log.recovery import Found
from fairlane.adapters.log.slots import Background, Slots
from fairlane.adapters.log.writer import Writer
from fairlane.errors import StoreCorrupt
from fairlane.ports.store import StoredPage

_RECLAIM_BYTES_MAX: Final = 8 << 20


class LogReader:
    """Reads the pages and bodies of a log, given its contents. Every method may raise OSError."""

    def __init__(self, files: FileSystem, folder: Path, contents: Contents) -> None:
        self._files = files
        self._handles = Handles(files, folder)
        self.contents = contents

    def pages(self, sequence: int, count_max: int | None = None) -> list[StoredPage]:
        """Return pages of the run that holds a sequence, from there on, up to one that cannot be read.

        Raises:
            StoreCorrupt: the first of them cannot be read.
        """
        run = self.contents.pages.find(sequence)
        if run is None:
            return []
        segment = self.contents.segments[run.segment]
        window = FileWindow(self._files, lambda: self._handles.get(segment.slot))
        pages: list[StoredPage] = []
        try:
            pages.extend(islice(pages_of(window, segment, run, sequence), count_max))
        except StoreCorrupt:
            if not pages:
                raise
        return pages

    def body(self, number: int) -> bytes | None:
        """Return a body; None if it is missing."""
        place = self.contents.bodies.find(number)
        if place is None:
            return None
        segment = self.contents.segments[place[0]]
        return body_of(self._files, self._handles.get(segment.slot), segment, place[1])

    def size(self) -> int:
        """Return how much the segments of the log take."""
        return sum(segment.size for segment in self.contents.segments.values())

    def close(self) -> None:
        """Close all files."""
        self._handles.close()


class OpenLog(LogReader):
    """A log that is written to. Every method may raise OSError."""

    def __init__(
        self,
        files: FileSystem,
        folder: Path,
        found: Found,
        *,
        background: Background,
        entropy: Callable[[int], bytes],
        segment_bytes_max: int,
    ) -> None:
        super().__init__(files, folder, found.contents if found.contents is not None else Contents())
        self._slots = Slots(files, folder, background=background, segment_bytes_max=segment_bytes_max)
        used = {segment.slot for segment in self.contents.segments.values()}
        # A file under a name that is not its own was copied there by hand, and is left alone.
        ours = {s: f.size for s, f in found.files.items() if s not in used and (not f.header or f.header.slot == s)}
        self._slots.begin(found.files, ours)

        def salt() -> int:
            return int.from_bytes(entropy(8), "little")

        store = found.store or salt()
        self._mover = Mover(files, folder, contents=self.contents, slots=self._slots, store=store, salt=salt)
        self.writer = Writer(
            files,
            folder,
            contents=self.contents,
            handles=self._handles,
            slots=self._slots,
            mover=self._mover,
            store=store,
            salt=salt,
        )
        self._compactor = Compactor(self.contents, files, self._handles)

    def settle(self, durable: int) -> None:
        """Make durable what was found, or the first segment if there is none."""
        if self.contents.segments:
            self.writer.settle(durable)
        else:
            self.writer.begin_segment()
            self.writer.sync(is_durable=True)

    def append(self, content: Content) -> None:
        """Write a commit, then some of what compaction moves."""
        written, segment_bytes = self.writer.append(content), self.writer.segment_bytes
        if self._compactor.is_due(written, segment_bytes) and self._mover.has_room(segment_bytes):
            moved = self._compactor.take(segment_bytes)
            if moved.bodies or moved.pages:
                self._mover.append(moved, segment_bytes)

    def size(self) -> int:
        """Return how much the files of the log take."""
        return super().size() + self._slots.free_bytes()

    def reclaim(self) -> None:
        """Move what is alive in some sparse segments, and delete all files that are free."""
        left = _RECLAIM_BYTES_MAX
        while left > 0:
            moved = self._compactor.force(self.writer.segment_bytes)
            if not moved.bodies and not moved.pages:
                break
            left -= self._mover.append(moved, self.writer.segment_bytes)
        if self.contents.dead():
            self.writer.begin_segment()
        self.writer.sync(is_durable=True)
        self.writer.trim_files()

    def close(self) -> None:
        """Close all files."""
        self._slots.close()
        self.writer.close()
        self._mover.close()
        super().close()
