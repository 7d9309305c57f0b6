"""The manifest: the state of the tables between runs, one small file that is replaced atomically."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Literal

import msgspec

from fairlane.errors import StoreCorrupt, StoreFailed
from fairlane.files import replacing
from fairlane.spark.pipeline.journals import Gap, JournalCoverage

MANIFEST = "manifest.json"
VERSION = 2
Format = Literal["parquet", "delta"]


class Swap(msgspec.Struct, frozen=True, kw_only=True):
    """A run that is committed but not fully moved into place.

    Attributes:
        run: its number.
        first_day: all days from this one on are replaced.
        compacted: the days of ``events`` that are replaced rather than added to.
    """

    run: int
    first_day: date
    compacted: tuple[date, ...] = ()


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the tables.

    Attributes:
        version: of this file.
        run: how many runs changed the tables.
        format: how they are kept.
        journals: how far each journal is in them.
        gaps: what is missing of the journals.
        days: the days with events, in order.
        carried: the days whose end is kept, in order: days after these can be rebuilt.
        horizon_ms: the instant of the latest event.
        events: how many events there are.
        swap: the last run, if its files are not all in place yet.
    """

    version: int = VERSION
    run: int = 0
    format: Format = "parquet"
    journals: tuple[JournalCoverage, ...] = ()
    gaps: tuple[Gap, ...] = ()
    days: tuple[date, ...] = ()
    carried: tuple[date, ...] = ()
    horizon_ms: int = 0
    events: int = 0
    swap: Swap | None = None

    def with_journals(self, journals: Sequence[JournalCoverage]) -> Manifest:
        """Return the manifest with other journals, and what is missing of them."""
        gaps = tuple(gap for journal in journals for gap in journal.gaps())
        return msgspec.structs.replace(self, journals=tuple(journals), gaps=gaps)


def read_manifest(folder: Path) -> Manifest | None:
    """Return the manifest of a folder, None if it has no tables.

    Raises:
        StoreCorrupt: the file cannot be read, or has another version.
    """
    path = folder / MANIFEST
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise StoreCorrupt(f"{path} is not a valid manifest: {error}.") from error
    if found.version != VERSION:
        raise StoreCorrupt(f"{path} has version {found.version}; this release reads version {VERSION}.")
    return found


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest; it is durable on return. Raises StoreFailed if it cannot be written, and is unchanged."""
    try:
        with replacing(folder / MANIFEST) as file:
            file.write(msgspec.json.format(msgspec.json.encode(manifest), indent=1))
    except OSError as error:
        raise StoreFailed(f"Could not write {folder / MANIFEST}: {error}.") from error
