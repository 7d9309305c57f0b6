"""The reserve: disk space that new messages may not use, so that a full disk can be drained.

A store needs space to shrink. Leases and acknowledgements are records, too, and RocksDB writes new files before it
deletes old ones. If producers could fill the disk to the last byte, consumers could not take anything off it. So what
adds payloads is refused with ``store_full`` as soon as less than the reserve is free, and everything else goes on.

Asking the operating system costs a few microseconds. It is done after every eighth of the reserve that was written;
and, because others may write to the disk as well, every second, every ten seconds while there is plenty of space, and
five times a second while space is short. Space that comes back is noticed then, without a restart.

A store returns the space of deleted messages at its leisure, which may be after thousands of them. While space is short
it is asked every two seconds to do it now, but only once it holds so little that copying all of it could not fill the
disk: until then consumers go on, and that matters more.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from fairlane.errors import FairlaneError, StoreFull
from fairlane.model.message import NEVER_MS
from fairlane.ports.disk import Disk
from fairlane.verbs.batches import Stage
from fairlane.verbs.fan_outs import FanOut
from fairlane.verbs.leases import Forward, SetState
from fairlane.verbs.messages import Enqueue
from fairlane.verbs.schedules import RunSchedule
from fairlane.verbs.uploads import BeginUpload, UploadPiece

GROWING: Final[frozenset[type]] = frozenset(
    (Enqueue, FanOut, Forward, RunSchedule, SetState, Stage, BeginUpload, UploadPiece)
)
"""The requests that add payloads or workflow state to a store."""
_LOOK_MS: Final = 1_000
_PLENTY_MS: Final = 10_000
_SHORT_MS: Final = 200
_RECLAIM_MS: Final = 2_000
_PARTS: Final = 8  # of a disk: on a small one the reserve is that part of it
_MIB: Final = 1 << 20
_log = logging.getLogger("fairlane.broker")


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSpace:
    """The space of a disk in bytes: all of it, what is free, and what is kept for acknowledgements."""

    total: int
    free: int
    reserve: int


class DiskReserve:
    """Whether the disk has less space than the reserve.

    Attributes:
        is_short: whether requests that add payloads are refused.
        due_ms: when to look again,
        due_bytes: or after how many more bytes, which the engine counts down.
    """

    def __init__(self, disk: Disk | None, reserve_bytes: int) -> None:
        self._disk = disk
        self._reserve_bytes_max = self._reserve_bytes = reserve_bytes
        self._free_bytes = 0
        self._reclaim_ms = 0
        self.is_short = False
        self.due_ms = 0
        self.due_bytes = 0

    def look(self, now_ms: int, held_bytes: int) -> None:
        """Compare the free space with the reserve, and with the payloads that the store holds."""
        if self._disk is None:
            self.due_ms = self.due_bytes = NEVER_MS
            return
        was_short = self.is_short
        try:
            self._reserve_bytes = min(self._reserve_bytes_max, max(1, self._disk.total_bytes() // _PARTS))
            self._free_bytes = self._disk.free_bytes()
            self.is_short = self._free_bytes < self._reserve_bytes
        except OSError as error:
            self.is_short = False  # the store says itself what it can't write
            if was_short:
                _log.warning("The free space of the disk is unknown: %s. Enqueues are accepted.", error)
        else:
            self._note_change(was_short=was_short)
        has_plenty = self._free_bytes >= _PARTS * self._reserve_bytes
        self.due_ms = now_ms + (_SHORT_MS if self.is_short else _PLENTY_MS if has_plenty else _LOOK_MS)
        self.due_bytes = self._reserve_bytes // _PARTS
        if self.is_short and now_ms >= self._reclaim_ms and 2 * held_bytes < self._free_bytes:
            self._reclaim_ms = now_ms + _RECLAIM_MS
            self.reclaim()

    def space(self) -> DiskSpace | None:
        """Return the space of the disk now; None if there is no disk, or its space is unknown."""
        if self._disk is None:
            return None
        try:
            total, free = self._disk.total_bytes(), self._disk.free_bytes()
        except OSError:
            return None
        return DiskSpace(total=total, free=free, reserve=min(self._reserve_bytes_max, max(1, total // _PARTS)))

    def reclaim(self) -> None:
        """Return the space of deleted bodies to the disk."""
        if self._disk is None:
            return
        try:
            self._disk.reclaim()
        except FairlaneError as error:  # the next commit fails too, and then the store is recovered
            _log.warning("%s", error.cause)

    def _note_change(self, *, was_short: bool) -> None:
        if self.is_short and not was_short:
            _log.error("%s Enqueues are refused; leases and acknowledgements go on.", self._cause())
        elif was_short and not self.is_short:
            _log.warning("The disk has %d MiB free again. Enqueues are accepted.", self._free_bytes // _MIB)

    def refusal(self) -> StoreFull:
        """Return the error for a request that would add to the store."""
        return StoreFull(self._cause(), retry_after_ms=_LOOK_MS)

    def _cause(self) -> str:
        return (
            f"The disk of the store has {self._free_bytes / _MIB:.1f} MiB free, less than the reserve of "
            f"{self._reserve_bytes / _MIB:.1f} MiB (disk_reserve_bytes)."
        )
