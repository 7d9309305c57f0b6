"""Access to files: every operation that decides what survives a power loss goes through here.

Tests replace it by one that records the operations, and replay what a disk may have done with them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from fairlane.files import restrict, unfinished_name

if sys.platform != "win32":
    import fcntl
_PARTS_MAX: Final = 512  # the least that systems allow in one call is 1024
_sync = getattr(os, "fdatasync", os.fsync)  # macOS has none


class FileSystem(Protocol):
    """The operations on files and folders that stores need. Every one may raise OSError."""

    def names(self, folder: Path) -> list[str]:
        """Return the names in a folder; none if the folder is missing."""

    def make_folder(self, folder: Path) -> None:
        """Create a folder for its owner alone, with those above it, unless it exists."""

    def restrict(self, folder: Path) -> bool:
        """Take away all rights of other users on a folder and what is in it; return whether they had any."""

    def lock(self, path: Path) -> int:
        """Lock a file that may be new, and return a handle, which releases it. Raises BlockingIOError if it is held."""

    def open(self, path: Path) -> int:
        """Open an existing file for reading and writing, and return its handle."""

    def create(self, path: Path) -> int:
        """Create an empty file for its owner alone, in place of one that exists, and return its handle."""

    def size(self, handle: int) -> int:
        """Return the size of a file."""

    def read(self, handle: int, count: int, at: int) -> bytes:
        """Return bytes from an offset on; fewer if the file ends before."""

    def write(self, handle: int, parts: Sequence[bytes], at: int) -> None:
        """Write all parts, one after the other, from an offset on."""

    def sync(self, handle: int) -> None:
        """Make the content of a file durable."""

    def close(self, handle: int) -> None:
        """Close a handle."""

    def rename(self, path: Path, new: Path) -> None:
        """Give a file another name, in place of one that has it."""

    def remove(self, path: Path) -> None:
        """Delete a file."""

    def sync_folder(self, folder: Path) -> None:
        """Make the names in a folder durable."""

    def boot_id(self) -> str:
        """Return what identifies this run of the machine; empty where the operating system does not say."""


class SystemFiles:
    """The files of the operating system."""

    def names(self, folder: Path) -> list[str]:
        """Return the names in a folder; none if the folder is missing."""
        try:
            return [entry.name for entry in folder.iterdir()]
        except FileNotFoundError:
            return []

    def make_folder(self, folder: Path) -> None:
        """Create a folder for its owner alone, with those above it, unless it exists."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def restrict(self, folder: Path) -> bool:
        """Take away all rights of other users on a folder and what is in it; return whether they had any."""
        return restrict(folder)

    def lock(self, path: Path) -> int:
        """Lock a file that may be new, and return a handle, which releases it. Raises BlockingIOError if it is held."""
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if sys.platform != "win32":
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise
        return handle

    def open(self, path: Path) -> int:
        """Open an existing file for reading and writing, and return its handle."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def create(self, path: Path) -> int:
        """Create an empty file for its owner alone, in place of one that exists, and return its handle."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)

    def size(self, handle: int) -> int:
        """Return the size of a file."""
        return os.fstat(handle).st_size

    def read(self, handle: int, count: int, at: int) -> bytes:
        """Return bytes from an offset on; fewer if the file ends before."""
        data = os.pread(handle, count, at)
        while len(data) < count:
            more = os.pread(handle, count - len(data), at + len(data))
            if not more:
                break
            data += more
        return data

    def write(self, handle: int, parts: Sequence[bytes], at: int) -> None:
        """Write all parts, one after the other, from an offset on."""
        if len(parts) > _PARTS_MAX:
            parts = [b"".join(parts)]
        size = sum(map(len, parts))
        done = os.pwritev(handle, parts, at)
        if done < size:  # a signal, or a disk that is nearly full: the next call says which
            rest = memoryview(b"".join(parts))
            while done < size:
                done += os.pwrite(handle, rest[done:], at + done)

    def sync(self, handle: int) -> None:
        """Make the content of a file durable."""
        _sync(handle)

    def close(self, handle: int) -> None:
        """Close a handle."""
        os.close(handle)

    def rename(self, path: Path, new: Path) -> None:
        """Give a file another name, in place of one that has it."""
        path.replace(new)

    def remove(self, path: Path) -> None:
        """Delete a file."""
        path.unlink()

    def sync_folder(self, folder: Path) -> None:
        """Make the names in a folder durable."""
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def boot_id(self) -> str:
        """Return what identifies this run of the machine; empty where the operating system does not say."""
        with suppress(OSError):
            return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return ""


def read_all(files: FileSystem, path: Path) -> bytes:
    """Return the content of a small file."""
    handle = files.open(path)
    try:
        return files.read(handle, files.size(handle), 0)
    finally:
        files.close(handle)


def write_durably(files: FileSystem, path: Path, data: bytes) -> None:
    """Write a small file that has its earlier content or the new one, whenever power fails."""
    unfinished = unfinished_name(path)
    handle = files.create(unfinished)
    try:
        files.write(handle, [data], 0)
        files.sync(handle)
    finally:
        files.close(handle)
    files.rename(unfinished, path)
    files.sync_folder(path.parent)
