"""A board in S3: one object per entry, created and replaced conditionally, and polled.

An object begins with a random mark, so its ETag changes with every change, even back to an earlier value. A removed
entry leaves an object that marks it as removed, since not every server supports conditional deletes.
"""

from __future__ import annotations

import hashlib
import random
import secrets
import threading
from collections.abc import Callable, Collection
from typing import Final
from urllib.parse import quote

import msgspec

from fairlane.adapters.s3.bucket import ObjectBucket
from fairlane.adapters.shared.board_feed import Feed, check_name
from fairlane.errors import StoreCorrupt, StoreFailed
from fairlane.ports.board import Entry

_FOLDER: Final = "board"
_PATH_LENGTH_MAX = 200
_POLL_S = 1.0


class _Content(msgspec.Struct, frozen=True, array_like=True):
    """The content of an object: a mark, the name of the entry, and its value; None for a removed entry."""

    mark: str
    name: str
    value: bytes | None


class _Found(msgspec.Struct, frozen=True):
    tag: str
    content: _Content


class S3Board:
    """A ``Board`` in a bucket."""

    def __init__(self, bucket: ObjectBucket, *, chance: random.Random | None = None) -> None:
        """Create a board; ``chance`` spreads the polls of several nodes over time."""
        self._bucket = bucket
        self._chance = chance if chance is not None else random.Random()  # noqa: S311 - it only spreads polls
        self._feed = Feed()
        self._lock = threading.Lock()
        self._known: dict[str, _Found] = {}
        self._is_checked = False
        self._is_closed = False

    def read(self) -> dict[str, Entry]:
        """Return all entries. Objects that have not changed since the last time are not read again."""
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
        """Change an entry of a version, or create one with None. Return None if it has another version by now."""
        check_name(name)
        tag = self._write(name, value, version=version)
        return None if tag is None else Entry(value=value, version=tag)

    def remove(self, name: str, *, version: str) -> bool:
        """Remove an entry of a version. Return False if it has another version by now."""
        return self._write(name, None, version=version) is not None

    def _write(self, name: str, value: bytes | None, *, version: str | None) -> str | None:
        self._check_open()
        path, content = _path_of(name), _Content(secrets.token_hex(8), name, value)
        tag = self._replaced(path, content, version=version)
        if tag is None:
            # The client repeats a request whose answer was lost, and the repetition is refused because the first one
            # was carried out. Our mark in the object tells that case from a change by another node.
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
            raise StoreCorrupt(f"The object {path} is not a board entry, or has an unknown format: {error}.") from error

    def wait(self, timeout_s: float) -> None:
        """Wait until this board has changed something, it is time to poll again, or the time is up."""
        self._feed.wait(min(timeout_s, _POLL_S * self._chance.uniform(0.75, 1.25)))

    def attend(self, process: str, on_lost: Callable[[], None]) -> None:
        """Do nothing: S3 has no sessions."""

    def ended(self, processes: Collection[str]) -> frozenset[str]:  # noqa: ARG002 - the port's signature
        """Return no process: S3 has no sessions."""
        return frozenset()

    def is_attending(self) -> bool:
        """Return True: no other process can see a session of this one end."""
        return True

    def close(self) -> None:
        """Close this object; the entries stay for the others."""
        self._is_closed = True
        self._feed.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreFailed("The board is closed.")
        if not self._is_checked:
            self._bucket.check_conditions()
            self._is_checked = True


def _path_of(name: str) -> str:
    """Return the path of an entry: its readable name, or a hash of it if that would be too long."""
    path = quote(name, safe="").replace("%", "=")
    if len(path) > _PATH_LENGTH_MAX:
        path = f"={hashlib.sha256(name.encode()).hexdigest()}"
    return f"{_FOLDER}/{path}"
