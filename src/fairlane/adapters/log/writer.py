"""Writing: records at the end of the active segment, and the step to the next segment.

A record is written with one call, to space that was allocated before. A sync of the one file makes it durable.

*The next segment.* When a record does not fit, the active segment is synced, and a free file becomes the next segment:
its header and its checkpoint are written, then the record. Nothing in between is synced; the sync that the commit needs
anyway covers all of it. If power fails before, the checkpoint may be torn, and the segment before is the active one
again. Therefore everything that its checkpoint lists must be untouched until then: files of segments that are no longer
needed are *pending* until the first checkpoint that does not list them is durable.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from fairlane.adapters.folder.file_system import FileSystem
from fairlane.adapters.log.checkpoint import Checkpoint, encode_checkpoint, listed, write_summary
from fairlane.adapters.log.contents import Contents
from fairlane.adapters.log.moves import Mover
from fairlane.adapters.log.reader import Handles
from fairlane.adapters.log.record import CHECKPOINT, Content, Stamp, encode, length_of
from fairlane.adapters.log.segment import RECORDS_AT, Header, LogSegment, encode_header, file_name
from fairlane.adapters.log.slots import Slots

_DEAD_SEGMENTS_MAX: Final = 4
"""When segments of that many times the usual size are dead, the next one is begun, so that their files are free."""


class Writer:
    """Writes to an open log.

    Attributes:
        synced: up to where the active segment is durable.
        answered: up to where its commits were answered, whether or not they are durable.
        segment_bytes: the size of new segments.
    """

    def __init__(
        self,
        files: FileSystem,
        folder: Path,
        *,
        contents: Contents,
        handles: Handles,
        slots: Slots,
        mover: Mover,
        store: int,
        salt: Callable[[], int],
    ) -> None:
        self._files = files
        self._folder = folder
        self._contents = contents
        self._handles = handles
        self._slots = slots
        self._mover = mover
        self._store = store
        self._salt = salt
        self._active = contents.last
        self._handle = -1
        self._pending: dict[int, int] = {}
        self._checkpoint_end = 0
        self.synced = self.answered = 0
        self.segment_bytes = slots.size_for(sum(segment.end for segment in contents.segments.values()))
        if self._active is not None:
            contents.written.add(self._active.number)
            self._handle = files.open(folder / file_name(self._active.slot))
            self._checkpoint_end = RECORDS_AT

    def settle(self, durable: int) -> None:
        """Write what is not known to be durable once more, and sync it.

        An earlier process may have failed to sync it, and the operating system reports that only once: the page cache
        may hold what the disk does not.
        """
        active = self._active
        if active is None:
            return
        for at in range(durable, active.end, 1 << 20):
            data = self._files.read(self._handle, min(1 << 20, active.end - at), at)
            self._files.write(self._handle, [data], at)
        self._files.sync(self._handle)
        self.synced = self.answered = active.end

    def append(self, content: Content) -> int:
        """Write a record, and return its length."""
        length = length_of(content)
        active = self._active
        if active is None or active.end + length > active.size or self._has_many_dead():
            active = self.begin_segment(length)
        elif self._pending and self.synced >= self._checkpoint_end:
            self._release()
        self._write(active, content, length)
        if 2 * active.end > active.size:
            self._slots.prepare(self.segment_bytes)
        return length

    def begin_segment(self, length: int = 0) -> LogSegment:
        """Begin a segment with room for a record of a length."""
        contents, last = self._contents, self._active
        if last is not None:
            self._seal(last)
            self._release()
            contents.written.discard(last.number)
        self.segment_bytes = self._slots.size_for(sum(segment.end for segment in contents.segments.values()))
        self._retire_dead()
        self._mover.sync()
        checkpoint = self._checkpoint()
        needed = RECORDS_AT + length_of(checkpoint) + length
        slot, size = self._slots.take(max(needed, self.segment_bytes))
        number = contents.last_number + 1
        segment = LogSegment(number=number, slot=slot, salt=self._salt(), size=size)
        self.close()
        self._handle = self._files.open(self._folder / file_name(segment.slot))
        contents.begin(segment)
        self._active = segment
        self.synced = self.answered = 0
        header = encode_header(Header(slot, number, segment.salt, size, self._store))
        self._write(segment, checkpoint, length_of(checkpoint), header)
        self._checkpoint_end = segment.end
        return segment

    def sync(self, *, is_durable: bool) -> None:
        """Make everything that was written durable, or only note that it will be answered."""
        active = self._active
        if active is None:
            return
        end = active.end
        if is_durable:
            self._files.sync(self._handle)
            self.synced = end
        self.answered = end

    def trim_files(self) -> None:
        """Delete all files that are free, once what is written is durable."""
        self._release()
        self._slots.shrink()

    def close(self) -> None:
        """Close the active segment."""
        if self._handle >= 0:
            self._files.close(self._handle)
            self._handle = -1

    def _write(self, segment: LogSegment, content: Content, length: int, header: bytes = b"") -> None:
        stamp = Stamp(segment.number, segment.salt, segment.last_check, self.synced, self.answered)
        head, parts = encode(content, stamp, length)
        at = segment.end
        if header:
            self._files.write(self._handle, [header, *parts], 0)
        else:
            self._files.write(self._handle, parts, at)
        self._contents.apply(segment, at, head)

    def _seal(self, segment: LogSegment) -> None:
        """Make a full segment durable, and write its summary, which is a cache and need not be."""
        if self.synced < segment.end:
            self._files.sync(self._handle)
            self.synced = segment.end
        write_summary(self._files, self._folder, segment, self._contents.pages)

    def _checkpoint(self) -> Content:
        extent = self._contents.extent
        segments = [listed(segment) for segment in self._contents.segments.values()]
        checkpoint = Checkpoint(extent.first, extent.base, extent.next_sequence, segments)
        return Content(
            CHECKPOINT,
            extent.next_sequence,
            extent.next_sequence,
            extent.base,
            extent.first,
            encode_checkpoint(checkpoint),
        )

    def _retire_dead(self) -> None:
        """Leave out the segments that hold nothing, from the next checkpoint on."""
        for segment in self._contents.dead():
            del self._contents.segments[segment.number]
            self._handles.drop(segment.slot)
            self._pending[segment.slot] = segment.size

    def _has_many_dead(self) -> bool:
        contents = self._contents
        if not contents.has_died:
            return False
        contents.has_died = False
        dead = sum(segment.size for segment in contents.dead())
        return dead >= _DEAD_SEGMENTS_MAX * self.segment_bytes

    def _release(self) -> None:
        """Make the pending files free if the checkpoint that does not list them is durable."""
        if self._pending and self.synced >= self._checkpoint_end:
            pending, self._pending = self._pending, {}
            self._slots.release(pending, self.segment_bytes)
