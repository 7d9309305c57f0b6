"""The port of table formats: what a format must be able to do, and nothing of how files are written or read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from fairlane.errors import StoreCorrupt
from fairlane.lakehouse.address import TablesAddress
from fairlane.lakehouse.files import Attempt, DataFile, TableShape
from fairlane.lakehouse.state import MANIFEST, Listing, Swap, TablesState


@dataclass(frozen=True, slots=True)
class Place:
    """Where and how tasks write the files of a table. It can be pickled.

    Attributes:
        prefix: what a file's path is preceded by until its run is committed; empty if files are written in place.
        folder: the folder for the partitions of the table, relative to the root.
        schema: the columns to write, with metadata; of the types that the format has.
        is_whole: whether files have the partition columns too.
    """

    folder: str
    schema: pa.Schema
    prefix: str = ""
    is_whole: bool = False


class TableFormat(Protocol):
    """How tables are kept. Every method may raise StoreFailed."""

    def place(self, shape: TableShape, attempt: Attempt) -> Place:
        """Return where and how an attempt at a run writes a table.

        Raises:
            StoreCorrupt: the table has this run already, which the manifest does not know; see ``check_mark``.
        """
        ...

    def files(self, shape: TableShape, state: TablesState, listing: Listing) -> list[DataFile]:
        """Return the files of a table as it is now."""
        ...

    def publish(self, shapes: Iterable[TableShape], swap: Swap, *, before: Listing, after: Listing) -> None:
        """Carry out a run that is committed, and delete what other attempts at it have left.

        It can be repeated, and two processes can do it at the same time.
        """
        ...

    def discard(self, shapes: Iterable[TableShape], attempt: Attempt) -> None:
        """Delete what an attempt has written that will never be committed."""
        ...


def check_mark(mark: int, attempt: Attempt, table: str, tables: TablesAddress) -> None:
    """Check, before anything is written, that a table lacks the run that is to be written.

    A table with the mark of a run skips that run. So without this check a table that is ahead of a lost or old manifest
    would swallow each run until the numbers meet.

    Raises:
        StoreCorrupt: the table's mark is that of this run or of a later one.
    """
    if mark >= attempt.run:
        raise StoreCorrupt(
            f"The table {table} has run {mark}, but {MANIFEST} at {tables} knows no run after {attempt.run - 1}: "
            "it was lost or replaced. Put back the manifest and its listing, or write new tables to another root."
        )
