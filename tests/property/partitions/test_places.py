"""Partitions of a queue: their names, which of them a key belongs to, and what an id tells."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.model.ids import MessageIds
from fairlane.model.limits import PARTITIONS_MAX
from fairlane.model.names import queue_name_fault
from fairlane.model.partitions import (
    first_number,
    partition_name,
    partition_of_id,
    partition_of_key,
    place_in,
    queue_of,
    served_name,
)

keys = st.text(min_size=1, max_size=20)
counts = st.integers(1, PARTITIONS_MAX)
places = st.integers(0, PARTITIONS_MAX - 1)
plain = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True).filter(lambda name: not name.endswith(".dlq"))
numbers = st.integers(1, (1 << 47) - 1)


@given(keys, st.lists(keys, max_size=3), counts)
def test_a_key_has_one_partition_whatever_is_below_it(top: str, below: list[str], count: int) -> None:
    """A key and all paths that begin with it are in the same partition, one of those there are."""
    at = partition_of_key(top, count)
    assert 0 <= at < count
    assert partition_of_key((top, *below), count) == at


@given(keys, st.integers(1, PARTITIONS_MAX - 1))
def test_with_one_partition_more_a_key_stays_or_goes_to_the_new_one(key: str, count: int) -> None:
    """No key goes from one old partition to another, so going back by one moves only what is in the last."""
    assert partition_of_key(key, count + 1) in (partition_of_key(key, count), count)


@pytest.mark.parametrize("count", [2, 3, 8, 64])
def test_keys_are_spread_evenly(count: int) -> None:
    """Of many keys no partition has twice its share, or less than half."""
    found = Counter(partition_of_key(f"tenant-{number}", count) for number in range(count * 200))
    assert len(found) == count
    assert 100 < min(found.values()) <= max(found.values()) < 400


@pytest.mark.parametrize(
    ("count", "expected"),
    [(1, [0, 0, 0, 0, 0]), (2, [0, 1, 1, 0, 1]), (8, [4, 1, 6, 2, 1]), (64, [26, 59, 16, 61, 46])],
)
def test_the_partition_of_a_key_never_changes(count: int, expected: list[int]) -> None:
    """These were first, on every machine and in every version, and messages are where they were put."""
    assert [partition_of_key(key, count) for key in ("acme", "globex", "initech", "käse", "default")] == expected


@pytest.mark.parametrize("unsaid", [None, "", (), ("",)])
def test_a_message_without_a_key_belongs_where_the_default_key_does(unsaid: str | tuple[str, ...] | None) -> None:
    """A broker calls it default, and whoever puts a message somewhere does so too."""
    assert partition_of_key(unsaid, 64) == 46


@given(queue=plain, at=places, is_dlq=st.booleans())
def test_names_lead_back_to_queue_and_partition(queue: str, at: int, *, is_dlq: bool) -> None:
    """A partition is named after its queue, its dead letters after the partition, and the name tells both."""
    whole = queue + ".dlq" if is_dlq else queue
    name = partition_name(whole, at)
    assert name == (f"{queue}~{at}.dlq" if is_dlq else f"{queue}~{at}")
    assert place_in(name) == (whole, at)
    assert queue_of(name) == whole


@given(queue=plain, at=places, is_dlq=st.booleans())
def test_a_broker_knows_the_first_partition_by_the_plain_name(queue: str, at: int, *, is_dlq: bool) -> None:
    """What was there before the split keeps its name; the others have names that brokers take for queues."""
    whole = queue + ".dlq" if is_dlq else queue
    served = served_name(partition_name(whole, at))
    assert served == (whole if at == 0 else partition_name(whole, at))
    assert served_name(served) == served
    assert is_dlq or queue_name_fault(served) is None


@given(plain)
def test_a_plain_name_is_the_whole_queue(queue: str) -> None:
    """It names no partition, is served as it is, and its journal counts from the beginning."""
    for name in (queue, queue + ".dlq"):
        assert place_in(name) == (name, None)
        assert queue_of(name) == served_name(name) == name
    assert first_number(queue) == 0


@pytest.mark.parametrize(
    "name", ["orders~", "orders~x", "orders~01", "orders~-1", "orders~100", "orders~1~2", "orders~1.dlqs", "~1", "o~1 "]
)
def test_what_only_looks_like_a_partition_is_none(name: str) -> None:
    """Each partition has one name; what is spelled otherwise leads to no queue but one of that very name."""
    assert place_in(name) == (name, None)
    assert queue_of(name) == served_name(name) == name


@given(plain, places, numbers)
def test_an_id_tells_its_partition(queue: str, at: int, number: int) -> None:
    """Whatever a journal that counts from where its partition does gives out leads back to the partition."""
    assert partition_of_id(MessageIds().id_of(first_number(partition_name(queue, at)) + number)) == at


@given(places, places, numbers, numbers)
def test_ids_of_different_partitions_never_meet(one: int, other: int, first: int, second: int) -> None:
    """Numbers of a later partition are above all of an earlier, and a double holds each of them exactly."""
    low, high = sorted((one, other))
    small, great = (first_number(f"q~{at}") + number for at, number in ((low, first), (high, second)))
    assert low == high or small < great
    assert int(float(great)) == great


@pytest.mark.parametrize(
    "wrong", ["", "x", "zzzzzzzzzzzzzzzz", "ffffffffffffffff", "0020000000000000", "00 0800000000001"]
)
def test_what_is_no_id_of_a_partition_leads_to_the_first(wrong: str) -> None:
    """Somebody has to answer that there is no such message, and the first partition is always there."""
    assert partition_of_id(wrong) == 0
