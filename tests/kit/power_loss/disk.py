"""A disk in memory that records every operation, and can tell what may be left of them when power fails.

What the model allows, as ALICE and CrashMonkey do:

- A write survives for sure once its file was synced. Before that any subset of the written sectors may have reached the
  disk, in any order, each of them in any version that it ever had since. A sector of 512 bytes is written whole.
- A file that grows may have its new size without its new content, which reads as zeros then, or neither.
- A new, removed or renamed name survives for sure once its folder was synced; before, any of these operations may be
  lost. A rename is atomic. A file whose name is lost is lost, even if it was synced.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

SECTOR = 512


class Write(NamedTuple):
    inode: int
    at: int
    data: bytes


class Truncate(NamedTuple):
    inode: int


class Sync(NamedTuple):
    inode: int


class Name(NamedTuple):
    """A name got an inode, or, if that is None, lost it. A rename is two of these that happen together."""

    changes: tuple[tuple[Path, int | None], ...]


class SyncFolder(NamedTuple):
    folder: Path


class Note(NamedTuple):
    """Something that the run wants to remember at this point."""

    what: object


Operation = Write | Truncate | Sync | Name | SyncFolder | Note


@dataclass(slots=True)
class Image:
    """Files and names; the content of a disk."""

    files: dict[int, bytes] = field(default_factory=dict)
    names: dict[Path, int] = field(default_factory=dict)


class RecordingDisk:
    """A ``FileSystem`` in memory that begins with an image and records what happens to it."""

    def __init__(self, image: Image | None = None, *, boot: str = "first") -> None:
        image = image if image is not None else Image()
        self.start = Image(dict(image.files), dict(image.names))
        self.operations: list[Operation] = []
        self.fails_after: int | None = None
        self._files = {inode: bytearray(data) for inode, data in image.files.items()}
        self._names = dict(image.names)
        self._boot = boot
        self._next = max(image.files, default=0) + 1
        self._handles: dict[int, int] = {}
        self._next_handle = 1

    def note(self, what: object) -> None:
        """Remember something at this point of the run."""
        self.operations.append(Note(what))

    def boot_id(self) -> str:
        return self._boot

    def names(self, folder: Path) -> list[str]:
        depth = len(folder.parts)
        below = {path.parts[depth] for path in self._names if path.parts[:depth] == folder.parts}
        return sorted(below)

    def make_folder(self, folder: Path) -> None:
        """Do nothing: the folders of a store hold a file each, without which they mean nothing."""

    def restrict(self, _folder: Path) -> bool:
        return False

    def lock(self, path: Path) -> int:
        return self.open(path) if path in self._names else self.create(path)

    def open(self, path: Path) -> int:
        if path not in self._names:
            raise FileNotFoundError(path)
        return self._handle(self._names[path])

    def create(self, path: Path) -> int:
        inode = self._names.get(path)
        if inode is None:
            inode, self._next = self._next, self._next + 1
            self._files[inode] = bytearray()
            self._names[path] = inode
            self._record(Name(((path, inode),)))
        else:
            self._files[inode] = bytearray()
            self._record(Truncate(inode))
        return self._handle(inode)

    def size(self, handle: int) -> int:
        return len(self._files[self._handles[handle]])

    def read(self, handle: int, count: int, at: int) -> bytes:
        return bytes(self._files[self._handles[handle]][at : at + count])

    def write(self, handle: int, parts: Sequence[bytes], at: int) -> None:
        inode, data = self._handles[handle], b"".join(parts)
        _put(self._files[inode], at, data)
        self._record(Write(inode, at, data))

    def sync(self, handle: int) -> None:
        self._record(Sync(self._handles[handle]))

    def close(self, handle: int) -> None:
        del self._handles[handle]

    def rename(self, path: Path, new: Path) -> None:
        inode = self._names.pop(path)
        self._names[new] = inode
        self._record(Name(((path, None), (new, inode))))

    def remove(self, path: Path) -> None:
        if path not in self._names:
            raise FileNotFoundError(path)
        del self._names[path]
        self._record(Name(((path, None),)))

    def sync_folder(self, folder: Path) -> None:
        self._record(SyncFolder(folder))

    def _handle(self, inode: int) -> int:
        handle, self._next_handle = self._next_handle, self._next_handle + 1
        self._handles[handle] = inode
        return handle

    def _record(self, operation: Operation) -> None:
        self.operations.append(operation)


def _put(data: bytearray, at: int, written: bytes) -> None:
    if len(data) < at:
        data.extend(bytes(at - len(data)))
    data[at : at + len(written)] = written


class Crashes:
    """Follows the operations of a run, and returns what a disk may hold if power fails after the last one."""

    def __init__(self, start: Image) -> None:
        self._durable = {inode: bytearray(data) for inode, data in start.files.items()}
        self._names = dict(start.names)
        self._pending: dict[int, list[Write | Truncate]] = {}
        self._pending_names: list[Name] = []

    def follow(self, operation: Operation) -> None:
        """Follow one more operation."""
        if isinstance(operation, (Write, Truncate)):
            self._pending.setdefault(operation.inode, []).append(operation)
        elif isinstance(operation, Sync):
            self._durable[operation.inode] = self._all(operation.inode)
            self._pending.pop(operation.inode, None)
        elif isinstance(operation, Name):
            self._pending_names.append(operation)
        elif isinstance(operation, SyncFolder):
            self._sync_folder(operation.folder)

    def kept(self) -> Image:
        """Return the disk if everything reached it, as when only the process died."""
        return self._image({inode: self._all(inode) for inode in self._inodes()}, self._pending_names)

    def lost(self) -> Image:
        """Return the disk if nothing reached it that was not synced."""
        return self._image({inode: self._durable.get(inode, bytearray()) for inode in self._inodes()}, [])

    def torn(self, chance: random.Random) -> Image:
        """Return a disk that a random part of what was not synced has reached."""
        files = {inode: self._torn(inode, chance) for inode in self._inodes()}
        pending = self._pending_names
        how = chance.randrange(4)
        if how == 0:
            pending = []
        elif how == 1:
            pending = pending[: chance.randint(0, len(pending))]
        elif how == 2:
            pending = [operation for operation in pending if chance.random() < 0.5]
        return self._image(files, pending)

    def _inodes(self) -> set[int]:
        return (
            self._durable.keys()
            | self._pending.keys()
            | {inode for operation in self._pending_names for _, inode in operation.changes if inode is not None}
        )

    def _all(self, inode: int) -> bytearray:
        return self._applied(inode, self._pending.get(inode, []))

    def _applied(self, inode: int, operations: Sequence[Write | Truncate]) -> bytearray:
        data = bytearray(self._durable.get(inode, b""))
        for operation in operations:
            if isinstance(operation, Truncate):
                data = bytearray()
            else:
                _put(data, operation.at, operation.data)
        return data

    def _torn(self, inode: int, chance: random.Random) -> bytearray:
        pending = self._pending.get(inode, [])
        how = chance.randrange(6) if pending else 0
        if how == 0:
            return self._applied(inode, [])
        if how == 1:
            return self._all(inode)
        if how == 2:
            return self._applied(inode, pending[: chance.randint(0, len(pending))])
        if how == 3:
            return self._applied(inode, [operation for operation in pending if chance.random() < 0.5])
        return self._mixed(inode, pending, chance)

    def _mixed(self, inode: int, pending: Sequence[Write | Truncate], chance: random.Random) -> bytearray:
        """Return a file each sector of which is in any version that it has had since the last sync."""
        versions = [self._applied(inode, pending[:count]) for count in range(len(pending) + 1)]
        size = len(chance.choice(versions))
        likely = chance.random()  # how likely a sector is to be the latest, so that few or many are lost
        mixed = bytearray(size)
        for at in range(0, size, SECTOR):
            version = versions[-1] if chance.random() < likely else chance.choice(versions)
            sector = version[at : min(at + SECTOR, size)]
            mixed[at : at + len(sector)] = sector
        return mixed

    def _sync_folder(self, folder: Path) -> None:
        rest: list[Name] = []
        for operation in self._pending_names:
            if all(path.parent == folder for path, _ in operation.changes):
                _rename(self._names, operation)
            else:
                rest.append(operation)
        self._pending_names = rest

    def _image(self, files: dict[int, bytearray], pending: Sequence[Name]) -> Image:
        names = dict(self._names)
        for operation in pending:
            _rename(names, operation)
        return Image({inode: bytes(files.get(inode, b"")) for inode in names.values()}, names)


def _rename(names: dict[Path, int], operation: Name) -> None:
    for path, inode in operation.changes:
        if inode is None:
            names.pop(path, None)
        else:
            names[path] = inode
