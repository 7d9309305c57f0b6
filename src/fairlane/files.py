"""Files that survive power loss, written beside their name, synced, and renamed in one step; and files for us alone."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Write a file that appears under its name only when it is complete and durable.

    Readers see the earlier file or the new one, never a part of it. If the body raises, the earlier file stays.
    """
    unfinished = unfinished_name(path)
    try:
        with unfinished.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
        # The file's content is durable now, its name is not: on most file systems a rename survives power loss only
        # once the folder itself is synced.
        sync_folder(path.parent)
    except BaseException:
        with suppress(OSError):  # the first error is the one that matters
            unfinished.unlink(missing_ok=True)
        raise


def unfinished_name(path: Path) -> Path:
    """Return the name under which ``replacing`` writes a file; one that is left over is from a crash."""
    return path.with_name(f".{path.name}.new")


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def restrict(path: Path) -> bool:
    """Take away all rights of other users on a file, or on a folder and everything in it.

    Returns whether other users had access to the path itself: if not, they reached nothing in it either. The umask
    decides what files are created with, and it belongs to the process, not to a library. Symbolic links are not
    followed. An entry of another owner stays as it is: only its owner may change it.
    """
    was_open = bool(path.lstat().st_mode & _OTHERS)
    for entry in (path, *path.rglob("*")):
        with suppress(FileNotFoundError, PermissionError):  # it was deleted meanwhile, or is not ours
            mode = entry.lstat().st_mode
            if mode & _OTHERS and not stat.S_ISLNK(mode):
                entry.chmod(stat.S_IMODE(mode) & ~_OTHERS)
    return was_open


def write_secret(path: Path, text: str) -> None:
    """Write a file that only its owner can read, and that replaces what was there before.

    The file is created under a new name, never opened through a name that another user may have prepared: neither a
    symbolic link nor a file with other rights is written to.
    """
    unfinished = unfinished_name(path)
    unfinished.unlink(missing_ok=True)
    handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    sync_folder(path.parent)
