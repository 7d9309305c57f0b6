"""The state of tables: one small manifest that is replaced conditionally, and a listing of files that it names.

A run is committed by replacing the manifest. The manifest then says what the run changes, until each format has
carried that out; a process that is killed in between leaves it to the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from fairlane.lakehouse.address import Format
from fairlane.lakehouse.files import Attempt, DataFile, TableShape

MANIFEST = "manifest.json"
LISTINGS = ".listings"


class Merge(msgspec.Struct, frozen=True, kw_only=True):
    """Small files that were merged into few: the same rows.

    Attributes:
        adds: the new files.
        removes: the paths of the files they replace.
    """

    adds: tuple[DataFile, ...]
    removes: tuple[str, ...]


class TableChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run changes in a table.

    Attributes:
        adds: the new files.
        replaces: the partitions of which nothing remains but the new files.
        merges: files that were merged.
    """

    adds: tuple[DataFile, ...] = ()
    replaces: tuple[dict[str, str], ...] = ()
    merges: tuple[Merge, ...] = ()

    def added(self) -> tuple[DataFile, ...]:
        """Return all new files."""
        return (*self.adds, *(file for merge in self.merges for file in merge.adds))

    def removed(self, known: Iterable[DataFile]) -> list[DataFile]:
        """Return those of the known files that the change removes."""
        new, merged = {file.path for file in self.added()}, {path for merge in self.merges for path in merge.removes}
        return [
            file for file in known if file.path not in new and (file.partition in self.replaces or file.path in merged)
        ]


class Swap(msgspec.Struct, frozen=True, kw_only=True):
    """A run that is committed but not fully carried out.

    Attributes:
        attempt: its number, and the token of the attempt that was committed.
        changes: what it changes, by table.
        listing: the listing before it, if any.
    """

    attempt: Attempt
    changes: dict[str, TableChange]
    listing: str | None = None


class TablesState(msgspec.Struct, frozen=True, kw_only=True):
    """What the manifest says of files. The pipeline's manifest adds positions in the journal.

    Attributes:
        format: how the tables are kept.
        run: how many runs changed the tables.
        listing: the name of the current listing; None before the first run.
        swap: the last run, if it is not fully carried out yet.
    """

    format: Format = "parquet"
    run: int = 0
    listing: str | None = None
    swap: Swap | None = None


class ListedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table in a listing; its files are there only if no log of its format knows them."""

    shape: TableShape
    files: tuple[DataFile, ...] = ()


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """All tables by name, with their columns and files."""

    tables: dict[str, ListedTable] = {}

    def files(self, name: str) -> list[DataFile]:
        """Return the listed files of a table."""
        return list(self.tables[name].files) if name in self.tables else []

    def changed(
        self, shapes: Mapping[str, TableShape], changes: Mapping[str, TableChange], *, listed: Iterable[str]
    ) -> Listing:
        """Return the listing after a run; ``listed`` are the tables whose files are listed here."""
        tables = dict(self.tables)
        for name, shape in shapes.items():
            known = tuple(self.files(name))
            if name in listed and (change := changes.get(name)) is not None:
                gone = {file.path for file in change.removed(known)}
                added = [msgspec.structs.replace(file, stats="") for file in change.added()]
                known = tuple(sorted([*(file for file in known if file.path not in gone), *added], key=_by_path))
            tables[name] = ListedTable(shape=shape, files=known)
        return Listing(tables=tables)


def _by_path(file: DataFile) -> str:
    return file.path
