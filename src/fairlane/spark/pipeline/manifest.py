"""The manifest: the state of the tables between runs, one small file that is replaced atomically."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path

import msgspec

from fairlane.errors import StoreCorrupt
from fairlane.lakehouse import Lakehouse, TablesAddress, parse_address
from fairlane.lakehouse.state import TablesState
from fairlane.spark.pipeline.journals import Gap, JournalCoverage

VERSION = 2


class Manifest(TablesState, frozen=True, kw_only=True):
    """The state of the tables: where their files are, as ``TablesState`` says, and what is in them.

    Attributes:
        version: of this file.
        journals: how far each journal is in them.
        gaps: what is missing of the journals.
        days: the days with events, in order.
        carried: the days whose end is kept, in order: days after these can be rebuilt.
        horizon_ms: the instant of the latest event.
        events: how many events there are.
        versions: the version of each table.
    """

    version: int = VERSION
    journals: tuple[JournalCoverage, ...] = ()
    gaps: tuple[Gap, ...] = ()
    days: tuple[date, ...] = ()
    carried: tuple[date, ...] = ()
    horizon_ms: int = 0
    events: int = 0
    versions: Mapping[str, int] = msgspec.field(default_factory=dict)

    def with_journals(self, journals: Sequence[JournalCoverage]) -> Manifest:
        """Return the manifest with other journals, and what is missing of them."""
        gaps = tuple(gap for journal in journals for gap in journal.gaps())
        return msgspec.structs.replace(self, journals=tuple(journals), gaps=gaps)


def read_manifest(tables: str | Path | TablesAddress) -> Manifest | None:
    """Return the manifest of tables, None if there are no tables.

    Raises:
        InvalidArgument: the address is not valid, or the tables have another format.
        StoreCorrupt: it cannot be read, or has another version.
    """
    return load_manifest(Lakehouse(parse_address(tables)))


def load_manifest(lakehouse: Lakehouse) -> Manifest | None:
    """Return the manifest of a lakehouse, None if it has no tables."""
    found = lakehouse.load(Manifest)
    if found is not None and found.version != VERSION:
        raise StoreCorrupt(
            f"The tables at {lakehouse.address} have version {found.version}; this release reads version {VERSION}."
        )
    return found
