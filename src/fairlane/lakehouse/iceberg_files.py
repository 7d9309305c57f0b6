"""The metadata files of Iceberg tables in an object store, as PyIceberg reads and writes them.

PyIceberg's own files would need their own client, settings and credentials for each provider.
"""

from __future__ import annotations

import io

from fairlane.lakehouse.address import parse_address
from fairlane.lakehouse.object_storage import ObjectFile, ObjectStorage

try:
    from pyiceberg.io import FileIO, InputFile, OutputFile
except ImportError as error:
    raise ImportError("Iceberg tables need the package pyiceberg: install fairlane[iceberg].") from error

ADDRESS = "fairlane.address"
"""The property of a catalog that has the address of the tables."""


class StorageFiles(FileIO):
    """All files below the root of an address."""

    def __init__(self, properties: dict[str, str]) -> None:
        super().__init__(properties)
        self._storage = ObjectStorage(parse_address(properties[ADDRESS]))

    def new_input(self, location: str) -> StoredInput:
        """Return a file to read."""
        return StoredInput(location, self._storage)

    def new_output(self, location: str) -> StoredOutput:
        """Return a file to write."""
        return StoredOutput(location, self._storage)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file."""
        place = location if isinstance(location, str) else location.location
        self._storage.delete([_name(place, self._storage)])


def _name(location: str, storage: ObjectStorage) -> str:
    return location.removeprefix(storage.address.root).lstrip("/")


class StoredInput(InputFile):
    """A file to read."""

    def __init__(self, location: str, storage: ObjectStorage) -> None:
        super().__init__(location)
        self._storage, self._name = storage, _name(location, storage)

    def __len__(self) -> int:
        return self._storage.size(self._name)

    def exists(self) -> bool:
        """Return whether it exists."""
        try:
            len(self)
        except FileNotFoundError:
            return False
        return True

    def open(self, *_: object, **__: object) -> ObjectFile:
        """Open it for random access."""
        return self._storage.open(self._name)


class StoredOutput(OutputFile):
    """A file to write. It appears when it is closed."""

    def __init__(self, location: str, storage: ObjectStorage) -> None:
        super().__init__(location)
        self._storage = storage

    def __len__(self) -> int:
        return len(self.to_input_file())

    def exists(self) -> bool:
        """Return whether it exists."""
        return self.to_input_file().exists()

    def to_input_file(self) -> StoredInput:
        """Return the same file to read."""
        return StoredInput(self.location, self._storage)

    def create(self, *, overwrite: bool = False) -> _Written:
        """Begin to write it. Raises FileExistsError if it exists and is not to be overwritten."""
        if not overwrite and self.exists():
            raise FileExistsError(f"{self.location} exists already.")
        return _Written(_name(self.location, self._storage), self._storage)


class _Written(io.BytesIO):
    """The content of a file, which is stored when it is closed."""

    def __init__(self, name: str, storage: ObjectStorage) -> None:
        super().__init__()
        self._name, self._storage = name, storage

    def close(self) -> None:
        """Store the content."""
        if not self.closed:
            self._storage.put(self._name, self.getvalue())
        super().close()
