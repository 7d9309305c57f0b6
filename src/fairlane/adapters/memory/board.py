"""A board in memory, for tests: several nodes in one process share its entries, each through an object of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from fairlane.adapters.shared.board_feed import Feed, check_name
from fairlane.errors import StoreFailed
from fairlane.ports.board import Entry


@dataclass(slots=True)
class _Shared:
    lock: threading.Lock = field(default_factory=threading.Lock)
    entries: dict[str, Entry] = field(default_factory=dict)
    changes: int = 0
    feeds: list[Feed] = field(default_factory=list)
    present: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)


class MemoryBoard:
    """A ``Board`` that lives as long as the objects that share it."""

    def __init__(self, shared: _Shared | None = None) -> None:
        """Create a new board, unless ``another`` passes the entries to share."""
        self._shared = shared if shared is not None else _Shared()
        self._feed = Feed()
        self._is_closed = False
        self._process: str | None = None
        self._on_lost: Callable[[], None] = lambda: None
        with self._shared.lock:
            self._shared.feeds.append(self._feed)

    def another(self) -> MemoryBoard:
        """Return another board over the same entries, as another node would have it."""
        return MemoryBoard(self._shared)

    def read(self) -> dict[str, Entry]:
        """Return all entries."""
        self._feed.reading()
        with self._opened().lock:
            return dict(self._shared.entries)

    def put(self, name: str, value: bytes, *, version: str | None) -> Entry | None:
        """Change an entry of a version, or create one with None. Return None if it has another version by now."""
        check_name(name)
        with self._opened().lock:
            if self._version_of(name) != version:
                return None
            entry = Entry(value=value, version=self._next_version())
            self._shared.entries[name] = entry
            return entry

    def remove(self, name: str, *, version: str) -> bool:
        """Remove an entry of a version. Return False if it has another version by now."""
        with self._opened().lock:
            if self._version_of(name) != version:
                return False
            del self._shared.entries[name]
            self._next_version()
            return True

    def wait(self, timeout_s: float) -> None:
        """Wait until something has changed, or the time is up."""
        self._feed.wait(timeout_s)

    def attend(self, process: str, on_lost: Callable[[], None]) -> None:
        """Show to the other boards that this process is connected."""
        with self._shared.lock:
            self._process, self._on_lost = process, on_lost
            self._shared.present.add(process)

    def ended(self, processes: Collection[str]) -> frozenset[str]:
        """Return those of the processes that are no longer connected."""
        with self._shared.lock:
            return frozenset(self._shared.ended.intersection(processes))

    def is_attending(self) -> bool:
        """Return whether this process is connected, or has never been."""
        return self._process is None or self._process in self._shared.present

    def present(self) -> frozenset[str]:
        """Return the processes that are connected."""
        with self._shared.lock:
            return frozenset(self._shared.present)

    def hang_up(self) -> None:
        """End the session of this process, as its death would."""
        with self._shared.lock:
            if self._process is not None and self._process in self._shared.present:
                self._shared.present.remove(self._process)
                self._shared.ended.add(self._process)
                for feed in self._shared.feeds:
                    feed.changed()

    def cut(self) -> None:
        """End the session of this process, which lives and learns of it."""
        self.hang_up()
        self._on_lost()

    def close(self) -> None:
        """Close this object; the entries stay for the others."""
        self.hang_up()
        self._is_closed = True
        self._feed.close()
        with self._shared.lock:
            if self._feed in self._shared.feeds:
                self._shared.feeds.remove(self._feed)

    def _opened(self) -> _Shared:
        if self._is_closed:
            raise StoreFailed("The board is closed.")
        return self._shared

    def _version_of(self, name: str) -> str | None:
        entry = self._shared.entries.get(name)
        return None if entry is None else entry.version

    def _next_version(self) -> str:
        self._shared.changes += 1
        for feed in self._shared.feeds:
            feed.changed()
        return str(self._shared.changes)
