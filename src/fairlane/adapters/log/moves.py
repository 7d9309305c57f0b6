"""The segment to which compaction moves what is alive elsewhere.

It has no checkpoint and is not synced with each commit: what was moved is still in the victim, too, until a checkpoint
is durable that no longer lists the victim. Only then must it be durable, so it is synced before each checkpoint. A
power loss before leaves a file that no checkpoint lists, or lists up to an earlier end, and the victim as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fairlane.adapters.folder.file_system import FileSystem
from fairlane.adapters.log.checkpoint import write_summary
from fairlane.adapters.log.compaction import MovedData
from fairlane.adapters.log.contents import Contents
from fairlane.adapters.log.record import MOVED, Content, Stamp, encode, length_of
from fairlane.adapters.log.segment import RECORDS_AT, Header, LogSegment, encode_header, file_name
from fairlane.adapters.log.slots import Slots


class Mover:
    """Writes what compaction moves."""

    def __init__(
        self,
        files: FileSystem,
        folder: Path,
        *,
        contents: Contents,
        slots: Slots,
        store: int,
        salt: Callable[[], int],
    ) -> None:
        self._files = files
        self._folder = folder
        self._contents = contents
        self._slots = slots
        self._store = store
        self._salt = salt
        self._segment: LogSegment | None = None
        self._handle = -1
        self._is_synced = True

    def has_room(self, segment_bytes: int, *, is_urgent: bool = False) -> bool:
        """Return whether something can be moved without waiting for a file, and prepare one if not."""
        segment = self._segment
        if segment is not None and segment.end + segment_bytes // 8 < segment.size:
            return True
        return is_urgent or self._slots.has(segment_bytes)

    def append(self, moved: MovedData, segment_bytes: int) -> int:
        """Write bodies and pages, and return how many bytes that took."""
        content = Content(MOVED, 0, 0, 0, 0, b"", moved.bodies, (), moved.pages)
        length = length_of(content)
        segment = self._segment
        if segment is None or segment.end + length > segment.size:
            segment = self._begin(max(RECORDS_AT + length, segment_bytes))
        stamp = Stamp(segment.number, segment.salt, segment.last_check, 0, 0)
        head, parts = encode(content, stamp, length)
        self._files.write(self._handle, parts, segment.end)
        self._is_synced = False
        self._contents.apply(segment, segment.end, head)
        return length

    def sync(self) -> None:
        """Make everything that was moved durable."""
        if not self._is_synced:
            self._files.sync(self._handle)
            self._is_synced = True

    def close(self) -> None:
        """Close the file."""
        if self._handle >= 0:
            self._files.close(self._handle)
            self._handle = -1

    def _begin(self, size: int) -> LogSegment:
        contents, full = self._contents, self._segment
        if full is not None:
            self.sync()
            write_summary(self._files, self._folder, full, contents.pages)
            contents.written.discard(full.number)
        slot, size = self._slots.take(size)
        number = contents.last_number + 1
        segment = LogSegment(number=number, slot=slot, salt=self._salt(), size=size)
        self.close()
        self._handle = self._files.open(self._folder / file_name(slot))
        self._files.write(self._handle, [encode_header(Header(slot, number, segment.salt, size, self._store))], 0)
        contents.begin(segment)
        self._segment = segment
        return segment
