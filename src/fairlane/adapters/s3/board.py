"""A board in S3: an object for each entry, made and replaced on conditions, and looked at now and then.

An object begins with a mark that was never used before, so its tag changes with every change, even back to an earlier
value. An entry that is removed leaves an object that says so, since not every server deletes on conditions.
"""

from __future__ import annotations

import hashlib
import random
import secrets
import threading
from typing import Final
from urllib.parse import quote

import msgspec

from fairlane.adapters.s3.bucket import S3Bucket
from fairlane.adapters.shared.board_feed import Feed, check_name
from fairlane.errors import StoreCorrupt, StoreFailed
from fairlane.ports.board import Entry

_FOLDER: Final = "board"
_PATH_LENGTH_MAX = 200
_LOOK_S = 1.0


class _Content(msgspec.Struct, frozen=True, array_like=True):
    """What is in an object: a mark, the name of the entry, and its value; None for one that was removed."""

    mark: str
    name: str
    value: bytes | None


class _Found(msgspec.Struct, frozen=True):
    tag: str
    content: _Content


class S3Board:
    """A ``Board`` in a bucket."""

    def __init__(self, bucket: S3Bucket, *, chance: random.Random | None = None) -> None:
        """Name the board; ``chance`` keeps the looks of several nodes from coming all at once."""
        self._bucket = bucket
        self._chance = chance if chance is not None else random.Random()  # noqa: S311 - no secret
        self._feed = Feed()
        self._lock = threading.Lock()
        self._known: dict[str, _Found] = {}
        self._is_checked = False
        self._is_closed = False

    def read(self) -> dict[str, Entry]:
        """Return everything on the board. What has not changed since the last time is not read again."""
        self._feed.reading()
        self._check_open()
        tags = self._bucket.tags(_FOLDER)
        with self._lock:
            known = {path: found for path, found in self._known.items() if tags.get(path) == found.tag}
        for path in tags.keys() - known.keys():
            if (found := self._found(path)) is not None:
                known[path] = found
        with self._lock:
            self._known |= known
        return {
            found.content.name: Entry(value=found.content.value, version=found.tag)
            for found in known.values()
            if found.content.value is not None
        }

    def put(self, name: str, value: bytes, *, version: str | None) -> Entry | None:
        """Change an entry of a version, or with None make one; return None if it has another by now."""
        check_name(name)
        tag = self._write(name, value, version=version)
        return None if tag is None else Entry(value=value, version=tag)

    def remove(self, name: str, *, version: str) -> bool:
        """Remove an entry of a version; return False if it has another by now."""
        return self._write(name, None, version=version) is not None

    def _write(self, name: str, value: bytes | None, *, version: str | None) -> str | None:
        self._check_open()
        path, content = _path_of(name), _Content(secrets.token_hex(8), name, value)
        tag = self._replaced(path, content, version=version)
        if tag is None:
            # A request whose answer was lost is sent again, and then refused because it was carried out the first time.
            there = self._found(path)
            tag = there.tag if there is not None and there.content.mark == content.mark else None
        if tag is not None:
            self._feed.changed()
        return tag

    def _replaced(self, path: str, content: _Content, *, version: str | None) -> str | None:
        data = msgspec.msgpack.encode(content)
        if version is not None:
            return self._bucket.replace(path, data, tag=version)
        if (tag := self._bucket.create(path, data)) is not None:
            return tag
        there = self._found(path)
        if there is None or there.content.value is not None:
            return None
        return self._bucket.replace(path, data, tag=there.tag)

    def _found(self, path: str) -> _Found | None:
        if (found := self._bucket.read(path)) is None:
            return None
        data, tag = found
        try:
            return _Found(tag=tag, content=msgspec.msgpack.decode(data, type=_Content))
        except msgspec.DecodeError as error:
            raise StoreCorrupt(f"The object {path} is none of a board, or of another format: {error}.") from error

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
    """Return where an entry is: by its name for people who look, by a hash of it where that would be too long."""
    path = quote(name, safe="").replace("%", "=")
    if len(path) > _PATH_LENGTH_MAX:
        path = f"={hashlib.sha256(name.encode()).hexdigest()}"
    return f"{_FOLDER}/{path}"
