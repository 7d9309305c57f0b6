"""Tables as Delta tables, through the ``deltalake`` wheel: transactional, with a history to go back in.

Tasks write the files of a run into the table's folder. The driver commits them without reading them: one transaction
for each table that adds the new files and removes those they replace, marked with the run's number. A table that has
the mark has the run, so a run that is carried out again changes nothing. Its log says which files belong to a table,
so a table that was optimised or vacuumed by other tools is still read and written correctly.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from fairlane.errors import StoreFailed
from fairlane.lakehouse.address import TablesAddress
from fairlane.lakehouse.files import NO_VALUE, Attempt, DataFile, TableShape
from fairlane.lakehouse.port import Place, check_mark
from fairlane.lakehouse.state import Listing, Swap, TableChange, TablesState
from fairlane.lakehouse.storage import Storage

try:
    from deltalake import CommitProperties, DeltaTable, Transaction
    from deltalake.exceptions import DeltaError, TableNotFoundError
    from deltalake.schema import Schema
    from deltalake.transaction import AddAction, RemoveAction
except ImportError as error:
    raise ImportError("Delta tables need the package deltalake: install fairlane[delta].") from error

APP = "fairlane-pipeline"
"""The application that a run's number is recorded for in each table."""
_RETRIES_MAX = 5


class DeltaTables:
    """Delta tables, each in a folder below the root."""

    def __init__(self, address: TablesAddress, storage: Storage) -> None:
        self._address, self._storage = address, storage
        self._options = storage_options(address)

    def place(self, shape: TableShape, attempt: Attempt) -> Place:
        """Return the folder of the Delta table."""
        if (table := self._open(shape.name)) is not None:
            check_mark(table.transaction_version(APP) or 0, attempt, self._uri(shape.name), self._address)
        return Place(folder=shape.name, schema=shape.schema)

    def files(self, shape: TableShape, state: TablesState, listing: Listing) -> list[DataFile]:
        """Return the files that the table's log has."""
        found = self._open(shape.name)
        return [] if found is None else _files(found, shape)

    def publish(self, shapes: Iterable[TableShape], swap: Swap, *, before: Listing, after: Listing) -> None:
        """Commit a transaction for each table."""
        for shape in shapes:
            if (change := swap.changes.get(shape.name)) is not None:
                try:
                    self._commit(shape, change, swap.attempt.run)
                except DeltaError as error:
                    raise StoreFailed(
                        f"Could not commit to the Delta table {self._uri(shape.name)}: {error}."
                    ) from error
                self._sweep(shape, change, swap.attempt)

    def discard(self, shapes: Iterable[TableShape], attempt: Attempt) -> None:
        """Delete the files of an attempt."""
        for shape in shapes:
            self._storage.delete(name for name in self._storage.names(f"{shape.name}/") if attempt.wrote(name))

    def _commit(self, shape: TableShape, change: TableChange, run: int) -> None:
        for attempt in range(_RETRIES_MAX):
            table = self._open(shape.name) or self._create(shape)
            if (table.transaction_version(APP) or 0) >= run:
                return
            self._add_columns(table, shape)
            mark = CommitProperties(app_transactions=[Transaction(APP, run)], max_commit_retries=0)
            try:
                table.create_write_transaction(
                    _actions(table, shape, change),
                    mode="append",
                    schema=table.schema(),
                    partition_by=list(shape.partitions),
                    commit_properties=mark,
                )
            except DeltaError:  # someone else has committed to the table: look again at what it has now
                if attempt == _RETRIES_MAX - 1:
                    raise
            else:
                return

    def _sweep(self, shape: TableShape, change: TableChange, attempt: Attempt) -> None:
        """Delete files of this run that were not committed: those of failed tasks, and of drivers that were killed."""
        kept, run = {file.path for file in change.added()}, f"{attempt.run:06}-"
        self._storage.delete(
            name
            for name in self._storage.names(f"{shape.name}/")
            if name.rpartition("/")[2].startswith(run) and name not in kept
        )

    def _open(self, name: str) -> DeltaTable | None:
        try:
            return DeltaTable(self._uri(name), storage_options=self._options)
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            raise StoreFailed(f"Cannot read the Delta table {self._uri(name)}: {error}.") from error

    def _create(self, shape: TableShape) -> DeltaTable:
        if not self._address.scheme:
            (Path(self._address.root) / shape.name).mkdir(parents=True, exist_ok=True)
        return DeltaTable.create(
            self._uri(shape.name),
            Schema.from_arrow(shape.schema),
            mode="ignore",
            partition_by=list(shape.partitions),
            name=shape.name,
            description=shape.meaning,
            storage_options=self._options,
        )

    def _add_columns(self, table: DeltaTable, shape: TableShape) -> None:
        """Add columns that a newer release has."""
        known = {field.name for field in table.schema().fields}
        if new := [field for field in Schema.from_arrow(shape.schema).fields if field.name not in known]:
            table.alter.add_columns(new)

    def _uri(self, name: str) -> str:
        return f"{self._address.root}/{name}"


