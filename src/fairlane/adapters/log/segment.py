"""Segments: the files of the log.

A segment is a file that was filled with zeros before its first use, so that no write to it changes the metadata of the
file system, and a sync writes nothing but the data. Once it holds nothing that is needed, its file is used again under
the next number. A file is named by its *slot*; which segment it is, its header says.
"""

from __future__ import annotations

import struct
from array import array
from typing import Final, NamedTuple

from fairlane.adapters.crc32c import crc32c

RECORDS_AT: Final = 512
"""Where the first record of a segment begins. The header has a sector of its own."""
SUFFIX: Final = ".segment"
_MAGIC: Final = b"fairlane log 1\n\0"
_HEADER: Final = struct.Struct("<16sIIQQQQ")
_CHECKED_FROM: Final = 20


class Header(NamedTuple):
    """The header of a segment.

    Attributes:
        slot: the number in the name of its file; another name means that it was copied or renamed.
        segment: its own number; each new segment has the next one.
        salt: see ``record``.
        size: of the file.
        store: a random number that all segments of a store share.
    """

    slot: int
    segment: int
    salt: int
    size: int
    store: int


def encode_header(header: Header) -> bytes:
    """Return the bytes of a header."""
    data = _HEADER.pack(_MAGIC, 0, *header)[_CHECKED_FROM:]
    return (_MAGIC + crc32c(data).to_bytes(4, "little") + data).ljust(RECORDS_AT, b"\0")


def decode_header(data: bytes) -> Header | None:
    """Return the header of a segment; None if it cannot be read."""
    if len(data) < _HEADER.size or not data.startswith(_MAGIC):
        return None
    _, check, *fields = _HEADER.unpack_from(data)
    if crc32c(data[_CHECKED_FROM : _HEADER.size]) != check:
        return None
    return Header(*fields)


def file_name(slot: int) -> str:
    """Return the name of the file in a slot."""
    return f"{slot:06}{SUFFIX}"


def slot_of(name: str) -> int | None:
    """Return the slot that a file name stands for; None if it is not the name of a segment."""
    stem = name.removesuffix(SUFFIX)
    return int(stem) if stem.isdecimal() and file_name(int(stem)) == name else None


class LogSegment:
    """A segment, and which of its bodies are alive.

    Attributes:
        end: where its last record ends.
        last_check: the checksum of that record; the next one names it.
        numbers: of its bodies, until it is full.
        payload_bytes: of all bodies and pages that were ever written to it.
        live_bytes: of the bodies that are alive, of which there are ``live_count``.
        page_bytes: of the pages that are read from here, roughly; ``runs`` is how many runs they are.
        is_pinned: whether something in it cannot be read, so that it is left as it is.
    """

    __slots__ = (
        "alive",
        "checks",
        "end",
        "is_pinned",
        "last_check",
        "lengths",
        "live_bytes",
        "live_count",
        "number",
        "numbers",
        "offsets",
        "packed",
        "page_bytes",
        "payload_bytes",
        "runs",
        "salt",
        "size",
        "slot",
    )

    def __init__(self, *, number: int, slot: int, salt: int, size: int) -> None:
        self.number, self.slot, self.salt, self.size = number, slot, salt, size
        self.end = RECORDS_AT
        self.last_check = 0
        self.numbers = array("Q")
        self.offsets, self.lengths, self.checks = array("I"), array("I"), array("I")
        self.alive = bytearray()
        self.live_bytes = self.live_count = 0
        self.page_bytes = self.runs = self.payload_bytes = 0
        self.is_pinned = False
        self.packed: bytes | None = None

    def add(self, number: int, offset: int, length: int, check: int) -> int:
        """Add a body, and return its ordinal."""
        ordinal = len(self.alive)
        self.numbers.append(number)
        self.offsets.append(offset)
        self.lengths.append(length)
        self.checks.append(check)
        self.alive.append(1)
        self.live_bytes += length
        self.payload_bytes += length
        self.live_count += 1
        self.packed = None
        return ordinal

    def kill(self, ordinal: int) -> int:
        """Mark a body as no longer needed, and return its length."""
        length = self.lengths[ordinal]
        self.alive[ordinal] = 0
        self.live_bytes -= length
        self.live_count -= 1
        self.packed = None
        return length

    @property
    def is_dead(self) -> bool:
        """Whether nothing in it is needed."""
        return not self.live_count and not self.runs

    @property
    def dead_bytes(self) -> int:
        """How much in it is no longer needed."""
        return self.payload_bytes - self.live_bytes - self.page_bytes

    def pack_alive(self) -> bytes:
        """Return which bodies are alive, a bit for each; empty if all are."""
        if self.packed is None:
            bits = int(self.alive.translate(_DIGITS)[::-1] or b"0", 2)
            is_full = self.live_count == len(self.alive)
            self.packed = b"" if is_full else bits.to_bytes((len(self.alive) + 7) // 8, "little")
        return self.packed


_DIGITS: Final = bytes([ord("0"), ord("1")]) + bytes(254)


def unpack_alive(packed: bytes, count: int) -> bytearray:
    """Return which of some bodies are alive, a byte for each."""
    if not packed:
        return bytearray(b"\1" * count)
    digits = f"{int.from_bytes(packed, 'little'):0{count}b}"[::-1].encode()
    return bytearray(digits[:count].translate(bytes.maketrans(b"01", b"\0\1")))
