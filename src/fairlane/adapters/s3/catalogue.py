"""The catalogue of an S3 store's objects: kept in memory only, rebuilt from their heads at recovery.

It answers three questions without a request: which object holds a page, where a body is, and how much of an object is
still needed. The last one is what compaction decides by.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from fairlane.adapters.s3.object_format import ObjectHead, body_places, reach_of
from fairlane.adapters.succession import EMPTY
from fairlane.ports.store import Extent, StoredPage

APART = "bodies"
BodyLocation = tuple["CatalogueEntry", int, int]
"""The object that holds a body, its offset there, and its size."""


@dataclass(slots=True)
class LocatedBodies:
    """Where some bodies are.

    Attributes:
        apart: the names of those that are objects of their own, by number.
        parts: the number, offset and size of the others, by the object that holds them.
    """

    apart: dict[int, str] = field(default_factory=dict)
    parts: dict[str, list[tuple[int, int, int]]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class CatalogueEntry:
    """An object of a store.

    Attributes:
        name: the name of the object.
        head: its head without the list of bodies, which the catalogue has.
        head_bytes: the number of bytes before the pages.
        page_bytes: the bytes of all its pages.
        body_bytes: the bytes of all its bodies.
        live_bytes: the bytes of the bodies that are still needed.
        numbers: the lowest and the highest number of the bodies in it and apart from it; None without bodies.
        pages: the pages of a segment, kept in memory so that recent pages need no request.
    """

    name: str
    head: ObjectHead
    head_bytes: int
    page_bytes: int
    body_bytes: int
    live_bytes: int
    numbers: tuple[int, int] | None
    pages: list[StoredPage] | None

    @property
    def is_run(self) -> bool:
        """Whether it was merged from other objects."""
        return self.pages is None

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return self.head_bytes + self.page_bytes + self.body_bytes

    @property
    def end(self) -> int:
        """The sequence after its last page; 0 without pages."""
        return self.head.pages[-1][1] if self.head.pages else 0

    def needed_bytes(self, first: int) -> int:
        """Return about how many of its bytes a merged object would keep, if pages are kept from ``first`` on."""
        return self.live_bytes + (self.page_bytes if self.end > first else 0)


class Catalogue:
    """The objects of a store in order, and the locations of its bodies."""

    def __init__(self) -> None:
        self.entries: list[CatalogueEntry] = []
        self._places: dict[int, BodyLocation] = {}
        self._apart: dict[int, tuple[int, str]] = {}
        self._unneeded: list[str] = []

    @property
    def extent(self) -> Extent:
        """The extent of the store."""
        return self.entries[-1].head.extent if self.entries else EMPTY

    @property
    def next_number(self) -> int:
        """The number of the next segment."""
        return self.entries[-1].head.last + 1 if self.entries else 1

    @property
    def size(self) -> int:
        """The size of all objects in bytes."""
        return sum(entry.size for entry in self.entries) + sum(size for size, _ in self._apart.values())

    def add(self, name: str, head: ObjectHead, head_bytes: int, pages: list[StoredPage] | None) -> None:
        """Add an object after all others; ``pages`` are those of a segment."""
        entry = _entry_of(name, head, head_bytes, pages)
        self.entries.append(entry)
        for number in head.dropped:
            self._forget(number)
        for number, offset, size in body_places(head, head_bytes):
            self._places[number] = (entry, offset, size)
            entry.live_bytes += size
        for number, size, tag in head.apart:
            self._apart[number] = (size, tag)

    def located(self, numbers: Iterable[int]) -> LocatedBodies:
        """Return where bodies are, as far as they are needed."""
        located = LocatedBodies()
        for number in numbers:
            if (known := self._apart.get(number)) is not None:
                located.apart[number] = apart_name(number, known[1])
            elif (place := self._places.get(number)) is not None:
                entry, offset, size = place
                located.parts.setdefault(entry.name, []).append((number, offset, size))
        return located

    def is_apart(self, number: int) -> bool:
        """Return whether a body that is needed is an object of its own."""
        return number in self._apart

    def apart_names(self) -> set[str]:
        """Return the names of all objects that are bodies which are needed."""
        return {apart_name(number, tag) for number, (_, tag) in self._apart.items()}

    def take_unneeded(self) -> list[str]:
        """Return the names of bodies that were dropped since the last call."""
        unneeded, self._unneeded = self._unneeded, []
        return unneeded

    def holder(self, sequence: int) -> CatalogueEntry | None:
        """Return the first object with a page that ends after a sequence."""
        at = bisect_left(self._ends(), sequence + 1)
        return next((entry for entry in self.entries[at:] if entry.end > sequence), None)

    def _ends(self) -> list[int]:
        """Return for each object where the pages of it and of all objects before it end."""
        ends, latest = [], 0
        for entry in self.entries:
            latest = max(latest, entry.end)
            ends.append(latest)
        return ends

    def replace(self, old: Sequence[CatalogueEntry], merged: tuple[str, ObjectHead, int] | None) -> None:
        """Replace objects by the run they were merged into, or by nothing."""
        at = self.entries.index(old[0])
        gone = set(map(id, old))
        new = None
        if merged is not None:
            name, head, head_bytes = merged
            new = _entry_of(name, head, head_bytes, None)
            for number, offset, size in body_places(head, head_bytes):
                place = self._places.get(number)
                if place is not None and id(place[0]) in gone:  # the body may have been dropped during the merge
                    self._places[number] = (new, offset, size)
                    new.live_bytes += size
        self.entries[at : at + len(old)] = [] if new is None else [new]

    def is_needed(self, number: int, entry: CatalogueEntry) -> bool:
        """Return whether a body is needed and this object is the one that holds it."""
        place = self._places.get(number)
        return place is not None and place[0] is entry

    def hides(self, number: int, *, before: CatalogueEntry) -> bool:
        """Return whether an object before another may hold a body of this number."""
        for entry in self.entries:
            if entry is before:
                return False
            if entry.numbers is not None and entry.numbers[0] <= number <= entry.numbers[1]:
                return True
        return False

    def _forget(self, number: int) -> None:
        if (known := self._apart.pop(number, None)) is not None:
            self._unneeded.append(apart_name(number, known[1]))
        place = self._places.pop(number, None)
        if place is not None:
            place[0].live_bytes -= place[2]


def apart_name(number: int, tag: str) -> str:
    """Return the name of the object that is a body. The tag tells it from one that a failed sync has left behind."""
    return f"{APART}/{number:016d}-{tag}"


def _entry_of(name: str, head: ObjectHead, head_bytes: int, pages: list[StoredPage] | None) -> CatalogueEntry:
    numbers = [*(number for number, _ in head.bodies), *(number for number, _, _ in head.apart)]
    return CatalogueEntry(
        name=name,
        head=_without_bodies(head),
        head_bytes=head_bytes,
        page_bytes=sum(head.page_sizes()),
        body_bytes=sum(size for _, size in head.bodies),
        live_bytes=0,
        numbers=(min(numbers), max(numbers)) if numbers else None,
        pages=pages,
    )


def _without_bodies(head: ObjectHead) -> ObjectHead:
    """Return a head that takes little memory: without bodies, and with only the first and the last page."""
    pages = head.pages if len(head.pages) <= 1 else [head.pages[0], head.pages[-1]]
    return ObjectHead(
        first=head.first,
        last=head.last,
        epoch=head.epoch,
        writer=head.writer,
        is_fence=head.is_fence,
        reach=reach_of(head.extent),
        pages=pages,
        dropped=head.dropped,
    )


def fences_in(entries: Iterable[CatalogueEntry]) -> Collection[int]:
    """Return the numbers of the fences among objects."""
    return [entry.head.first for entry in entries if entry.head.is_fence]
