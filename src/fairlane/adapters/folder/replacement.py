"""How repaired data takes the place of damaged data in the folder of a store, so that it can stop at any time.

A repair never changes the damaged data. It builds new data beside it, which gets its final name, such as
``log.repaired``, once it is complete and durable. Then the damaged data is moved to a folder ``damaged-N``, and the new
data takes its place. A repair that is interrupted is begun again, or finished if the new data was complete.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from fairlane.adapters.folder.high_water import FILE_NAME, HighWater, boot_id, write_high_water
from fairlane.adapters.folder.mark import MARK, Kind, write_mark
from fairlane.files import sync_folder

UNKNOWN_SKIP: Final = 1 << 36
"""How many sequences are skipped if no high-water mark tells how many may have been issued."""


def building(folder: Path, kind: Kind) -> Path:
    """Return where new data is built."""
    return folder / f"{kind.data}.repairing"


def repaired(folder: Path, kind: Kind) -> Path:
    """Return where new data is once it is complete."""
    return folder / f"{kind.data}.repaired"


def complete(folder: Path, kind: Kind, data: Path) -> None:
    """Give new data its name, now that it is complete and durable."""
    shutil.rmtree(repaired(folder, kind), ignore_errors=True)
    data.rename(repaired(folder, kind))
    sync_folder(folder)


def is_unfinished(folder: Path, kind: Kind) -> bool:
    """Return whether a repair was interrupted after it had moved the damaged data aside."""
    return repaired(folder, kind).exists() and not (folder / kind.data).exists()


def move_aside(folder: Path, kind: Kind, *, with_data: bool) -> Path:
    """Keep the marks and the damaged data in a new folder, and return that."""
    number = 1
    while (folder / f"damaged-{number}").exists():
        number += 1
    aside = folder / f"damaged-{number}"
    aside.mkdir(mode=0o700)
    for name in (MARK, FILE_NAME):
        if (folder / name).exists():
            shutil.copyfile(folder / name, aside / name)
    if with_data and (folder / kind.data).exists():
        (folder / kind.data).rename(aside / kind.data)
    sync_folder(aside)
    sync_folder(folder)
    return aside


def finish(folder: Path, kind: Kind, *, end: int, reserved: int) -> None:
    """Put the new data in its place, if there is any, and write the marks.

    Args:
        folder: the folder of the store.
        kind: of the store.
        end: the next sequence of the data.
        reserved: sequences before it may have been issued, and are skipped.
    """
    write_high_water(folder, HighWater(answered=end, synced=end, reserved=reserved, boot=boot_id()))
    if is_unfinished(folder, kind):
        repaired(folder, kind).rename(folder / kind.data)
    else:  # what an earlier repair may have left behind is older than the data
        shutil.rmtree(repaired(folder, kind), ignore_errors=True)
    write_mark(folder, kind, is_made=True)
