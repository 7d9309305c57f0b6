"""Tables to write by hand at any address, and a process that dies at any step of a run."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import obstore
import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from fairlane.lakehouse import Lakehouse, open_tables, parse_address
from fairlane.lakehouse.files import TableShape, shape_of
from fairlane.lakehouse.state import Merge, TableChange, TablesState
from fairlane.lakehouse.writing import TableWriter
from tests.conftest import BUCKET
from tests.kit.servers.azurite import AzuriteServer
from tests.kit.servers.stores import S3Server

if TYPE_CHECKING:
    import pytest

PLACES = ("parquet in a folder", "delta in a folder", "iceberg in a folder")
STORES = ("parquet in S3", "delta in S3", "iceberg in S3")
AZURE = ("parquet in Azure", "delta in Azure", "iceberg in Azure")
_SERVERS = {"S3": "s3", "Azure": "azure"}
"""The fixtures of the servers of object stores."""
_numbers = itertools.count(1)

SCHEMA = pa.schema(
    [
        pa.field("number", pa.int64(), metadata={"comment": "the number"}),
        pa.field("at", pa.timestamp("us", "UTC"), metadata={"comment": "when"}),
        pa.field("names", pa.list_(pa.string()), metadata={"comment": "its names"}),
        pa.field("is_open", pa.bool_(), metadata={"comment": "whether it is open"}),
        pa.field("day", pa.date32(), metadata={"comment": "the day"}),
    ]
)
SHAPES = {name: shape_of(name, "One number.", SCHEMA, ("is_open", "day")) for name in ("numbers", "others", ".carried")}


def address_at(place: str, folder: Path, request: pytest.FixtureRequest) -> str:
    """Return the address of a new place for tables: in a folder, or in a bucket of a server."""
    form, _, where = place.partition(" in ")
    prefix = "" if form == "parquet" else f"{form}:"
    if where not in _SERVERS:
        return f"{prefix}{folder / 'tables'}"
    server: S3Server | AzuriteServer = request.getfixturevalue(_SERVERS[where])
    catalog = f"&catalog=sqlite:///{folder}/catalog.db" if form == "iceberg" else ""
    return f"{prefix}{server.url(BUCKET, f'tables-{next(_numbers)}')}{catalog}"


class Run:
    """A run as the pipeline makes it, without Spark: some numbers in each of three tables."""

    def __init__(self, address: str) -> None:
        self.lakehouse = Lakehouse(parse_address(address))
        self.state = TablesState()

    def begin(self) -> None:
        """Read the manifest, and finish a run that was not."""
        form = self.lakehouse.address.format
        self.state = self.lakehouse.finish(self.lakehouse.load(TablesState) or TablesState(format=form))

    def write(self, numbers: Sequence[int], *, of_day: int = 1, is_open: bool = False) -> dict[str, TableChange]:
        """Write numbers of a day of January."""
        rows = [row(number, of_day=of_day, is_open=is_open) for number in numbers]
        return {name: TableChange(adds=self._files(shape, rows, "0")) for name, shape in SHAPES.items()}

    def replace(self, numbers: Sequence[int], *, of_day: int) -> dict[str, TableChange]:
        """Write numbers that replace all others of their day."""
        partition = {"is_open": "false", "day": f"2026-01-{of_day:02}"}
        changes = self.write(numbers, of_day=of_day)
        return {name: TableChange(adds=change.adds, replaces=(partition,)) for name, change in changes.items()}

    def merge(self, numbers: Sequence[int], *, of_day: int = 1) -> dict[str, TableChange]:
        """Write numbers, and merge all files that there are."""
        return {
            name: TableChange(adds=change.adds, merges=(self._merged(SHAPES[name]),))
            for name, change in self.write(numbers, of_day=of_day).items()
        }

    def commit(self, changes: dict[str, TableChange]) -> None:
        """Commit it."""
        self.state = self.lakehouse.commit(self.state, SHAPES, changes)

    def _merged(self, shape: TableShape) -> Merge:
        known = self.lakehouse.files(shape.name)
        rows = self.lakehouse.dataset(shape.name).to_table().to_pylist()
        return Merge(adds=self._files(shape, rows, "merged"), removes=tuple(file.path for file in known))

    def _files(self, shape: TableShape, rows: Sequence[dict[str, Any]], part: str) -> tuple[Any, ...]:
        place = self.lakehouse.place(shape)
        writer = TableWriter(self.lakehouse.storage, place, self.lakehouse.attempt(), shape.partitions)
        return tuple(writer.write(pa.Table.from_pylist(list(rows), SCHEMA).to_batches(), part))


def row(number: int, *, of_day: int = 1, is_open: bool = False) -> dict[str, Any]:
    """Return a row of a day of January."""
    at = datetime(2026, 1, of_day, 12, tzinfo=UTC)
    return {"number": number, "at": at, "names": [str(number)], "is_open": is_open, "day": date(2026, 1, of_day)}


def numbers_at(address: str, table: str = "numbers") -> list[int]:
    """Return the numbers in a table, in order."""
    found: list[int] = open_tables(address).dataset(table).to_table(columns=["number"]).column(0).to_pylist()
    return sorted(found)


class Killed(BaseException):
    """The process is gone at this point."""


class Death:
    """Lets a process die at one of its steps: before or after it, by turns, and nothing follows."""

    def __init__(self, step: int) -> None:
        self._step, self._taken = step, 0
        self.is_dead = False

    def fatal(self, do: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that may be the last one to be called."""

        def called(*args: Any, **kwargs: Any) -> Any:
            if self.is_dead:
                raise Killed
            self._taken += 1
            self.is_dead = self._taken == (self._step + 1) // 2
            if self.is_dead and self._step % 2:
                raise Killed
            result = do(*args, **kwargs)
            if self.is_dead:
                raise Killed
            return result

        return called


@contextmanager
def dying_at(step: int) -> Iterator[Death]:
    """Run a body that is killed at a step: each change of a file, an object, a Delta log or a catalog has two."""
    death = Death(step)
    places = [(obstore, "put"), (obstore, "delete"), (Path, "replace"), (Path, "unlink")]
    places += [(DeltaTable, "create_write_transaction"), (SqlCatalog, "commit_table")]
    with suppress(Killed):
        patches = [mock.patch.object(where, name, death.fatal(getattr(where, name))) for where, name in places]
        for patch in patches:
            patch.start()
        try:
            yield death
        finally:
            for patch in patches:
                patch.stop()
