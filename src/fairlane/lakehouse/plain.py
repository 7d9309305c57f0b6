"""Tables as plain Parquet. The listing says which files belong to a table.

In a folder, a run writes aside, and its files are moved into the table's folders once the run is committed, so any tool
that reads these folders sees tables without unfinished runs. In an object store nothing can be moved: files are written
where they belong, only the listing counts, and a file that a run replaced stays for readers until the next run.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import msgspec

from fairlane.errors import StoreFailed
from fairlane.files import sync_folder
from fairlane.lakehouse.files import Attempt, DataFile, TableShape, run_of
from fairlane.lakehouse.port import Place
from fairlane.lakehouse.state import Listing, Swap, TablesState
from fairlane.lakehouse.storage import Storage

STAGED = ".staged"


class FolderTables:
    """Plain Parquet in a folder."""

    def __init__(self, storage: Storage) -> None:
        self._storage, self._folder = storage, Path(storage.root)

    def place(self, shape: TableShape, attempt: Attempt) -> Place:
        """Return a folder aside."""
        return Place(folder=shape.name, schema=shape.schema, prefix=_aside(attempt))

    def files(self, shape: TableShape, state: TablesState, listing: Listing) -> list[DataFile]:
        """Return the listed files. Until a run is carried out, some of them are still aside."""
        found = listing.files(shape.name)
        return found if state.swap is None else [self._found(file, state.swap.attempt) for file in found]

    def _found(self, file: DataFile, attempt: Attempt) -> DataFile:
        if not attempt.wrote(file.path) or (self._folder / file.path).exists():
            return file
        return msgspec.structs.replace(file, path=_aside(attempt) + file.path)

    def publish(self, shapes: Iterable[TableShape], swap: Swap, *, before: Listing, after: Listing) -> None:
        """Move the files of a run into place, and delete those they replace."""
        try:
            for shape in shapes:
                if (change := swap.changes.get(shape.name)) is not None:
                    self._move(change.added(), swap.attempt)
                    kept = {file.path for file in after.files(shape.name)}
                    self._storage.delete(file.path for file in before.files(shape.name) if file.path not in kept)
            shutil.rmtree(self._folder / STAGED, ignore_errors=True)
        except OSError as error:
            raise StoreFailed(f"Could not move the tables in {self._folder} into place: {error}.") from error

    def _move(self, files: Iterable[DataFile], attempt: Attempt) -> None:
        folders = set[Path]()
        for file in files:
            source, target = self._folder / (_aside(attempt) + file.path), self._folder / file.path
            if source.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                source.replace(target)
                folders.add(target.parent)
        for folder in folders:
            sync_folder(folder)

    def discard(self, shapes: Iterable[TableShape], attempt: Attempt) -> None:
        """Delete what unfinished runs have left aside."""
        shutil.rmtree(self._folder / STAGED, ignore_errors=True)


def _aside(attempt: Attempt) -> str:
    return f"{STAGED}/{attempt}/"


class ListedTables:
    """Plain Parquet in an object store."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def place(self, shape: TableShape, attempt: Attempt) -> Place:
        """Return where the files of a table stay."""
        return Place(folder=shape.name, schema=shape.schema)

    def files(self, shape: TableShape, state: TablesState, listing: Listing) -> list[DataFile]:
        """Return the listed files."""
        return listing.files(shape.name)

    def publish(self, shapes: Iterable[TableShape], swap: Swap, *, before: Listing, after: Listing) -> None:
        """Delete files that neither this run nor the one before it has.

        Another attempt may be writing files of the same run right now. It can't be committed any more, because the
        manifest it began with is gone, so its files are deleted too.
        """
        for shape in shapes:
            kept = {file.path for listing in (before, after) for file in listing.files(shape.name)}
            found = [name for name in self._storage.names(f"{shape.name}/") if name not in kept]
            self._storage.delete(
                name for name in found if (run := run_of(name)) is not None and run <= swap.attempt.run
            )

    def discard(self, shapes: Iterable[TableShape], attempt: Attempt) -> None:
        """Delete the files of an attempt."""
        for shape in shapes:
            self._storage.delete(name for name in self._storage.names(f"{shape.name}/") if attempt.wrote(name))
