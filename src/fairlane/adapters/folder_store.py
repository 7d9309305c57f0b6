"""The store in a folder: of the kind that is found there, or that is named with the folder."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal, Protocol, runtime_checkable

from fairlane.adapters.folder.mark import LOG, kind_of
from fairlane.adapters.log.store import LogStore
from fairlane.adapters.store_url import is_url, split_folder
from fairlane.data_folder import check_not_lost
from fairlane.ports.store import Store

_DEFAULT: Final = LOG.data
"""The kind of store that a new folder gets."""


@runtime_checkable
class FolderStore(Protocol):
    """A store in a folder of the local disk."""

    folder: Path

    def reclaim(self) -> None:
        """Begin to return the space of dropped bodies to the disk."""


def check_there(path: Path | str | None) -> None:
    """Raise StoreDamaged if a server made a store in a folder, and it is gone as a whole."""
    if path is not None and not (isinstance(path, str) and is_url(path)):
        check_not_lost(Path(split_folder(str(path))[1]))


def folder_store(path: Path | str, *, durability: Literal["fsync", "os"]) -> Store:
    """Return the store in a folder, such as ``PATH``, ``log:PATH`` or ``rocksdb:PATH``."""
    kind, folder = split_folder(str(path))
    found = kind_of(Path(folder))
    if not kind:
        kind = found.data if found is not None else _DEFAULT
    if kind == LOG.data:
        return LogStore(folder, durability=durability)
    from fairlane.adapters.rocksdb.store import RocksDbStore

    return RocksDbStore(folder, durability=durability)
