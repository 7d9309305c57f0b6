"""A store in memory, for tests and for brokers that need not survive their process."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from fairlane.adapters.succession import EMPTY, check_follows, extent_after, keeps_page
from fairlane.errors import StoreFailed
from fairlane.ports.store import Commit, Extent, StoredPage


class MemoryStore:
    """A ``Store`` that keeps everything in memory, through ``close`` and ``recover``, as long as the object lives.

    So a broker can be closed and another opened on the same data, as on a disk.
    """

    def __init__(self) -> None:
        self._pages: dict[int, StoredPage] = {}
        self._starts: list[int] = []
        self._bodies: dict[int, bytes] = {}
        self._extent = EMPTY
        self._size = 0
        self._is_open = False

    @property
    def is_open(self) -> bool:
        """Whether it was recovered and has not been closed since."""
        return self._is_open

    def recover(self) -> Extent:
        """Open, and return the extent of the store."""
        self._is_open = True
        return self._extent

    def check_owned(self) -> None:
        """Do nothing: no other process can reach it."""

    def write(self, commit: Commit) -> None:
        """Add a commit."""
        self._check_open()
        check_follows(commit, self._extent)
        after = extent_after(commit, self._extent, page_start=self._page_start)
        self._trim(after.first)
        if keeps_page(commit, after):
            self._starts.append(commit.sequence)
            self._pages[commit.sequence] = StoredPage(commit.sequence, commit.next_sequence, commit.page)
            self._size += len(commit.page)
        for number, body in commit.bodies:
            self._bodies[number] = body
            self._size += len(body)
        for number in commit.dropped:
            self._size -= len(self._bodies.pop(number, b""))
        self._extent = after

    def sync(self) -> None:
        """Do nothing: memory has no more durable level."""
        self._check_open()

    def pages(self, after: int) -> Iterator[StoredPage]:
        """Yield the pages that hold sequences greater than ``after``, in order."""
        sequence = after + 1
        while True:
            self._check_open()
            page = self._page_from(sequence)
            if page is None:
                return
            yield page
            sequence = page.next_sequence

    def bodies(self, numbers: Sequence[int]) -> list[bytes | None]:
        """Return bodies in the order of their numbers as given; None for one that is missing."""
        self._check_open()
        return [self._bodies.get(number) for number in numbers]

    def size(self) -> int:
        """Return the bytes of all pages and bodies."""
        self._check_open()
        return self._size

    def close(self) -> None:
        """Close; the data stays, and only ``recover`` is accepted."""
        self._is_open = False

    def copy(self) -> MemoryStore:
        """Return an independent store with the same content, not open."""
        other = MemoryStore()
        other._pages = self._pages.copy()
        other._starts = self._starts.copy()
        other._bodies = self._bodies.copy()
        other._extent = self._extent
        other._size = self._size
        return other

    def _check_open(self) -> None:
        if not self._is_open:
            raise StoreFailed("The store is not open.")

    def _page_start(self, sequence: int) -> int:
        return self._starts[bisect_right(self._starts, sequence) - 1]

    def _page_from(self, sequence: int) -> StoredPage | None:
        """Return the page that holds a sequence, or else the first after it."""
        at = bisect_right(self._starts, sequence) - 1
        if at < 0 or self._pages[self._starts[at]].next_sequence <= sequence:
            at += 1
        return self._pages[self._starts[at]] if at < len(self._starts) else None

    def _trim(self, first: int) -> None:
        gone = bisect_right(self._starts, first - 1)
        for start in self._starts[:gone]:
            self._size -= len(self._pages.pop(start).page)
        del self._starts[:gone]
