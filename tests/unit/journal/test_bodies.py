"""Bodies come out of a chunk as they went in, and chunks keep to their limits."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.journal.bodies import (
    CHUNK_BYTES_MAX,
    CHUNK_COUNT_MAX,
    Chunk,
    chunk_starts,
    encode_head,
    pack,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
HEADERS = st.dictionaries(TEXTS, TEXTS, max_size=3)
BODIES = st.lists(st.tuples(HEADERS, st.none() | TEXTS, st.binary(max_size=400)), max_size=20)


@given(BODIES)
def test_every_body_of_a_chunk_is_read_as_it_was_packed(bodies: list[tuple[dict[str, str], str | None, bytes]]) -> None:
    """Heads and payloads of any length, none included, are told apart, and headers and correlation ids come back."""
    heads = [encode_head(headers, correlation_id) for headers, correlation_id, _ in bodies]
    chunk = Chunk(pack(heads, [payload for _, _, payload in bodies]))
    assert [chunk.body(at) for at in range(len(bodies))] == bodies


def test_a_chunk_is_a_table_of_lengths_and_then_the_bodies() -> None:
    """What is on the disk is exactly this: count, lengths of heads, lengths of payloads, then each head and payload."""
    expected = struct.pack("<5I", 2, 1, 0, 3, 2) + b"h" + b"abc" + b"" + b"de"
    assert pack([b"h", b""], [b"abc", b"de"]) == expected


def test_a_head_with_nothing_in_it_takes_no_bytes() -> None:
    """Most messages have no headers, and pay nothing for it."""
    assert encode_head({}, None) == b""


@pytest.mark.parametrize(
    ("sizes", "starts"),
    [
        ([5], [0]),
        ([CHUNK_BYTES_MAX - 1, 1], [0]),
        ([CHUNK_BYTES_MAX - 1, 2], [0, 1]),
        ([10, CHUNK_BYTES_MAX + 1, 10], [0, 1, 2]),
        ([CHUNK_BYTES_MAX * 9], [0]),
        ([1] * 256, [0]),
        ([1] * 257, [0, 256]),
        ([1] * 600, [0, 256, 512]),
    ],
    ids=["one", "exactly full", "one byte too many", "too large in between", "too large alone", "256", "257", "600"],
)
def test_a_chunk_ends_before_the_body_that_would_break_a_limit(sizes: list[int], starts: list[int]) -> None:
    """A chunk holds at most 32 KiB and 256 bodies; only a body that is larger alone goes beyond."""
    assert chunk_starts(sizes) == starts


@given(st.lists(st.integers(1, CHUNK_BYTES_MAX * 2), min_size=1, max_size=600))
def test_chunks_cover_all_bodies_within_their_limits(sizes: list[int]) -> None:
    """Every chunk has a body, is no larger than allowed, and could not have taken the next body as well."""
    starts = chunk_starts(sizes)
    assert starts[0] == 0
    assert starts == sorted(set(starts))
    for start, end in zip(starts, [*starts[1:], len(sizes)], strict=True):
        assert start < end
        assert end - start <= CHUNK_COUNT_MAX
        assert end - start == 1 or sum(sizes[start:end]) <= CHUNK_BYTES_MAX
        if end < len(sizes):
            assert end - start == CHUNK_COUNT_MAX or sum(sizes[start : end + 1]) > CHUNK_BYTES_MAX


def test_bodies_without_bytes_are_counted_too() -> None:
    """No chunk has more than 256 bodies, since that is as far as a carry looks for the messages of one."""
    assert chunk_starts([0] * 600) == [0, 256, 512]
