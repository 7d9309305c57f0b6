"""What the pipeline remembers between runs: one small file beside the tables, replaced as a whole."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Literal

import msgspec

from fairlane.errors import StoreCorrupt, StoreFailed
from fairlane.files import replacing
from fairlane.journal.segments import gaps

MANIFEST = "manifest.json"
VERSION = 1
Format = Literal["parquet", "delta"]


class Swap(msgspec.Struct, frozen=True, kw_only=True):
    """A run that is decided and not wholly carried out: what it staged becomes the tables, come what may.

    Attributes:
        run: its number.
        first_day: all days from this one on are replaced.
        compacted: the days of ``events`` that are replaced rather than added to.
    """

    run: int
    first_day: date
    compacted: tuple[date, ...] = ()


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """How far the tables are.

    Attributes:
        version: of this file.
        run: how many runs changed the tables.
        format: how they are kept.
        covered: the first and last sequence of each stretch of the journal that is in them, in order.
        days: the days with events, in order.
        carried: the days whose end is remembered, in order: from there on days can be made anew.
        horizon_ms: the instant of the latest event.
        events: how many events there are.
        swap: what the last run left to be carried out, if it was interrupted then.
    """

    version: int = VERSION
    run: int = 0
    format: Format = "parquet"
    covered: tuple[tuple[int, int], ...] = ()
    days: tuple[date, ...] = ()
    carried: tuple[date, ...] = ()
    horizon_ms: int = 0
    events: int = 0
    swap: Swap | None = None

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """The stretches between those covered: segments that have not come, or never will."""
        return gaps(self.covered)


def read_manifest(folder: Path) -> Manifest | None:
    """Return what is remembered of the tables in a folder, None if there are none.

    Raises:
        StoreCorrupt: the file can't be read, or another version wrote it.
    """
    path = folder / MANIFEST
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise StoreCorrupt(f"{path} is not a manifest of tables: {error}.") from error
    if found.version != VERSION:
        raise StoreCorrupt(f"{path} is of version {found.version}; this is version {VERSION}.")
    return found


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace what is remembered; it is durable on return.

    Raises:
        StoreFailed: it could not be written, and is what it was.
    """
    try:
        with replacing(folder / MANIFEST) as file:
            file.write(msgspec.json.format(msgspec.json.encode(manifest), indent=1))
    except OSError as error:
        raise StoreFailed(f"{folder / MANIFEST} could not be written: {error}.") from error
