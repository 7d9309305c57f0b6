"""What is on the board: written, read, and told apart."""

from __future__ import annotations

import pytest

from fairlane.cluster.entries import (
    Budget,
    ConfigEntry,
    GroupEntry,
    NodeEntry,
    Share,
    decode,
    encode,
    groups_by_queue,
    view_of,
)
from fairlane.errors import StoreCorrupt
from fairlane.ports.board import Entry


def test_a_board_is_told_apart_by_kinds() -> None:
    """Each entry is found by its own name among its kind, with what it takes to change it; unknown kinds are passed."""
    node = NodeEntry(address="http://a:1", beat=3, incarnation="x", load={"orders": 1.5}, demand={"api": {"orders": 2}})
    group = GroupEntry(queues=["orders", "mail"], home="a", is_pinned=True, moves=2)
    budget = Budget(rate=5, burst=2, granted={"orders": Share(5, 2)}, wanted={}, openings={"orders": 4})
    entries = {
        "node/a": Entry(encode(node), "1"),
        "group/orders": Entry(encode(group), "2"),
        "config/throttle:api:rate": Entry(encode(ConfigEntry("5")), "3"),
        "budget/api/v2": Entry(encode(budget), "4"),
        "later/thing": Entry(b"\xff", "5"),
    }
    view = view_of(entries)
    assert (view.nodes, view.groups, view.budgets) == ({"a": node}, {"orders": group}, {"api/v2": budget})
    assert view.config == {"throttle:api:rate": "5"}
    assert view.versions == {name: entry.version for name, entry in entries.items()}


def test_what_a_later_version_has_added_is_passed_over() -> None:
    """A field that is not known does not keep a node from reading an entry."""
    assert decode("group/x", b'{"queues": ["x"], "colour": "red"}', GroupEntry) == GroupEntry(queues=["x"])


@pytest.mark.parametrize(
    ("name", "value"),
    [("node/a", b"{}"), ("group/x", b"[]"), ("group/x", b"\xff\xfe"), ("config/k", b'{"value": 5}'), ("budget/t", b"")],
)
def test_an_entry_that_is_not_what_its_name_says_is_told_by_name(name: str, value: bytes) -> None:
    """Who reads hears which entry is broken."""
    with pytest.raises(StoreCorrupt, match=f"entry '{name}'"):
        view_of({name: Entry(value, "1")})


def test_of_two_groups_that_list_a_queue_all_nodes_take_the_same() -> None:
    """The first by name has it, in whatever order they were read."""
    groups = {"b": GroupEntry(queues=["x", "y"]), "a": GroupEntry(queues=["x"])}
    assert groups_by_queue(groups) == {"x": "a", "y": "b"}
