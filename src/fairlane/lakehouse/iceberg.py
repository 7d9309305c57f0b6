"""Tables in an Iceberg catalog, through PyIceberg: SQL catalogs (SQLite, PostgreSQL) and REST catalogs.

Tasks write the files of a run below the table's location. The driver reads their footers and commits them: one snapshot
for each table that adds the new files and removes those they replace. The same commit sets a property of the table to
the run's number, so a run that is carried out again changes nothing. The catalog refuses a commit if the table has
changed since it was read; the property is then looked at again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from fairlane.errors import InvalidArgument, StoreCorrupt, StoreFailed
from fairlane.lakehouse.address import TablesAddress
from fairlane.lakehouse.files import NO_VALUE, Attempt, DataFile, TableShape
from fairlane.lakehouse.iceberg_files import ADDRESS
from fairlane.lakehouse.port import Place, check_mark
from fairlane.lakehouse.state import Listing, Swap, TableChange, TablesState
from fairlane.lakehouse.storage import Storage

try:
    from pyiceberg.catalog import Catalog, load_catalog
    from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
    from pyiceberg.io.pyarrow import parquet_file_to_data_file, schema_to_pyarrow
except ImportError as error:
    raise ImportError("Iceberg tables need the package pyiceberg: install fairlane[iceberg].") from error

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile as IcebergFile
    from pyiceberg.table import Table

RUN = "fairlane.run"
"""The property of a table that has the number of the last run."""
NAMESPACE = "fairlane"
_CATALOG = "catalog.db"
_RETRIES_MAX = 5
_PROPERTIES = {
    # PyIceberg would repeat a refused commit as it is, and with it a run that another process has carried out by now.
    "commit.retry.num-retries": "0",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}


class IcebergTables:
    """Tables of one namespace in a catalog, whose files are below the root."""

    def __init__(self, address: TablesAddress, storage: Storage) -> None:
        self._address, self._storage = address, storage
        self._namespace = address.option("namespace") or NAMESPACE
        self._known: Catalog | None = None

    def place(self, shape: TableShape, attempt: Attempt) -> Place:
        """Return the folder for data of the Iceberg table, which is created if missing. Columns have its field ids."""
        with self._told(f"create the table {shape.name}"):
            table = self._open(shape) or self._create(shape)
            check_mark(int(table.properties.get(RUN, "0")), attempt, self._name(shape), self._address)
            self._add_columns(table, shape)
            return Place(folder=f"{shape.name}/data", schema=schema_to_pyarrow(table.schema()), is_whole=True)

    def files(self, shape: TableShape, state: TablesState, listing: Listing) -> list[DataFile]:
        """Return the files of the current snapshot."""
        with self._told(f"read the table {shape.name}"):
            table = self._open(shape)
            return [] if table is None else [self._told_of(file, shape) for file in _live(table)]

    def publish(self, shapes: Iterable[TableShape], swap: Swap, *, before: Listing, after: Listing) -> None:
        """Commit a snapshot to each table."""
        for shape in shapes:
            if (change := swap.changes.get(shape.name)) is not None:
                with self._told(f"commit to the table {shape.name}"):
                    self._commit(shape, change, swap.attempt.run)
                self._sweep(shape, change, swap.attempt)

    def discard(self, shapes: Iterable[TableShape], attempt: Attempt) -> None:
        """Delete the files of an attempt."""
        for shape in shapes:
            self._storage.delete(name for name in self._storage.names(f"{shape.name}/data/") if attempt.wrote(name))

    def _commit(self, shape: TableShape, change: TableChange, run: int) -> None:
        for attempt in range(_RETRIES_MAX):
            table = self._open(shape) or self._create(shape)
            if int(table.properties.get(RUN, "0")) >= run:
                return
            try:
                self._commit_once(table, shape, change, run)
            except CommitFailedException:  # the table has changed: look again at what it has now
                if attempt == _RETRIES_MAX - 1:
                    raise
            else:
                return

    def _commit_once(self, table: Table, shape: TableShape, change: TableChange, run: int) -> None:
        live = {file.file_path: file for file in _live(table)}
        adds, removes = self._differences(shape, change, live)
        with table.transaction() as transaction:
            transaction.set_properties({RUN: str(run)})
            if adds or removes:
                properties = {RUN: str(run)}
                with transaction.update_snapshot(snapshot_properties=properties).overwrite() as snapshot:
                    for path in adds:
                        snapshot.append_data_file(parquet_file_to_data_file(table.io, table.metadata, path))
                    for path in removes:
                        snapshot.delete_data_file(live[path])

    def _differences(
        self, shape: TableShape, change: TableChange, live: dict[str, IcebergFile]
    ) -> tuple[list[str], list[str]]:
        """Return the paths that a commit adds and removes."""
        adds = [self._uri(file.path) for file in change.adds]
        removes = [path for path, file in live.items() if self._told_of(file, shape).partition in change.replaces]
        for merge in change.merges:
            merged = [self._uri(path) for path in merge.removes]
            if live.keys() >= set(merged):  # otherwise another tool has merged some of them
                adds += [self._uri(file.path) for file in merge.adds]
                removes += merged
        return adds, removes

    def _sweep(self, shape: TableShape, change: TableChange, attempt: Attempt) -> None:
        """Delete files of this run that were not committed: those of failed tasks, and of drivers that were killed."""
        kept, run = {file.path for file in change.added()}, f"{attempt.run:06}-"
        self._storage.delete(
            name
            for name in self._storage.names(f"{shape.name}/data/")
            if name.rpartition("/")[2].startswith(run) and name not in kept
        )

    # ------------------------------------------------------------------------------------------------------- catalog

    @property
    def _catalog(self) -> Catalog:
        if self._known is None:
            self._known = catalog_of(self._address)
            self._known.create_namespace_if_not_exists(self._namespace)
        return self._known

    def _open(self, shape: TableShape) -> Table | None:
        """Return a table, None if it is missing. Raises InvalidArgument if it is of another pipeline."""
        try:
            table = self._catalog.load_table((self._namespace, shape.name))
        except NoSuchTableError:
            return None
        self._check_location(table, shape)
        return table

    def _check_location(self, table: Table, shape: TableShape) -> None:
        found, wanted = table.location().removeprefix("file://").rstrip("/"), self._uri(shape.name)
        if found != wanted:
            sign = "&" if self._address.options else "?"
            raise InvalidArgument(
                f"The Iceberg table {self._name(shape)} has its files at {found}, not at {wanted}: other tables use "
                f"the namespace {self._namespace} of this catalog. Choose another one with {sign}namespace=NAME at "
                "the end of the address."
            )

    def _name(self, shape: TableShape) -> str:
        return f"{self._namespace}.{shape.name}"

    def _create(self, shape: TableShape) -> Table:
        name = (self._namespace, shape.name)
        creation = self._catalog.create_table_transaction(
            name, _documented(shape.schema), self._uri(shape.name), properties={**_PROPERTIES, "comment": shape.meaning}
        )
        with creation.update_spec() as spec:
            for column in shape.partitions:
                spec.add_identity(column)
        try:
            return creation.commit_transaction()
        except (TableAlreadyExistsError, CommitFailedException):
            if (table := self._open(shape)) is None:
                raise
            return table

    def _add_columns(self, table: Table, shape: TableShape) -> None:
        """Add columns that a newer release has."""
        if not set(shape.schema.names) <= set(table.schema().column_names):
            with table.update_schema() as update:
                update.union_by_name(_documented(shape.schema))

    def _told_of(self, file: IcebergFile, shape: TableShape) -> DataFile:
        values = [_text(file.partition[at], shape.schema.field(name).type) for at, name in enumerate(shape.partitions)]
        return DataFile(
            path=file.file_path.removeprefix(f"{self._uri('')}"),
            partition=dict(zip(shape.partitions, values, strict=True)),
            rows=file.record_count,
            size_bytes=file.file_size_in_bytes,
        )

    def _uri(self, path: str) -> str:
        return f"{self._address.root}/{path}"

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except (InvalidArgument, StoreCorrupt, StoreFailed):
            raise
        except Exception as error:  # PyIceberg raises errors of its own, of SQLAlchemy, of requests and of Arrow
            raise StoreFailed(f"Could not {what} at {self._address}: {error}.") from error


def _live(table: Table) -> list[IcebergFile]:
    """Return the files of the current snapshot."""
    if (snapshot := table.current_snapshot()) is None:
        return []
    return [
        entry.data_file
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    ]


def _text(value: object, kind: pa.DataType) -> str:
    """Return the value of a partition as text; days are numbers in a manifest."""
    if value is None:
        return NO_VALUE
    if pa.types.is_date(kind) and isinstance(value, int):
        return str(date(1970, 1, 1) + timedelta(days=value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _documented(schema: pa.Schema) -> pa.Schema:
    """Return columns with their meanings where PyIceberg looks for them."""
    return pa.schema(
        [
            field.with_metadata({"doc": field.metadata[b"comment"]} if b"comment" in (field.metadata or {}) else None)
            for field in schema
        ]
    )


def catalog_of(address: TablesAddress) -> Catalog:
    """Return the catalog of an address: a SQLite file in a folder, one by its URI, or one that PyIceberg knows by name.

    Raises:
        InvalidArgument: there is no such catalog.
    """
    found = address.option("catalog")
    if found is None:
        address.folder.mkdir(parents=True, exist_ok=True)
        found = f"sqlite:///{address.root}/{_CATALOG}"
    try:
        if "://" not in found:
            return load_catalog(found, **_io_properties(address))
        if found.startswith(("http://", "https://")):
            return load_catalog("fairlane", type="rest", uri=found, **_io_properties(address))
        return load_catalog("fairlane", type="sql", uri=found, warehouse=address.root, **_io_properties(address))
    except ValueError as error:
        raise InvalidArgument(f"Cannot open the Iceberg catalog of {address}: {error}.") from error


def _io_properties(address: TablesAddress) -> dict[str, str]:
    """Return how PyIceberg reads and writes metadata: in an object store as we do, with the same credentials."""
    if not address.scheme:
        return {"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}
    return {"py-io-impl": "fairlane.lakehouse.iceberg_files.StorageFiles", ADDRESS: str(address)}
