"""Uploads: payloads that arrive in pieces, as the ledger has them.

Theory of operation
-------------------
A payload that is too large for one commit is uploaded before its message is enqueued. Each piece is a body of its own
in the store, added by a commit of its own, so a commit never holds more than a few of them. An *upload* is what the
ledger knows of the pieces that no message has taken yet. An enqueue that names an upload takes it over as a whole, in
one commit: from then on the pieces belong to the message, and go where it goes. An upload that gets no new piece is
dropped after a silence, also when the broker was restarted meanwhile.

All pieces of an upload have the same size, apart from the last. So the piece that holds a byte follows from its offset,
pieces may arrive in any order, and a piece that is sent again changes nothing.

Pieces that are no longer needed are not deleted at once: to delete a gigabyte in one commit would delay everyone else.
They are *discarded*, in order, and each cycle deletes some of them. A record says which, so recovery knows which are
left. Recovery learns of discarded pieces from the record that discarded them and the message it is about. So the base
can't move past the description of a message while its pieces are being deleted: they have a home, as messages do.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from fairlane.journal.records import PiecesImage, UploadImage


@dataclass(frozen=True, slots=True)
class Pieces:
    """The pieces of a streamed payload.

    Attributes:
        piece_bytes: the size of each, apart from the last.
        numbers: the number of the body of each, in order.
    """

    piece_bytes: int
    numbers: array[int]

    def image(self) -> PiecesImage:
        """Return it as a record holds it."""
        return PiecesImage(self.piece_bytes, self.numbers.tolist())

    def at(self, offset: int, *, count: int = 1) -> list[int]:
        """Return the number of the piece that has the byte at an offset, and of those after it; none after the end."""
        index = offset // self.piece_bytes
        return list(self.numbers[index : index + count])


@dataclass(slots=True, eq=False)
class Upload:
    """A payload that is being uploaded.

    Attributes:
        number: its number, the sequence with which it began.
        caller: the name of the API key that began it, empty for none. Only this caller may use it.
        numbers: the number of the body of each piece, 0 for one that has not arrived.
        size: the bytes that have arrived.
        short_at: the index of the piece that is shorter than the others, which is the last.
        expected: the size of the payload, if the caller has said so.
        heard_ms: when the journal last spoke of it.
    """

    number: int
    caller: str
    piece_bytes: int
    heard_ms: int
    size: int = 0
    short_at: int | None = None
    numbers: array[int] = field(default_factory=lambda: array("Q"))
    expected: int | None = None

    def add(self, index: int, number: int, size: int) -> None:
        """Add a piece that has arrived."""
        missing = index + 1 - len(self.numbers)
        if missing > 0:
            self.numbers.extend([0] * missing)
        self.numbers[index] = number
        self.size += size
        if size < self.piece_bytes:
            self.short_at = index

    def has(self, index: int) -> bool:
        """Return whether a piece has arrived."""
        return index < len(self.numbers) and self.numbers[index] != 0

    def fault(self, index: int, size: int) -> str | None:
        """Return why a piece does not fit to those that have arrived, or None if it does."""
        if not 0 < size <= self.piece_bytes:
            return f"A piece of this upload must have 1 to {self.piece_bytes} bytes, not {size}."
        last = len(self.numbers) - 1
        if size < self.piece_bytes and (index < last or self.short_at not in (None, index)):
            return f"Piece {index} has {size} bytes and is not the last; all others have {self.piece_bytes}."
        if self.short_at is not None and index > self.short_at:
            return f"Piece {self.short_at} is shorter than {self.piece_bytes} bytes, so piece {index} can't follow."
        return None

    def lack(self) -> str | None:
        """Return what has not arrived yet, or None if the upload is complete as far as the broker knows."""
        if 0 in self.numbers:
            return f"Piece {self.numbers.index(0)} has not arrived."
        if self.expected is not None and self.size != self.expected:
            return f"It has {self.size} bytes of {self.expected}."
        return None

    def stored(self) -> Iterable[int]:
        """Return the numbers of the bodies that have arrived."""
        return filter(None, self.numbers)

    def image(self) -> UploadImage:
        """Return everything that is known of it, for a baseline."""
        known = (self.number, self.caller, self.piece_bytes, self.heard_ms, self.size, self.short_at)
        return UploadImage(*known, self.numbers.tolist(), self.expected)

    @classmethod
    def of(cls, image: UploadImage) -> Upload:
        """Restore an upload from a baseline."""
        known = (image.number, image.caller, image.piece_bytes, image.heard_ms, image.size, image.short_at)
        return cls(*known, array("Q", image.numbers), image.expected)


class Discards:
    """Pieces that are no longer needed, in the order in which they are deleted.

    Attributes:
        entries: the pieces of each message or upload, with the home of it. Most of the time there are none.
    """

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: deque[tuple[int, deque[int]]] = deque()

    def __iter__(self) -> Iterator[int]:
        return (number for _, numbers in self.entries for number in numbers)

    def add(self, home: int, numbers: Iterable[int]) -> None:
        """Add pieces; ``home`` is the sequence from which on the journal says which they are."""
        if found := deque(numbers):
            self.entries.append((home, found))

    def remove(self, numbers: Iterable[int]) -> None:
        """Remove pieces that are being deleted. Those of messages that recovery has not seen are not here."""
        gone = set(numbers)
        entries = self.entries
        while entries and (first := entries[0][1])[0] in gone:
            first.popleft()
            if not first:
                entries.popleft()

    def move(self, home: int) -> None:
        """Give all of them a later home, which names them all."""
        everything = list(self)
        self.entries.clear()
        self.add(home, everything)

    def oldest_home(self, otherwise: int) -> int:
        """Return the oldest home."""
        return min((home for home, _ in self.entries), default=otherwise)
