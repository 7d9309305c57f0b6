"""What is in an object: pages, bodies, and a head that tells where they are.

An object is a *segment*, which is one commit, or a *run*, which stands for the segments it was merged from. After a
mark and the length of the head come the head, the pages and the bodies, so that recovery reads heads and pages only,
and a body is read without the rest.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

import msgspec

from fairlane.errors import StoreCorrupt
from fairlane.ports.store import Extent, StoredPage

FORMAT = 1
_MARK = b"FLS1"
_PREFIX = struct.Struct(">4sI")
PREFIX_BYTES = _PREFIX.size


class ObjectHead(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """What an object holds, and where.

    Attributes:
        first: the number of the first segment that it stands for.
        last: the number of the last.
        epoch: the epoch of the owner who wrote it.
        writer: whoever wrote it, by a name that was never used before.
        is_fence: whether it only marks where an owner has begun.
        reach: how far the store reaches with it: first sequence, base, next sequence.
        pages: of each page where it begins, where it ends, and its bytes.
        bodies: of each body its number and its bytes.
        dropped: the bodies of earlier objects that are no longer needed.
    """

    format: int = FORMAT
    first: int
    last: int
    epoch: int
    writer: str
    is_fence: bool = False
    reach: tuple[int, int, int]
    pages: list[tuple[int, int, int]] = []
    bodies: list[tuple[int, int]] = []
    dropped: list[int] = []

    @property
    def extent(self) -> Extent:
        """How far the store reaches with it."""
        first, base, next_sequence = self.reach
        return Extent(first=first, base=base, next_sequence=next_sequence)

    def page_sizes(self) -> list[int]:
        """Return the bytes of each page."""
        return [size for _, _, size in self.pages]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(ObjectHead)


def reach_of(extent: Extent) -> tuple[int, int, int]:
    """Return an extent as heads have it."""
    return extent.first, extent.base, extent.next_sequence


def encode(head: ObjectHead, pages: Sequence[StoredPage], bodies: Mapping[int, bytes]) -> tuple[bytes, ObjectHead, int]:
    """Return an object, its head with these pages and bodies, and how many bytes come before the pages."""
    head = msgspec.structs.replace(
        head,
        pages=[(page.sequence, page.next_sequence, len(page.page)) for page in pages],
        bodies=[(number, len(body)) for number, body in bodies.items()],
    )
    packed = _encoder.encode(head)
    parts = [_PREFIX.pack(_MARK, len(packed)), packed, *(page.page for page in pages), *bodies.values()]
    return b"".join(parts), head, PREFIX_BYTES + len(packed)


def decode_head(data: bytes, name: str) -> tuple[ObjectHead, int]:
    """Return the head of an object from its first bytes, and how many bytes come before its pages.

    Raises:
        StoreCorrupt: it can't be read.
    """
    try:
        mark, size = _PREFIX.unpack_from(data)
        if mark != _MARK:
            raise StoreCorrupt(f"The object {name} is none of a store, or of another format.")
        head = _decoder.decode(data[PREFIX_BYTES : PREFIX_BYTES + size])
    except (struct.error, msgspec.DecodeError) as error:
        raise StoreCorrupt(f"The object {name} can't be read: {error}.") from error
    if head.format != FORMAT:
        raise StoreCorrupt(f"The object {name} has format {head.format}; this version of Fairlane knows {FORMAT}.")
    return head, PREFIX_BYTES + size


def pages_in(head: ObjectHead, data: bytes, start: int) -> Iterator[StoredPage]:
    """Yield the pages of an object, from bytes that have them from ``start`` on."""
    for sequence, next_sequence, size in head.pages:
        yield StoredPage(sequence, next_sequence, data[start : start + size])
        start += size


def body_places(head: ObjectHead, start: int) -> Iterator[tuple[int, int, int]]:
    """Yield of each body its number, where it begins in the object, and its bytes; pages begin at ``start``."""
    start += sum(head.page_sizes())
    offsets = accumulate((size for _, size in head.bodies), initial=start)
    for (number, size), offset in zip(head.bodies, offsets, strict=False):
        yield number, offset, size
