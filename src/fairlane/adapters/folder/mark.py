"""The mark of a folder: it says that the folder is a store, of which kind, and whether its data was made.

The order in which the parts of a store come to be is what makes a loss visible: the mark first, then the data, then
the high-water mark, then the mark again, which now says that the data was made. A folder that says so and has no data
has lost it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fairlane.adapters.folder.file_system import FileSystem, SystemFiles, read_all, write_durably
from fairlane.adapters.folder.high_water import FILE_NAME
from fairlane.errors import InvalidArgument, StoreCorrupt, StoreDamaged, StoreFailed
from fairlane.files import unfinished_name

MARK: Final = "FAIRLANE"
_WORDS: Final = "fairlane store, "
_MADE: Final = ", made"
_log = logging.getLogger("fairlane.store")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of store in a folder.

    Attributes:
        name: what it is called.
        data: the folder of its data, within the folder of the store.
        word: what the mark says of it, before the version of its format.
        version: the version that this program reads and writes.
    """

    name: str
    data: str
    word: str
    version: int


ROCKSDB: Final = Kind("RocksDB", "rocksdb", "format", 1)
LOG: Final = Kind("log", "log", "log", 1)
_KINDS: Final = (LOG, ROCKSDB)


def kind_of(folder: Path) -> Kind | None:
    """Return the kind of the store in a folder; None if there is none, or nothing tells."""
    try:
        text = (folder / MARK).read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    marked_as = next((kind for kind in _KINDS if text.startswith(f"{_WORDS}{kind.word} ")), None)
    return marked_as or next((kind for kind in _KINDS if (folder / kind.data).is_dir()), None)


def claim_folder(folder: Path, kind: Kind, files: FileSystem | None = None) -> None:
    """Check that a folder holds a store of a kind, by a mark written before anything else, or mark a new or empty one.

    Raises:
        InvalidArgument: something else is in the folder.
        StoreDamaged, StoreCorrupt: the mark is missing or unreadable, or of another version.
        StoreFailed: the folder cannot be used.
    """
    files = files if files is not None else SystemFiles()
    try:
        files.make_folder(folder)
        names = files.names(folder)
        if MARK in names:
            read_mark(folder, kind, files)
            if files.restrict(folder):
                _log.warning("Other users could read the store %s. Its files are for their owner alone now.", folder)
        elif kind.data in names or FILE_NAME in names:
            raise StoreDamaged(f"{folder} has a database, but its mark {MARK} is missing.")
        elif any(name != unfinished_name(folder / MARK).name for name in names):
            raise InvalidArgument(f"{folder} is not empty and not a Fairlane store. Choose a new or empty folder.")
        else:
            files.restrict(folder)
            write_mark(folder, kind, is_made=False, files=files)
            files.sync_folder(folder.parent)  # the folder of the store may be new too
    except OSError as error:
        raise StoreFailed(f"Cannot use the folder of the store: {error}.") from error


def read_mark(folder: Path, kind: Kind, files: FileSystem | None = None) -> bool:
    """Return whether the mark says that the data was made.

    Raises:
        InvalidArgument: the folder holds a store of another kind.
        StoreDamaged: the mark cannot be read.
        StoreCorrupt: the store has a format of another version.
    """
    mark = folder / MARK
    text = read_all(files if files is not None else SystemFiles(), mark).decode(errors="replace").strip()
    word, _, version = text.removeprefix(_WORDS).removesuffix(_MADE).partition(" ")
    known = next((each for each in _KINDS if each.word == word), None)
    if not text.startswith(_WORDS) or known is None or not version.isdecimal():
        raise StoreDamaged(f"{mark} should name the format of the store, but contains {text[:80]!r}.")
    if known is not kind:
        raise InvalidArgument(f"{folder} holds a store of kind {known.name}, not {kind.name}. Name the folder alone.")
    if int(version) != kind.version:
        raise StoreCorrupt(f"The store has format {version}; this version of Fairlane supports {kind.version}.")
    return text.endswith(_MADE)


def write_mark(folder: Path, kind: Kind, *, is_made: bool, files: FileSystem | None = None) -> None:
    """Write the mark atomically, so that power may fail at any time."""
    text = f"{_WORDS}{kind.word} {kind.version}{_MADE if is_made else ''}\n"
    write_durably(files if files is not None else SystemFiles(), folder / MARK, text.encode())


def mark_made(folder: Path, kind: Kind, files: FileSystem | None = None) -> None:
    """Write in the mark that the data was made, unless it says so.

    Raises:
        StoreFailed: the mark cannot be written.
    """
    try:
        if not read_mark(folder, kind, files):
            write_mark(folder, kind, is_made=True, files=files)
    except OSError as error:
        raise StoreFailed(f"Cannot write {folder / MARK}: {error}.") from error


def marked(folder: Path, kind: Kind, files: FileSystem | None = None) -> tuple[bool, list[str]]:
    """Return whether the data was made, as far as the mark tells, and what is wrong with the mark."""
    try:
        return read_mark(folder, kind, files), []
    except FileNotFoundError:
        return True, [f"{folder / MARK} is missing."]
    except (StoreDamaged, InvalidArgument) as error:
        return True, [error.cause]
