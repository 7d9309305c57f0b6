"""Bodies are read through a cache of bounded size."""

from __future__ import annotations

import tracemalloc

import pytest

from fairlane.adapters.memory.store import MemoryStore
from fairlane.broker.bodies import Bodies
from fairlane.core.ledger import Message, Queue
from fairlane.core.rows.chunks import ChunkHome
from fairlane.errors import StoreCorrupt
from fairlane.journal.bodies import encode_head, pack
from fairlane.model.policy import QueuePolicy
from fairlane.ports.store import Commit
from fairlane.scheduler.item import Priority


class CountingStore(MemoryStore):
    """Counts the bodies that are really read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[int] = []

    def bodies(self, numbers: object) -> list[bytes | None]:
        self.reads.extend(numbers)  # type: ignore[arg-type] # a sequence of numbers
        return super().bodies(numbers)  # type: ignore[arg-type] # see above


def store_with(chunks: dict[int, bytes]) -> CountingStore:
    store = CountingStore()
    store.recover()
    store.write(Commit(sequence=1, next_sequence=100, page=b"page", bodies=list(chunks.items()), base=1))
    return store


def message(number: int, chunk: int) -> Message:
    queue = Queue("q", QueuePolicy(), 0)
    return Message(number, queue, ChunkHome("q", chunk, chunk, 2), 1, 0, ("k", 1, 1, Priority.NORMAL, (), None, None))


CHUNK = pack([encode_head({"a": "b"}, "c-1"), b""], [b"first", b"second"])


def test_a_chunk_is_read_once_for_all_its_messages() -> None:
    """Messages of one chunk share one read, and a second look needs none."""
    store = store_with({10: CHUNK})
    bodies = Bodies(store, cache_bytes_max=1_000)
    read = bodies.read([message(10, 10), message(11, 10)])
    assert read == [({"a": "b"}, "c-1", b"first"), ({}, None, b"second")]
    bodies.read([message(11, 10)])
    assert store.reads == [10]


def test_what_was_just_written_is_not_read_again() -> None:
    """A new chunk is served from memory."""
    store = store_with({10: CHUNK})
    bodies = Bodies(store, cache_bytes_max=1_000)
    bodies.keep([(10, CHUNK)])
    assert bodies.read([message(11, 10)]) == [({}, None, b"second")]
    assert store.reads == []


def test_the_cache_forgets_what_was_used_longest_ago() -> None:
    """Beyond its limit the cache lets go of the chunk that nobody has asked for the longest."""
    store = store_with({10: CHUNK, 20: CHUNK, 30: CHUNK})
    bodies = Bodies(store, cache_bytes_max=1_500)
    for chunk in (10, 20, 10, 30, 10, 20):
        bodies.read([message(chunk, chunk)])
    assert store.reads == [10, 20, 30, 20]


def test_the_cache_counts_what_it_takes_besides_the_bodies() -> None:
    """Many tiny chunks, written or read, take no more memory than the limit of the cache."""
    store = store_with(dict.fromkeys(range(1, 2000), CHUNK))
    messages = [message(number, number) for number in range(1, 2_000)]
    bodies = Bodies(store, cache_bytes_max=100_000)
    tracemalloc.start()
    try:
        for number in range(1_000_000, 1_020_000):
            bodies.keep([(number, bytes(bytearray(CHUNK)))])
        for each in messages:
            bodies.read([each])
        store.reads.clear()
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept < 150_000


def test_a_body_that_is_missing_is_an_error() -> None:
    """A store that has lost a body says so, rather than deliver nothing."""
    with pytest.raises(StoreCorrupt, match="missing"):
        Bodies(store_with({}), cache_bytes_max=1_000).read([message(10, 10)])
