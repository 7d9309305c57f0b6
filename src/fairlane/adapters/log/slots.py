"""The files of a log that hold nothing: filled with zeros ahead of their use, or used before.

Filling a file takes as long as writing it, so a thread does it while the active segment is filled. Files of segments
that are no longer needed are used again; more of them than are likely to be needed soon are deleted.

Only one file is created at a time. A writer that needs one meanwhile waits for it: two at once take longer, and on a
disk that is almost full neither may fit. A closed log has no file in the making, since the next one to open the folder
would take that for a free file and write to it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from fairlane.adapters.folder.file_system import FileSystem
from fairlane.adapters.log.checkpoint import summary_name
from fairlane.adapters.log.segment import file_name

_MIB: Final = 1 << 20
SEGMENT_BYTES_MIN: Final = _MIB
SEGMENT_BYTES_MAX: Final = 32 * _MIB
_SHARE: Final = 16  # of a store: that part of it is one segment
_SPARES_MAX: Final = 2
_ZEROS: Final = bytes(_MIB)
_log = logging.getLogger("fairlane.store")

Background = Callable[[Callable[[], None]], None]
"""Runs a function, usually in a thread of its own."""


def in_thread(work: Callable[[], None]) -> None:
    """Run a function in a thread."""
    threading.Thread(target=work, name="fairlane-log-segment", daemon=True).start()


class Slots:
    """Free files, by slot and size."""

    def __init__(
        self, files: FileSystem, folder: Path, *, background: Background, segment_bytes_max: int = SEGMENT_BYTES_MAX
    ) -> None:
        self._files = files
        self._folder = folder
        self._background = background
        self._bytes_max = segment_bytes_max
        self._lock = threading.Condition()
        self._free: dict[int, int] = {}
        self._next = 1
        self._is_preparing = False
        self._is_closed = False

    def begin(self, used: Iterable[int], free: dict[int, int]) -> None:
        """Begin with the slots that exist."""
        self._free = dict(free)
        self._next = max((*used, *free, 0)) + 1

    def size_for(self, used_bytes: int) -> int:
        """Return how large the next segment of a log should be, given how many bytes the log takes."""
        size = min(SEGMENT_BYTES_MIN, self._bytes_max)
        while size < self._bytes_max and size * _SHARE < used_bytes:
            size *= 2
        return size

    def free_bytes(self) -> int:
        """Return how much the free files take."""
        with self._lock:
            return sum(self._free.values())

    def take(self, size: int) -> tuple[int, int]:
        """Return the slot and the size of a file with at least a size; it is created if none is free."""
        with self._lock:
            fitting = self._fitting(size)
            if not fitting and self._is_preparing:
                self._wait()
                fitting = self._fitting(size)
            if fitting:
                slot = min(fitting, key=lambda slot: self._free[slot])
                return slot, self._free.pop(slot)
            slot = self._next
            self._next += 1
        size += -size % SEGMENT_BYTES_MIN if size > SEGMENT_BYTES_MIN else 0
        self._create(slot, size)
        return slot, size

    def has(self, size: int) -> bool:
        """Return whether a file of at least a size is free, or can be created at once; prepare one if not."""
        if size <= SEGMENT_BYTES_MIN:
            return True
        with self._lock:
            has_one = bool(self._fitting(size))
        if not has_one:
            self.prepare(size)
        return has_one

    def prepare(self, size: int) -> None:
        """Create a free file of at least a size in the background, unless there is one."""
        with self._lock:
            if self._is_preparing or self._is_closed or self._fitting(size):
                return
            self._is_preparing = True
            slot = self._next
            self._next += 1
        self._background(lambda: self._prepare(slot, size))

    def release(self, slots: dict[int, int], size: int) -> None:
        """Take back files that are no longer used, and delete those that won't be needed soon: small ones first."""
        for slot in slots:
            with suppress(OSError):
                self._files.remove(self._folder / summary_name(slot))
        with self._lock:
            self._free |= slots
            ordered = sorted(self._free, key=lambda slot: (self._free[slot] != size, -self._free[slot]))
            surplus = ordered[_SPARES_MAX:]
            for slot in surplus:
                del self._free[slot]
        for slot in surplus:
            self._files.remove(self._folder / file_name(slot))

    def shrink(self) -> None:
        """Delete all free files, because the disk is short of space."""
        with self._lock:
            free, self._free = self._free, {}
        for slot in free:
            self._files.remove(self._folder / file_name(slot))

    def close(self) -> None:
        """Prepare nothing more, and wait until what is being prepared is there or given up."""
        with self._lock:
            self._is_closed = True
            self._wait()

    def _fitting(self, size: int) -> list[int]:
        return [slot for slot, bytes_ in self._free.items() if bytes_ >= size]

    def _wait(self) -> None:
        self._lock.wait_for(lambda: not self._is_preparing)

    def _prepare(self, slot: int, size: int) -> None:
        try:
            if not self._is_closed:
                self._create(slot, size)
                with self._lock:
                    self._free[slot] = size
        except OSError as error:  # the commit that needs it tries again, and reports it
            _log.warning("Cannot prepare a segment of the log: %s.", error)
        finally:
            with self._lock:
                self._is_preparing = False
                self._lock.notify_all()

    def _create(self, slot: int, size: int) -> None:
        """Create a file of zeros, durably."""
        path = self._folder / file_name(slot)
        handle = self._files.create(path)
        try:
            for at in range(0, size, len(_ZEROS)):
                self._files.write(handle, [_ZEROS[: size - at]], at)
            self._files.sync(handle)
        except OSError:
            with suppress(OSError):  # the first error is the one that matters
                self._files.remove(path)
            raise
        finally:
            self._files.close(handle)
        self._files.sync_folder(self._folder)