def _files(table: DeltaTable, shape: TableShape) -> list[DataFile]:
    found: dict[str, list[Any]] = pa.table(table.get_add_actions(flatten=True)).to_pydict()
    return [
        DataFile(
            path=f"{shape.name}/{path}",
            partition={name: _text(found[f"partition.{name}"][at]) for name in shape.partitions},
            rows=found["num_records"][at] or 0,
            size_bytes=found["size_bytes"][at],
        )
        for at, path in enumerate(found["path"])
    ]


def _text(value: object) -> str:
    if value is None:
        return NO_VALUE
    return str(value).lower() if isinstance(value, bool) else str(value)


def _actions(table: DeltaTable, shape: TableShape, change: TableChange) -> list[AddAction | RemoveAction]:
    """Return what a transaction adds and removes. Merged files hold the same rows, so streams need not read them."""
    known = _files(table, shape)
    now_ms = time.time_ns() // 1_000_000
    actions: list[AddAction | RemoveAction] = [_add(shape, file, now_ms, is_new=True) for file in change.adds]
    kept = {file.path for file in change.added()}
    replaced = [file for file in known if file.partition in change.replaces and file.path not in kept]
    actions += [_remove(shape, file, now_ms, is_new=True) for file in replaced]
    live = {file.path: file for file in known}
    for merge in change.merges:
        if live.keys() >= set(merge.removes):  # otherwise another tool has merged some of them
            actions += [_add(shape, file, now_ms, is_new=False) for file in merge.adds]
            actions += [_remove(shape, live[path], now_ms, is_new=False) for path in merge.removes]
    return actions


def _add(shape: TableShape, file: DataFile, now_ms: int, *, is_new: bool) -> AddAction:
    return AddAction(
        path=file.path.removeprefix(f"{shape.name}/"),
        size=file.size_bytes,
        partition_values={name: None if value == NO_VALUE else value for name, value in file.partition.items()},
        modification_time=now_ms,
        data_change=is_new,
        stats=file.stats or msgspec.json.encode({"numRecords": file.rows}).decode(),
    )


def _remove(shape: TableShape, file: DataFile, now_ms: int, *, is_new: bool) -> RemoveAction:
    return RemoveAction(
        path=file.path.removeprefix(f"{shape.name}/"),
        data_change=is_new,
        deletion_timestamp=now_ms,
        size=file.size_bytes,
        partition_values={name: None if value == NO_VALUE else value for name, value in file.partition.items()},
    )


def storage_options(address: TablesAddress) -> dict[str, str]:
    """Return how ``deltalake`` reaches the store of an address."""
    if address.scheme == "":
        return {}
    endpoint = address.option("endpoint")
    found = {"skip_signature": "true"} if address.is_set("anonymous") else {}
    if endpoint is not None:
        found |= {"endpoint": endpoint, "allow_http": str(endpoint.startswith("http://")).lower()}
    if address.scheme == "s3":
        found["region"] = address.option("region") or os.environ.get("AWS_REGION", "us-east-1")
        found["conditional_put"] = "etag"
    if (account := address.option("account")) is not None:
        found["account_name"] = account
    return found
