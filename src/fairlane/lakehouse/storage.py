"""Where tables are stored: small objects that are replaced conditionally, and large files.

A folder is one of two kinds, the other is in ``object_storage``. Names are relative to the root and have slashes.
"""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.fs

from fairlane.errors import StoreFailed, StoreLocked
from fairlane.files import replacing
from fairlane.lakehouse.address import TablesAddress

if TYPE_CHECKING:
    from pyarrow import fs

_LOCK = ".lock"


class StoredObject(NamedTuple):
    """An object, and a tag that changes whenever the object does."""

    data: bytes
    tag: str


class Storage(Protocol):
    """Where tables are stored. Every method may raise StoreFailed."""

    root: str
    """What paths of ``filesystem`` begin with; empty if names are paths."""

    def read(self, name: str) -> StoredObject | None:
        """Return an object, None if it does not exist."""
        ...

    def replace(self, name: str, data: bytes, *, tag: str | None) -> str | None:
        """Replace the object that has this tag, or create it with None; durable on return.

        Return its new tag. Return None, and change nothing, if the object is another by now.
        """
        ...

    def put(self, name: str, data: bytes | pa.Buffer) -> None:
        """Write an object or a file under a new name."""
        ...

    def names(self, folder: str) -> list[str]:
        """Return the names of all files below a folder, in order."""
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Delete files; those that don't exist are gone already."""
        ...

    def locked(self) -> AbstractContextManager[None]:
        """Keep other writers of this machine out, where that is possible. Raises StoreLocked if there is one."""
        ...

    def filesystem(self) -> fs.FileSystem:
        """Return the files for Arrow."""
        ...


class FolderStorage:
    """A folder, on a file system with renames and locks."""

    def __init__(self, address: TablesAddress) -> None:
        self._folder = address.folder
        self.root = str(self._folder)

    def read(self, name: str) -> StoredObject | None:
        """Return a file."""
        try:
            data = (self._folder / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreFailed(f"Cannot read {self._folder / name}: {error}.") from error
        return StoredObject(data, _tag(data))

    def replace(self, name: str, data: bytes, *, tag: str | None) -> str | None:
        """Replace a file. The lock keeps others out between the comparison and the rename."""
        there = self.read(name)
        if (None if there is None else there.tag) != tag:
            return None
        self.put(name, data)
        return _tag(data)

    def put(self, name: str, data: bytes | pa.Buffer) -> None:
        """Write a file that appears under its name when it is complete."""
        path = self._folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as file:
                file.write(data)
        except OSError as error:
            raise StoreFailed(f"Could not write {path}: {error}.") from error

    def names(self, folder: str) -> list[str]:
        """Return the names of files below a folder."""
        return sorted(
            path.relative_to(self._folder).as_posix() for path in (self._folder / folder).rglob("*") if path.is_file()
        )

    def delete(self, names: Iterable[str]) -> None:
        """Delete files, and folders that are empty then."""
        try:
            for name in names:
                path = self._folder / name
                path.unlink(missing_ok=True)
                with suppress(OSError):  # other files are in it
                    path.parent.rmdir()
        except OSError as error:
            raise StoreFailed(f"Could not delete files in {self._folder}: {error}.") from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the write lock of the folder, which is created if missing. The lock ends with the process."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            file = (self._folder / _LOCK).open("w")
        except OSError as error:
            raise StoreFailed(f"Cannot write tables to {self._folder}: {error}.") from error
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise StoreLocked(f"Another process is updating the tables in {self._folder}.") from error
            yield

    def filesystem(self) -> fs.FileSystem:
        """Return the local files."""
        return pyarrow.fs.LocalFileSystem()


def _tag(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def storage_of(address: TablesAddress) -> Storage:
    """Return the storage of an address."""
    if not address.scheme:
        return FolderStorage(address)
    from fairlane.lakehouse.object_storage import ObjectStorage

    return ObjectStorage(address)
