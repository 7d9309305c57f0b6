"""Pages are read as they were written, by this version and by later ones, or refused."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.journal import codec
from fairlane.journal.records import Acked, AnyRecord, Enqueued, Leased, QueueSet, Returned, Terms
from fairlane.model.policy import QueuePolicy
from tests.unit.journal.record_strategies import ANY_RECORDS, NUMBERS, RECORD_KINDS, records_of

PAGE = codec.encode([Leased(9, "orders", [3, 4], 30_500, "worker-1")], 500)


def written(*records: list[Any], version: int = 1) -> bytes:
    """Return a page as another version may have written it, from plain values."""
    return msgspec.msgpack.encode([version, 500, list(records)])


@pytest.mark.parametrize("kind", RECORD_KINDS)
def test_every_kind_of_record_is_read_as_it_was_written(kind: type[AnyRecord]) -> None:
    """Whatever a record's types allow comes back the same."""

    @given(records_of(kind), NUMBERS)
    def check(record: AnyRecord, at_ms: int) -> None:
        page = codec.decode(codec.encode([record], at_ms))
        assert page == codec.Page(1, at_ms, [record])
        assert type(page.records[0]) is kind

    check()


@given(st.lists(ANY_RECORDS, max_size=5))
def test_the_records_of_a_page_keep_their_order(records: list[AnyRecord]) -> None:
    """A page of many kinds comes back in the order it was written in."""
    assert codec.decode(codec.encode(records, 500)).records == records


def test_a_page_is_an_array_of_version_instant_and_records() -> None:
    """What is on the disk is exactly this, so that other versions and languages can read it."""
    leased = ["leased", 9, "orders", [3, 4], 30_500, "worker-1", None, None, None]
    assert msgspec.msgpack.decode(PAGE) == [1, 500, [leased]]


def test_a_fairness_path_is_read_as_a_tuple() -> None:
    """A path must be fit to be the key of a table after recovery, as it was before."""
    record = Enqueued(1, "q", [0, 0], [0], Terms([("acme", "mobile"), "solo"]))
    read = codec.decode(codec.encode([record], 0)).records[0]
    assert isinstance(read, Enqueued)
    assert read.terms.keys == [("acme", "mobile"), "solo"]


def test_records_without_later_fields_get_their_defaults() -> None:
    """Arrays that are shorter, because an older version wrote them, are read with defaults at their end."""
    page = codec.decode(
        written(
            ["enqueued", 1, "q", [7], [0], [["a"]]],
            ["leased", 2, "q", [1], 900],
            ["returned", 3, "q", [1], "failure"],
            ["acked", 4, "q", [1]],
        )
    )
    assert page.records == [
        Enqueued(1, "q", [7], [0], Terms(["a"], None, None, None, None, None, None, None), None, 0, None, None),
        Leased(2, "q", [1], 900, None),
        Returned(3, "q", [1], "failure", None, None),
        Acked(4, "q", [1], None),
    ]


def test_a_policy_without_later_fields_gets_their_defaults() -> None:
    """A policy is written by name, so one from before a field was there has that field's default."""
    page = codec.decode(written(["queue_set", 1, "q", {"max_attempts": 3}]))
    assert page.records == [QueueSet(1, "q", QueuePolicy(max_attempts=3), None)]


def test_fields_that_are_not_known_are_passed_over_at_the_end() -> None:
    """A record of this version with more at its end is read without it."""
    page = codec.decode(written(["acked", 4, "q", [1], None, False, None, "more", {"and": "more"}]))
    assert page.records == [Acked(4, "q", [1], None)]


def test_a_newer_version_is_refused() -> None:
    """A page of version 2 may mean what version 1 can't know, so it is not read at all."""
    with pytest.raises(ValueError, match="version 2"):
        codec.decode(written(["acked", 4, "q", [1]], version=2))


def test_a_kind_that_is_not_known_is_refused() -> None:
    """A record that can't be understood can't be skipped: the ledger would be wrong ever after."""
    with pytest.raises(ValueError, match="Could not decode"):
        codec.decode(written(["teleported", 4, "q", [1]]))


@pytest.mark.parametrize("length", range(len(PAGE)))
def test_a_page_that_is_cut_off_is_refused(length: int) -> None:
    """No beginning of a page passes for a page."""
    with pytest.raises(ValueError, match="Could not decode"):
        codec.decode(PAGE[:length])


def test_a_page_with_something_behind_it_is_refused() -> None:
    """A page ends where its bytes end."""
    with pytest.raises(ValueError, match="Could not decode"):
        codec.decode(PAGE + b"\x00")


@given(st.integers(0, len(PAGE) - 1), st.integers(0, 255))
def test_a_changed_byte_gives_a_page_or_a_refusal(at: int, byte: int) -> None:
    """Damage never comes up as anything but the documented error."""
    with suppress(ValueError):
        assert isinstance(codec.decode(PAGE[:at] + bytes([byte]) + PAGE[at + 1 :]), codec.Page)
