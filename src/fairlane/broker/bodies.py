"""Bodies: on disk until leased, with the latest chunks kept in memory up to a limit."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final, cast

from fairlane.core.ledger import Message
from fairlane.core.states.uploads import Pieces
from fairlane.errors import StoreCorrupt
from fairlane.journal.bodies import Body, Chunk
from fairlane.model.limits import PAYLOAD_BYTES_MAX
from fairlane.ports.store import Store

_ENTRY_BYTES: Final = 200
"""What a chunk takes in the cache besides its data: its place, its number and its objects."""


class Bodies:
    """Reads the bodies of messages through a cache of whole chunks, the least recently used of which goes first.

    A chunk that has just been written is kept as bytes, and decoded when one of its messages is read.
    """

    def __init__(self, store: Store, *, cache_bytes_max: int, whole_bytes_max: int = PAYLOAD_BYTES_MAX) -> None:
        """Read from a store.

        Args:
            store: has the bodies.
            cache_bytes_max: how much memory the cache takes.
            whole_bytes_max: an uploaded payload that is larger is read in parts only.
        """
        self._store = store
        self._cache_bytes_max = cache_bytes_max
        self._whole_bytes_max = whole_bytes_max
        self._chunks: OrderedDict[int, Chunk | bytes] = OrderedDict()
        self._size = 0

    def keep(self, chunks: Iterable[tuple[int, bytes]]) -> None:
        """Remember chunks that have just been written, since they are likely to be read soon."""
        for number, data in chunks:
            self._chunks[number] = data
            self._size += len(data) + _ENTRY_BYTES
        if self._size > self._cache_bytes_max:
            self._shrink()

    def forget(self, numbers: Iterable[int]) -> None:
        """Forget chunks that are no longer needed."""
        for number in numbers:
            chunk = self._chunks.pop(number, None)
            if chunk is not None:
                self._size -= _memory_of(chunk)

    def clear(self) -> None:
        """Forget everything."""
        self._chunks.clear()
        self._size = 0

    def is_streamed(self, message: Message) -> bool:
        """Return whether the payload of a message is read in parts only."""
        return message.size > self._whole_bytes_max and message.pieces is not None

    def read(self, messages: Sequence[Message], *, with_pieces: bool = False) -> list[Body]:
        """Return headers, correlation id and payload of messages. Raises StoreCorrupt if a body is missing.

        The payload of a message is empty if it was uploaded, unless its pieces are wanted and not too large.
        """
        firsts = [message.number if (home := message.chunk).is_shared else home.number for message in messages]
        chunks = self._load(set(firsts))
        bodies = []
        for message, first in zip(messages, firsts, strict=True):
            chunk = chunks.get(first)
            if chunk is None:
                raise StoreCorrupt(f"The body of message {message.id} is missing from the store.")
            body = chunk.body(message.number - first)
            if with_pieces and message.after is not None and message.after.pieces is not None:
                body = (body[0], body[1], self._joined(message, message.after.pieces))
            bodies.append(body)
        return bodies

    def _joined(self, message: Message, pieces: Pieces) -> bytes:
        """Return an uploaded payload as a whole; no bytes if it is too large for that."""
        return b"" if self.is_streamed(message) else b"".join(self._pieces(message, list(pieces.numbers)))

    def _pieces(self, message: Message, numbers: list[int]) -> list[bytes]:
        """Return pieces, which are not cached: they are read once and in order."""
        found = self._store.bodies(numbers)
        pieces = [data for data in found if data is not None]
        if len(pieces) < len(found):
            raise StoreCorrupt(f"A piece of the payload of message {message.id} is missing from the store.")
        return pieces

    def part(self, message: Message, offset: int, count: int | None, *, piece: bytes | None = None) -> bytes:
        """Return bytes of a payload from an offset on, of an uploaded one up to the end of a piece at most.

        The piece is read from the store unless it is given. Raises StoreCorrupt if a body is missing.
        """
        pieces = message.pieces
        if pieces is None:
            ((_, _, payload),) = self.read([message])
            return payload[offset:] if count is None else payload[offset : offset + count]
        begin = offset % pieces.piece_bytes
        data = b"".join(self._pieces(message, pieces.at(offset))) if piece is None else piece
        return data if not begin and count is None else data[begin : None if count is None else begin + count]

    def states(self, messages: Sequence[Message]) -> list[bytes | None]:
        """Return the workflow state of messages, None for those without."""
        numbers = [message.after.state for message in messages if message.after is not None]
        wanted = [number for number in numbers if number is not None]
        found = dict(zip(wanted, self._store.bodies(wanted), strict=True)) if wanted else {}
        states = (message.after.state if message.after is not None else None for message in messages)
        return [None if state is None else found[state] for state in states]

    def result(self, number: int) -> bytes:
        """Return the result of a message that is done. Raises StoreCorrupt if it is missing."""
        (found,) = self._store.bodies([number])
        if found is None:
            raise StoreCorrupt(f"Result {number} is missing from the store.")
        return found

    def _load(self, numbers: set[int]) -> dict[int, Chunk]:
        cached = self._chunks
        chunks: dict[int, Chunk] = {}
        missing = []
        move_to_end = cached.move_to_end
        for number in numbers:  # with many keys a batch has bodies from nearly as many chunks
            known = cached.get(number)
            if known is None:
                missing.append(number)
                continue
            if type(known) is bytes:
                chunk = cached[number] = Chunk(known)
                self._size += chunk.memory_bytes - len(known)
                known = chunk
            chunks[number] = cast("Chunk", known)
            move_to_end(number)
        if missing:
            for number, data in zip(missing, self._store.bodies(missing), strict=True):
                if data is not None:
                    chunk = chunks[number] = cached[number] = Chunk(data)
                    self._size += chunk.memory_bytes + _ENTRY_BYTES
        if self._size > self._cache_bytes_max:
            self._shrink()
        return chunks

    def _shrink(self) -> None:
        while self._size > self._cache_bytes_max and self._chunks:
            _, oldest = self._chunks.popitem(last=False)
            self._size -= _memory_of(oldest)


def _memory_of(chunk: Chunk | bytes) -> int:
    return (chunk.memory_bytes if isinstance(chunk, Chunk) else len(chunk)) + _ENTRY_BYTES
