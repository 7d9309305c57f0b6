"""Bodies: on disk until leased, with the latest chunks kept in memory up to a limit."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from fairlane.core.ledger import Message
from fairlane.errors import StoreCorrupt
from fairlane.journal.bodies import Body, Chunk
from fairlane.ports.store import Store


class Bodies:
    """Reads the bodies of messages through a cache of whole chunks, the least recently used of which goes first.

    A chunk that has just been written is kept as bytes, and decoded when one of its messages is read.
    """

    def __init__(self, store: Store, *, cache_bytes_max: int) -> None:
        self._store = store
        self._cache_bytes_max = cache_bytes_max
        self._chunks: OrderedDict[int, Chunk | bytes] = OrderedDict()
        self._size = 0

    def keep(self, chunks: Iterable[tuple[int, bytes]]) -> None:
        """Remember chunks that have just been written, since they are likely to be read soon."""
        for number, data in chunks:
            self._chunks[number] = data
            self._size += len(data)
        if self._size > self._cache_bytes_max:
            self._shrink()

    def forget(self, numbers: Iterable[int]) -> None:
        """Forget chunks that are no longer needed."""
        for number in numbers:
            chunk = self._chunks.pop(number, None)
            if chunk is not None:
                self._size -= len(chunk)

    def clear(self) -> None:
        """Forget everything."""
        self._chunks.clear()
        self._size = 0

    def read(self, messages: Sequence[Message]) -> list[Body]:
        """Return headers, correlation id and payload of messages. Raises StoreCorrupt if a body is missing."""
        firsts = [message.chunk.number for message in messages]
        chunks = self._load(set(firsts))
        bodies = []
        for message, first in zip(messages, firsts, strict=True):
            chunk = chunks.get(first)
            if chunk is None:
                raise StoreCorrupt(f"The body of message {message.id} is missing from the store.")
            bodies.append(chunk.body(message.number - first))
        return bodies

    def states(self, messages: Sequence[Message]) -> list[bytes | None]:
        """Return the workflow state of messages, None for those without."""
        numbers = [message.after.state for message in messages if message.after is not None]
        wanted = [number for number in numbers if number is not None]
        found = dict(zip(wanted, self._store.bodies(wanted), strict=True)) if wanted else {}
        states = (message.after.state if message.after is not None else None for message in messages)
        return [None if state is None else found[state] for state in states]

    def _load(self, numbers: set[int]) -> dict[int, Chunk]:
        cached = self._chunks
        chunks: dict[int, Chunk] = {}
        missing = []
        for number in numbers:
            known = cached.get(number)
            if known is None:
                missing.append(number)
                continue
            chunk = Chunk(known) if isinstance(known, bytes) else known
            chunks[number] = cached[number] = chunk
            cached.move_to_end(number)
        if missing:
            for number, data in zip(missing, self._store.bodies(missing), strict=True):
                if data is not None:
                    chunks[number] = cached[number] = Chunk(data)
                    self._size += len(data)
            self._shrink()
        return chunks

    def _shrink(self) -> None:
        while self._size > self._cache_bytes_max and self._chunks:
            _, oldest = self._chunks.popitem(last=False)
            self._size -= len(oldest)
