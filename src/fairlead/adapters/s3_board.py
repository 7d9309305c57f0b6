"""A board in S3: an object for each entry, made and replaced on conditions, and looked at now and then.

An object begins with a mark that was never used before, so its tag changes with every change, even back to an earlier
value. An entry that is removed leaves an object that says so, since not every server deletes on conditions.
"""

from __future__ import annotations

import random
import secrets
import threading
from typing import Final
from urllib.parse import quote, unquote

from fairlead.adapters.board_feed import Feed, check_name
from fairlead.adapters.s3_bucket import S3Bucket
from fairlead.errors import StoreCorrupt, StoreFailed
from fairlead.ports.board import Entry

_FOLDER: Final = "board"
_MARK_BYTES = 16
_LOOK_S = 1.0
_THERE, _GONE = b"+", b"-"


class S3Board:
    """A ``Board`` in a bucket."""

    def __init__(self, bucket: S3Bucket, *, chance: random.Random | None = None) -> None:
        """Name the board; ``chance`` keeps the looks of several nodes from coming all at once."""
        self._bucket = bucket
        self._chance = chance if chance is not None else random.Random()  # noqa: S311 - no secret
        self._feed = Feed()
        self._lock = threading.Lock()
        self._known: dict[str, tuple[str, Entry | None]] = {}
        self._is_checked = False
        self._is_closed = False

    def read(self) -> dict[str, Entry]:
        """Return everything on the board. What has not changed since the last time is not read again."""
        self._feed.reading()
        self._check_open()
        tags = self._bucket.tags(_FOLDER)
        with self._lock:
            known = {path: self._known[path] for path, tag in tags.items() if self._is_known(path, tag)}
        for path in tags.keys() - known.keys():
            if (found := self._bucket.read(path)) is not None:
                known[path] = (found[1], _entry_of(path, *found))
        with self._lock:
            self._known |= known
        return {_name_of(path): entry for path, (_, entry) in known.items() if entry is not None}

    def _is_known(self, path: str, tag: str | None) -> bool:
        return tag is not None and path in self._known and self._known[path][0] == tag

    def put(self, name: str, value: bytes, *, version: str | None) -> Entry | None:
        """Change an entry of a version, or with None make one; return None if it has another by now."""
        check_name(name)
        tag = self._write(_path_of(name), _THERE + value, version=version)
        return None if tag is None else Entry(value=value, version=tag)

    def remove(self, name: str, *, version: str) -> bool:
        """Remove an entry of a version; return False if it has another by now."""
        return self._write(_path_of(name), _GONE, version=version) is not None

    def _write(self, path: str, content: bytes, *, version: str | None) -> str | None:
        self._check_open()
        data = secrets.token_hex(_MARK_BYTES // 2).encode() + content
        if version is not None:
            tag = self._bucket.replace(path, data, tag=version)
        elif (tag := self._bucket.create(path, data)) is None:
            there = self._bucket.read(path)
            if there is None or _entry_of(path, *there) is not None:
                return None
            tag = self._bucket.replace(path, data, tag=there[1])
        if tag is not None:
            self._feed.changed()
        return tag

    def wait(self, timeout_s: float) -> None:
        """Return when this board has changed something, when it is time to look again, or after this time."""
        self._feed.wait(min(timeout_s, _LOOK_S * self._chance.uniform(0.75, 1.25)))

    def close(self) -> None:
        """Let go; the board stays as it is for others."""
        self._is_closed = True
        self._feed.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreFailed("The board is closed.")
        if not self._is_checked:
            self._bucket.check_conditions()
            self._is_checked = True


def _path_of(name: str) -> str:
    return f"{_FOLDER}/{quote(name, safe='').replace('%', '=')}"


def _name_of(path: str) -> str:
    return unquote(path.removeprefix(f"{_FOLDER}/").replace("=", "%"))


def _entry_of(path: str, data: bytes, tag: str) -> Entry | None:
    state, value = data[_MARK_BYTES : _MARK_BYTES + 1], data[_MARK_BYTES + 1 :]
    if state not in (_THERE, _GONE):
        raise StoreCorrupt(f"The object {path} is none of a board, or of another format.")
    return Entry(value=value, version=tag) if state == _THERE else None
