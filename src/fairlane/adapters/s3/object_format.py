"""The format of an object: a head, then pages, then bodies.

An object is a *segment*, which holds one sync, or a *run*, which replaces the segments it was merged from. It begins
with a mark and the length of the head. The head says where pages and bodies are, so recovery reads only heads and
pages, and a body is read without the rest.

Large bodies, such as the pieces of an uploaded payload, are objects of their own *apart* from the segment, which only
names them. So neither recovery nor a merge ever reads or copies them, and a payload of any size takes no more memory
than a few of its pieces. A multipart upload would also bound memory, but its object can't be read before it is
complete, and which part arrived would have to be recorded besides the journal.
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
    """The head of an object: what it holds, and where.

    Attributes:
        first: the number of the first segment that it holds or replaces.
        last: the number of the last one.
        epoch: the epoch of the owner that wrote it.
        writer: the random name of the opening that wrote it.
        is_fence: whether it only marks where an owner has begun.
        reach: the extent of the store with it: first sequence, base, next sequence.
        pages: the first sequence, next sequence and size of each page.
        bodies: the number and size of each body.
        dropped: the numbers of bodies in earlier objects that are no longer needed.
        apart: the number and size of each body that is an object of its own, and the end of its name.
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
    apart: list[tuple[int, int, str]] = []

    @property
    def extent(self) -> Extent:
        """The extent of the store with it."""
        first, base, next_sequence = self.reach
        return Extent(first=first, base=base, next_sequence=next_sequence)

    def page_sizes(self) -> list[int]:
        """Return the size of each page."""
        return [size for _, _, size in self.pages]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(ObjectHead)


def reach_of(extent: Extent) -> tuple[int, int, int]:
    """Return an extent in the form that heads store."""
    return extent.first, extent.base, extent.next_sequence


def encode(head: ObjectHead, pages: Sequence[StoredPage], bodies: Mapping[int, bytes]) -> tuple[bytes, ObjectHead, int]:
    """Return an encoded object, its head with these pages and bodies, and the number of bytes before the pages."""
    head = msgspec.structs.replace(
        head,
        pages=[(page.sequence, page.next_sequence, len(page.page)) for page in pages],
        bodies=[(number, len(body)) for number, body in bodies.items()],
    )
    packed = _encoder.encode(head)
    parts = [_PREFIX.pack(_MARK, len(packed)), packed, *(page.page for page in pages), *bodies.values()]
    return b"".join(parts), head, PREFIX_BYTES + len(packed)


def decode_head(data: bytes, name: str) -> tuple[ObjectHead, int]:
    """Return the head of an object from its first bytes, and the number of bytes before its pages.

    Raises:
        StoreCorrupt: it cannot be decoded.
    """
    try:
        mark, size = _PREFIX.unpack_from(data)
        if mark != _MARK:
            raise StoreCorrupt(f"The object {name} does not belong to a store, or has an unknown format.")
        head = _decoder.decode(data[PREFIX_BYTES : PREFIX_BYTES + size])
    except (struct.error, msgspec.DecodeError) as error:
        raise StoreCorrupt(f"The object {name} cannot be decoded: {error}.") from error
    if head.format != FORMAT:
        raise StoreCorrupt(f"The object {name} has format {head.format}; this version of Fairlane supports {FORMAT}.")
    return head, PREFIX_BYTES + size


def pages_in(head: ObjectHead, data: bytes, start: int) -> Iterator[StoredPage]:
    """Yield the pages of an object, which begin at ``start`` in ``data``."""
    for sequence, next_sequence, size in head.pages:
        yield StoredPage(sequence, next_sequence, data[start : start + size])
        start += size


def body_places(head: ObjectHead, start: int) -> Iterator[tuple[int, int, int]]:
    """Yield the number, offset and size of each body; pages begin at ``start``."""
    start += sum(head.page_sizes())
    offsets = accumulate((size for _, size in head.bodies), initial=start)
    for (number, size), offset in zip(head.bodies, offsets, strict=False):
        yield number, offset, size
