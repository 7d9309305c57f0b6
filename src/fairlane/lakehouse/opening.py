"""Opens tables for reading, and commits what a run has written.

The steps of a run, whatever the format:

1. Tasks write files that no other attempt can have written, and report them to the driver.
2. The driver writes a new listing and replaces the manifest on the condition that it is the one the run began with.
   This commits the run: the manifest names the listing and says what is to be changed. Of two runs at the same time
   one is refused here, and nothing of it counts.
3. The format carries the changes out: it moves files, or commits one transaction for each table. Each step can be
   repeated. The next run does so if this process is killed.
4. The manifest is replaced once more: nothing is left to be carried out.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import msgspec
import pyarrow.dataset as ds

from fairlane.errors import InvalidArgument, StoreCorrupt, StoreLocked
from fairlane.lakehouse.address import TablesAddress, parse_address
from fairlane.lakehouse.files import Attempt, DataFile, TableShape, dataset_of
from fairlane.lakehouse.plain import FolderTables, ListedTables
from fairlane.lakehouse.port import Place, TableFormat
from fairlane.lakehouse.state import LISTINGS, MANIFEST, Listing, Swap, TableChange, TablesState
from fairlane.lakehouse.storage import Storage, storage_of

S = TypeVar("S", bound=TablesState)


def open_tables(tables: str | Path | TablesAddress) -> Lakehouse:
    """Open tables that exist.

    Raises:
        InvalidArgument: the address is not valid, there are no tables, or they have another format.
        StoreFailed: the store cannot be read.
    """
    found = Lakehouse(parse_address(tables))
    if found.load(TablesState) is None:
        raise InvalidArgument(f"There are no tables at {found.address}. Create them with 'fairlane pipeline run'.")
    return found


class Lakehouse:
    """Tables at an address. Every method may raise StoreFailed."""

    def __init__(self, address: TablesAddress, *, token: str | None = None) -> None:
        """Create it; nothing is read yet. ``token`` is that of the attempt at the next run, random by default."""
        self.address = address
        self.storage: Storage = storage_of(address)
        self._plain: TableFormat = ListedTables(self.storage) if address.scheme else FolderTables(self.storage)
        self._format = _format_of(address, self.storage) or self._plain
        self._token = secrets.token_hex(4) if token is None else token
        self._tag: str | None = None
        self._state = TablesState(format=address.format)
        self._listing = Listing()

    # ------------------------------------------------------------------------------------------------------- reading

    def load(self, kind: type[S]) -> S | None:
        """Read the manifest again and return it, None if there are no tables.

        Raises:
            InvalidArgument: the tables have another format.
            StoreCorrupt: it cannot be read.
        """
        if (found := self.storage.read(MANIFEST)) is None:
            return None
        try:
            state = msgspec.json.decode(found.data, type=kind)
        except msgspec.DecodeError as error:
            raise StoreCorrupt(f"{MANIFEST} at {self.address} is not a valid manifest: {error}.") from error
        if state.format != self.address.format:
            raise InvalidArgument(
                f"The tables at {self.address.root} have the format {state.format}, not {self.address.format}. "
                f"Use {replace(self.address, format=state.format)}."
            )
        listing = self._read_listing(state.listing)
        if listing is None:
            again = self.storage.read(MANIFEST)
            if again is not None and again.tag != found.tag:  # later runs have replaced both meanwhile
                return self.load(kind)
            raise StoreCorrupt(f"{state.listing} at {self.address} is missing, but the manifest names it.")
        self._tag, self._state, self._listing = found.tag, state, listing
        return state

    def _read_listing(self, name: str | None) -> Listing | None:
        """Return a listing, an empty one before the first run; None if it is gone."""
        if name is None:
            return Listing()
        if (found := self.storage.read(name)) is None:
            return None
        try:
            return msgspec.json.decode(found.data, type=Listing)
        except msgspec.DecodeError as error:
            raise StoreCorrupt(f"{name} at {self.address} is not a valid listing: {error}.") from error

    def shapes(self) -> dict[str, TableShape]:
        """Return all tables that exist."""
        return {name: table.shape for name, table in self._listing.tables.items()}

    def shape(self, name: str) -> TableShape:
        """Return a table. Raises InvalidArgument if there is none of this name."""
        if name not in self._listing.tables:
            known = ", ".join(each for each, shape in self.shapes().items() if not shape.is_internal)
            raise InvalidArgument(f"Unknown table {name!r:.100} at {self.address}. Its tables: {known or 'none'}.")
        return self._listing.tables[name].shape

    def files(self, name: str) -> list[DataFile]:
        """Return the files of a table, none if there is no such table."""
        if name not in self._listing.tables:
            return []
        shape = self._listing.tables[name].shape
        return self._kept(shape).files(shape, self._state, self._listing)

    def dataset(self, name: str) -> ds.Dataset:
        """Return a table as an Arrow dataset. Raises InvalidArgument if there is none of this name."""
        return self.dataset_of(self.shape(name), self.files(name))

    def dataset_of(self, shape: TableShape, files: list[DataFile]) -> ds.Dataset:
        """Return files of a table as an Arrow dataset."""
        return dataset_of(files, shape, filesystem=self.storage.filesystem(), root=self.storage.root)

    # ------------------------------------------------------------------------------------------------------- writing

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs out where the storage has locks. Raises StoreLocked if another run is in progress."""
        with self.storage.locked():
            yield

    def clear(self) -> None:
        """Delete what killed runs have left, where the lock says that no other run is in progress."""
        if not self.address.scheme:
            self._plain.discard([], self.attempt())

    def attempt(self) -> Attempt:
        """Return the attempt at the next run."""
        return Attempt(self._state.run + 1, self._token)

    def place(self, shape: TableShape) -> Place:
        """Return where the next run writes a table.

        Raises:
            StoreLocked: another run was committed since the manifest was read.
            StoreCorrupt: the table has runs that the manifest does not know.
        """
        try:
            return self._kept(shape).place(shape, self.attempt())
        except StoreCorrupt:
            found = self.storage.read(MANIFEST)
            if (None if found is None else found.tag) != self._tag:
                raise self._overtaken() from None
            raise

    def commit(self, state: S, shapes: Mapping[str, TableShape], changes: Mapping[str, TableChange]) -> S:
        """Commit a run: changes of tables, and the new manifest. Return the manifest as it is then.

        Raises:
            StoreLocked: another run was committed since the manifest was read. Nothing was changed.
        """
        attempt = self.attempt()
        listed = [name for name, shape in shapes.items() if self._kept(shape) is self._plain]
        listing = self._listing.changed(shapes, changes, listed=listed)
        name = f"{LISTINGS}/{attempt}.json"
        self.storage.put(name, msgspec.json.encode(listing))
        swap = Swap(attempt=attempt, changes=dict(changes), listing=self._state.listing)
        decided = msgspec.structs.replace(state, run=attempt.run, listing=name, swap=swap)
        if not self._replace(decided):
            self._discard(shapes, attempt)
            raise self._overtaken()
        self._listing = listing
        return self.finish(decided)

    def finish(self, state: S) -> S:
        """Carry out the run that was committed last, if that is not done yet. Return the manifest as it is then."""
        if state.swap is None:
            return state
        # Another process may have finished the run and deleted the listing before it: then nothing is left of it.
        before = self._read_listing(state.swap.listing) or Listing()
        for kept in {id(each): each for each in (self._plain, self._format)}.values():
            shapes = [shape for shape in self.shapes().values() if self._kept(shape) is kept]
            kept.publish(shapes, state.swap, before=before, after=self._listing)
        self._sweep_listings(state)
        done = msgspec.structs.replace(state, swap=None)
        if not self._replace(done):  # another process has finished the run, and maybe more
            again = self.load(type(state))
            if again is None or again.run < state.run:
                raise StoreLocked(f"The tables at {self.address} were changed during the run.")
            return again
        return done

    def _overtaken(self) -> StoreLocked:
        return StoreLocked(
            f"Another run has updated the tables at {self.address} in the meantime. This run changed nothing."
        )

    def _sweep_listings(self, state: TablesState) -> None:
        kept = {state.listing, state.swap.listing if state.swap is not None else None}
        self.storage.delete(
            name
            for name in self.storage.names(f"{LISTINGS}/")
            if name not in kept and _run_of_listing(name) <= state.run
        )

    def _replace(self, state: TablesState) -> bool:
        data = msgspec.json.format(msgspec.json.encode(state), indent=1)
        tag = self.storage.replace(MANIFEST, data, tag=self._tag)
        if tag is not None:
            self._tag, self._state = tag, state
        return tag is not None

    def _discard(self, shapes: Mapping[str, TableShape], attempt: Attempt) -> None:
        for kept in {id(each): each for each in (self._plain, self._format)}.values():
            kept.discard([shape for shape in shapes.values() if self._kept(shape) is kept], attempt)
        self.storage.delete([f"{LISTINGS}/{attempt}.json"])

    def _kept(self, shape: TableShape) -> TableFormat:
        return self._plain if shape.is_internal else self._format


def _run_of_listing(name: str) -> int:
    """Return the run of a listing; one that a killed process was writing has a dot in front of its name."""
    return int(name.rpartition("/")[2].lstrip(".").partition("-")[0])


def _format_of(address: TablesAddress, storage: Storage) -> TableFormat | None:
    """Return the format of an address; None for plain Parquet."""
    if address.format == "delta":
        from fairlane.lakehouse.delta import DeltaTables

        return DeltaTables(address, storage)
    if address.format == "iceberg":
        from fairlane.lakehouse.iceberg import IcebergTables

        return IcebergTables(address, storage)
    return None
