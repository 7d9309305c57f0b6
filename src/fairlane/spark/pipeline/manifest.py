"""The manifest: the state of the tables between runs, one small file that is replaced atomically."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from fairlane.errors import StoreCorrupt
from fairlane.journal.segments import gaps
from fairlane.lakehouse import Lakehouse, TablesAddress, parse_address
from fairlane.lakehouse.state import TablesState

VERSION = 2


class Manifest(TablesState, frozen=True, kw_only=True):
    """The state of the tables: where their files are, as ``TablesState`` says, and what is in them.

    Attributes:
        version: of this file.
        covered: the ranges of the journal that are in them, in order.
        days: the days with events, in order.
        carried: the days whose end is kept, in order: days after these can be rebuilt.
        horizon_ms: the instant of the latest event.
        events: how many events there are.
    """

    version: int = VERSION
    covered: tuple[tuple[int, int], ...] = ()
    days: tuple[date, ...] = ()
    carried: tuple[date, ...] = ()
    horizon_ms: int = 0
    events: int = 0

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """The ranges between those covered: segments that are late or lost."""
        return gaps(self.covered)


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
