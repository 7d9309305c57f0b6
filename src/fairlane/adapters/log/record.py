"""Records: what a segment of the log consists of, and how it is known that one is whole.

```
head       fixed fields, then three tables: bodies, dropped numbers, carried pages
page       the page of the commit, or a checkpoint
carried    pages that compaction moved here from an older segment
bodies     new ones, or ones that compaction moved here
padding    to a multiple of eight
```

A record is a commit, a checkpoint, or what compaction moved. Its head has a checksum of its own, and names the checksum
of every part that follows. So the chain of heads can be trusted even where a payload is damaged, and each payload can
be checked when it is read alone.

Three fields tell a torn end from damage, and what is left of an earlier use of the file from what is new:

- ``salt``: a random number of this use of the file. Payloads cannot forge it: it is never shown to anyone.
- ``previous``: the checksum of the record before. A record follows another one only if it was written after that one.
- ``synced``, ``answered``: up to where this segment was durable, or only answered, when the record was written. So a
  record testifies that everything before that offset was whole.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import chain
from typing import Final, NamedTuple

from fairlane.adapters.crc32c import crc32c

ALIGNMENT: Final = 8
MAGIC: Final = b"\xf1Rec"
COMMIT: Final = 1
CHECKPOINT: Final = 2
MOVED: Final = 3
_CHECKED_FROM: Final = 8
_HEAD: Final = struct.Struct("<4sIQQIIIIQQQQIIIIII")
HEAD_BYTES: Final = _HEAD.size
_COUNTS: Final = struct.Struct("<III")
_START: Final = struct.Struct("<4sI")
_PLACE: Final = struct.Struct("<QQ")
_BODY: Final = struct.Struct("<QII")
_PAGE: Final = struct.Struct("<QQII")
_PADDING: Final = [bytes(count) for count in range(ALIGNMENT)]


BodyEntry = tuple[int, int, int]
"""A body in the table of a record: its number, its length, its checksum."""
PageEntry = tuple[int, int, int, int]
"""A carried page in the table of a record: its sequence, the next sequence, its length, its checksum."""


class Stamp(NamedTuple):
    """What a record says of its place in the log; see the module."""

    segment: int
    salt: int
    previous: int
    synced: int
    answered: int


class RecordHead(NamedTuple):
    """The head of a record.

    Attributes:
        check: its own checksum, which covers those of all parts.
        length: of the whole record.
        first: the first sequence of the store that is kept, after this commit.
    """

    check: int
    stamp: Stamp
    length: int
    sequence: int
    next_sequence: int
    base: int
    first: int
    page_length: int
    page_check: int
    kind: int
    bodies: Sequence[BodyEntry]
    dropped: Sequence[int]
    carried: Sequence[PageEntry]

    @property
    def has_page(self) -> bool:
        """Return whether the page of the commit was kept: it holds records, and its own commit did not trim it."""
        return self.kind == COMMIT and self.next_sequence > self.sequence >= self.first

    @property
    def head_length(self) -> int:
        """Return the length of the head with its tables."""
        tables = _BODY.size * len(self.bodies) + 8 * len(self.dropped) + _PAGE.size * len(self.carried)
        return HEAD_BYTES + tables

    @property
    def carried_at(self) -> int:
        """Return where the carried pages begin, from the beginning of the record."""
        return self.head_length + self.page_length

    @property
    def bodies_at(self) -> int:
        """Return where the bodies begin, from the beginning of the record."""
        if self.carried:
            return self.carried_at + sum([entry[2] for entry in self.carried])
        return HEAD_BYTES + _BODY.size * len(self.bodies) + 8 * len(self.dropped) + self.page_length


class Content(NamedTuple):
    """What a record is to hold."""

    kind: int
    sequence: int
    next_sequence: int
    base: int
    first: int
    page: bytes
    bodies: Sequence[tuple[int, bytes]] = ()
    dropped: Sequence[int] = ()
    carried: Sequence[tuple[int, int, bytes]] = ()


def length_of(content: Content) -> int:
    """Return the length that the record of a content will have."""
    length = HEAD_BYTES + 8 * len(content.dropped) + len(content.page)
    for _, body in content.bodies:
        length += _BODY.size + len(body)
    for _, _, page in content.carried:
        length += _PAGE.size + len(page)
    return length + -length % ALIGNMENT


def encode(content: Content, stamp: Stamp, length: int) -> tuple[RecordHead, list[bytes]]:
    """Return the head and the bytes of a record, in parts, given its length."""
    kind, sequence, next_sequence, base, first, page, new, dropped, moved = content
    bodies = [(number, len(body), crc32c(body)) for number, body in new]
    carried = [(begin, end, len(data), crc32c(data)) for begin, end, data in moved] if moved else ()
    page_length, page_check = len(page), crc32c(page)
    sizes = (page_length, page_check, len(bodies), len(dropped), len(carried), kind)
    packed = _HEAD.pack(MAGIC, 0, *stamp, length, sequence, next_sequence, base, first, *sizes)
    rest = packed[_CHECKED_FROM:] + _tables(bodies, dropped, carried)
    check = crc32c(rest)
    parts = [_START.pack(MAGIC, check) + rest, page]
    if carried:
        parts += [data for _, _, data in moved]
    parts += [body for _, body in new]
    if odd := (len(rest) + page_length + sum(map(len, parts[2:]))) % ALIGNMENT:
        parts.append(_PADDING[ALIGNMENT - odd])
    fields = (length, sequence, next_sequence, base, first, page_length, page_check, kind)
    return RecordHead(check, stamp, *fields, bodies, dropped, carried), parts


def _tables(bodies: Sequence[BodyEntry], dropped: Sequence[int], carried: Sequence[PageEntry]) -> bytes:
    tables = b"".join([_BODY.pack(*entry) for entry in bodies]) if bodies else b""
    if dropped:
        tables += struct.pack(f"<{len(dropped)}Q", *dropped)
    if carried:
        tables += b"".join([_PAGE.pack(*entry) for entry in carried])
    return tables


def place_of(data: bytes, at: int) -> tuple[int, int]:
    """Return the number and the salt of the segment that the head at an offset claims to belong to."""
    segment, salt = _PLACE.unpack_from(data, at + _CHECKED_FROM)
    return segment, salt


def head_length_at(data: bytes, at: int) -> int:
    """Return how long the head at an offset claims to be, with its tables; 0 if there is none."""
    if not data.startswith(MAGIC, at) or len(data) - at < HEAD_BYTES:
        return 0
    bodies, dropped, carried = _COUNTS.unpack_from(data, at + HEAD_BYTES - _COUNTS.size - 4)
    return int(HEAD_BYTES + _BODY.size * bodies + 8 * dropped + _PAGE.size * carried)


def decode_head(data: bytes, at: int) -> RecordHead | None:
    """Return the head at an offset of some bytes; None if there is none with the right checksum."""
    if not data.startswith(MAGIC, at) or len(data) - at < HEAD_BYTES:
        return None
    fields = _HEAD.unpack_from(data, at)
    bodies, dropped, carried, kind = fields[-4:]
    tables_at = at + HEAD_BYTES
    dropped_at = tables_at + _BODY.size * bodies
    carried_at = dropped_at + 8 * dropped
    end = carried_at + _PAGE.size * carried
    check = fields[1]
    if end > len(data) or crc32c(data[at + _CHECKED_FROM : end]) != check:
        return None
    tables = (
        list(_BODY.iter_unpack(data[tables_at:dropped_at])) if bodies else (),
        struct.unpack_from(f"<{dropped}Q", data, dropped_at) if dropped else (),
        list(_PAGE.iter_unpack(data[carried_at:end])) if carried else (),
    )
    return RecordHead._make((check, Stamp._make(fields[2:7]), *fields[7:14], kind, *tables))


class PageSpan(NamedTuple):
    """What compaction needs of a record: where its page is, and how many bodies it has."""

    length: int
    head_length: int
    sequence: int
    next_sequence: int
    has_page: bool
    page_length: int
    page_check: int
    bodies: int
    carried: int


def page_span(data: bytes, at: int, segment: int, salt: int) -> PageSpan | None:
    """Return the span of the record of a segment at an offset, faster than all of it; None if it can't be read."""
    if len(data) - at < HEAD_BYTES or not data.startswith(MAGIC, at):
        return None
    _, check, number, salted, _, _, _, length, begin, end, _, first, *sizes = _HEAD.unpack_from(data, at)
    page_length, page_check, bodies, dropped, carried, kind = sizes
    head_length = HEAD_BYTES + _BODY.size * bodies + 8 * dropped + _PAGE.size * carried
    whole = data[at + _CHECKED_FROM : at + head_length]
    if number != segment or salted != salt or len(whole) < head_length - _CHECKED_FROM or crc32c(whole) != check:
        return None
    has_page = kind == COMMIT and end > begin >= first
    return PageSpan(length, head_length, begin, end, has_page, page_length, page_check, bodies, carried)


def damaged_parts(head: RecordHead, record: bytes) -> int:
    """Return how many parts of a whole record do not have the checksum that its head names.

    Args:
        head: the head of the record.
        record: its bytes; fewer than its length if the file ends before.
    """
    if len(record) < head.length:
        return 1
    at = head.head_length
    pairs = chain(
        ((head.page_length, head.page_check),),
        ((length, check) for _, _, length, check in head.carried),
        ((length, check) for _, length, check in head.bodies),
    )
    damaged = 0
    for length, check in pairs:
        damaged += crc32c(record[at : at + length]) != check
        at += length
    return damaged
