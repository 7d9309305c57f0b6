"""The source files below a folder, and which of them change."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Final

_POLL_S: Final = 0.5


def versions(folder: Path) -> dict[str, int]:
    """Return when each Python file below a folder was written, by its path in the folder.

    Hidden folders and virtual environments are left out.
    """
    found: dict[str, int] = {}
    for path in _files(folder):
        try:
            found[str(path.relative_to(folder))] = path.stat().st_mtime_ns
        except FileNotFoundError:
            continue  # deleted meanwhile
    return found


def difference(before: Mapping[str, int], now: Mapping[str, int]) -> str | None:
    """Return a file that is new, gone or written again; None if all are the same."""
    return min((name for name in before.keys() | now.keys() if before.get(name) != now.get(name)), default=None)


async def changes(folder: Path) -> AsyncIterator[str]:
    """Yield the path of a source file below a folder whenever some have changed."""
    before = await asyncio.to_thread(versions, folder)
    while True:
        await asyncio.sleep(_POLL_S)
        now = await asyncio.to_thread(versions, folder)
        if (changed := difference(before, now)) is not None:
            yield changed
        before = now


def _files(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name != "__pycache__"]
        if "pyvenv.cfg" in files:
            folders.clear()
            continue
        yield from (Path(place) / name for name in files if name.endswith(".py"))
