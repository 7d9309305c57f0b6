"""Parts of a queue: every key has one, few keys move when there are more, and all parts have their turns."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.cluster.partitions import PARTITIONS_MAX, asking_order, partition_names, partition_of, queue_of
from fairlead.errors import InvalidArgument

keys = st.text(min_size=1, max_size=20)
counts = st.integers(1, PARTITIONS_MAX)


@given(keys, st.lists(keys, max_size=3), counts)
def test_a_key_has_one_part_whatever_is_below_it(top: str, below: list[str], count: int) -> None:
    """A key and all paths that begin with it are in the same part, one of those there are."""
    part = partition_of(top, count)
    assert 0 <= part < count
    assert partition_of((top, *below), count) == part


@given(keys, st.integers(1, PARTITIONS_MAX - 1))
def test_with_one_part_more_a_key_stays_or_goes_to_the_new_one(key: str, count: int) -> None:
    """No key goes from one old part to another."""
    assert partition_of(key, count + 1) in (partition_of(key, count), count)


@pytest.mark.parametrize("count", [2, 3, 8, 64])
def test_keys_are_spread_evenly(count: int) -> None:
    """Of many keys no part has twice its share, or less than half."""
    found = Counter(partition_of(f"tenant-{number}", count) for number in range(count * 200))
    assert len(found) == count
    assert 100 < min(found.values()) <= max(found.values()) < 400


def test_the_part_of_a_key_never_changes() -> None:
    """So these were first, and messages are where they were put."""
    assert [partition_of(key, 8) for key in ("acme", "globex", "initech", "käse", None)] == [4, 1, 6, 2, 0]


@given(st.sampled_from(("orders", "a.b-c_d")), counts)
def test_parts_are_named_after_their_queue(queue: str, count: int) -> None:
    """The first has the name of the queue; all names differ, and lead back to the queue."""
    names = partition_names(queue, count)
    assert names[0] == queue
    assert len(set(names)) == len(names) == count
    assert {queue_of(name) for name in names} == {queue}
    assert names[1:2] in ([], [f"{queue}#1"])


@pytest.mark.parametrize(("queue", "count"), [("orders", 0), ("orders", PARTITIONS_MAX + 1), ("orders#2", 2)])
def test_what_can_have_no_parts_is_refused(queue: str, count: int) -> None:
    """There are limits, and parts have no parts."""
    with pytest.raises(InvalidArgument, match="partition"):
        partition_names(queue, count)


@given(counts, st.integers(0, 1000), st.sets(st.integers(0, PARTITIONS_MAX)))
def test_all_parts_are_asked_and_take_turns_in_being_first(count: int, turn: int, empty: set[int]) -> None:
    """Each asking is of all parts; in as many askings as there are parts each is first once; empty ones come last."""
    names = partition_names("q", count)
    orders = [asking_order(names, turn=turn + at) for at in range(count)]
    assert all(sorted(order) == sorted(names) for order in orders)
    assert {order[0] for order in orders} == set(names)
    waiting = {name: 0 if at in empty else 5 for at, name in enumerate(names)}
    told = asking_order(names, turn=turn, waiting=waiting)
    assert sorted(told) == sorted(names)
    assert [waiting[name] > 0 for name in told] == sorted((waiting[name] > 0 for name in names), reverse=True)


def test_nothing_is_asked_in_no_order() -> None:
    """A queue without parts is not asked."""
    assert asking_order([], turn=3) == []
