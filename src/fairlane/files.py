"""Files that survive power loss: written beside their name, synced, and renamed in one step."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


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
