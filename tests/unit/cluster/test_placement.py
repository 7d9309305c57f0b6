"""Where groups go, case by case; what holds always is among the properties."""

from __future__ import annotations

import pytest

from fairlane.cluster.entries import GroupEntry, NodeEntry
from fairlane.cluster.placement import balancing, group_for, homeless, moved_by_hand, steward, without
from fairlane.errors import InvalidArgument


def node(*, is_draining: bool = False, load: dict[str, float] | None = None, capacity: float = 1.0) -> NodeEntry:
    return NodeEntry(address="", beat=1, incarnation="", is_draining=is_draining, load=load or {}, capacity=capacity)


def group(home: str | None, *, is_pinned: bool = False) -> GroupEntry:
    return GroupEntry(queues=["x"], home=home, is_pinned=is_pinned)


def test_a_dead_nodes_groups_are_spread_over_the_living() -> None:
    """The groups of a dead node go where least is, and a pinned one among them is pinned no more."""
    groups = {f"g{at}": group("dead", is_pinned=at == 0) for at in range(4)} | {"h": group("a")}
    moves = homeless(groups, {"a": node(), "b": node(), "dead": node()}, {"a", "b"})
    assert [(move.group, move.home) for move in moves] == [("g0", "b"), ("g1", "a"), ("g2", "b"), ("g3", "a")]
    assert not any(move.entry.is_pinned for move in moves)
    assert all(move.is_urgent for move in moves)


def test_a_move_names_the_process_that_is_known_to_have_ended() -> None:
    """Silence names no process, and evidence about an earlier process of the node does not either."""
    dead = NodeEntry(address="", beat=1, incarnation="dead2")
    for ended, left_by in ((["dead2"], "dead2"), (["dead1"], ""), ([], "")):
        (move,) = homeless({"g": group("dead")}, {"a": node(), "dead": dead}, {"a"}, ended)
        assert move.entry.left_by == left_by
        assert moved_by_hand("g", move.entry, "b").entry.left_by == ""


def test_a_drained_node_gives_its_groups_away_and_gets_none() -> None:
    """Moves from a drained node are not urgent; where all are drained, groups stay."""
    groups = {"g": group("a"), "h": group(None)}
    nodes = {"a": node(is_draining=True), "b": node()}
    moves = homeless(groups, nodes, {"a", "b"})
    assert [(move.group, move.home, move.is_urgent) for move in moves] == [("g", "b", False), ("h", "b", True)]
    assert homeless({"g": group("a")}, nodes, {"a"}) == []
    assert steward(nodes, {"a", "b"}) == "b"
    assert steward(nodes, set()) is None


def test_a_hot_group_goes_to_a_node_alone() -> None:
    """Where one group has nearly all the load, the others leave its node, and then nothing moves any more."""
    load = {"hot": 90.0, "x": 5.0, "y": 5.0}
    groups = {"hot": group("a"), "x": group("a"), "y": group("a")}
    nodes = {"a": node(load=load), "b": node()}
    moved = []
    while (move := balancing(groups, nodes, {"a", "b"})) is not None:
        groups[move.group] = move.entry
        moved.append(move.group)
        assert len(moved) <= 2
    assert {name for name, entry in groups.items() if entry.home == groups["hot"].home} == {"hot"}


def test_a_larger_node_bears_more() -> None:
    """A node of twice the capacity has twice the groups."""
    groups = {f"g{at}": group(None) for at in range(6)}
    moves = homeless(groups, {"a": node(capacity=2.0), "b": node()}, {"a", "b"})
    homes = [move.home for move in moves]
    assert (homes.count("a"), homes.count("b")) == (4, 2)


def test_one_group_more_is_even_enough() -> None:
    """Three groups on two nodes stay where they are."""
    groups = {"x": group("a"), "y": group("a"), "z": group("b")}
    assert balancing(groups, {"a": node(), "b": node()}, {"a", "b"}) is None


def test_a_small_node_keeps_a_group_that_would_leave_it_almost_idle() -> None:
    """With burdens 2, 1.1 and 1.95, giving away one of two groups would put the small node at 1, below all others."""
    nodes = {"ann": node(capacity=1), "ben": node(capacity=10), "cid": node(capacity=20)}
    homes = ["ann"] * 2 + ["ben"] * 11 + ["cid"] * 39
    groups = {f"group-{at}": group(home) for at, home in enumerate(homes)}
    assert balancing(groups, nodes, set(nodes)) is None


def test_a_move_by_hand_pins() -> None:
    """A group that somebody has moved stays; a move to where it is counts as none."""
    move = moved_by_hand("g", group("a"), "b")
    assert (move.entry.home, move.entry.is_pinned, move.entry.moves) == ("b", True, 1)
    assert moved_by_hand("g", group("b"), "b").entry.moves == 0
    groups = {"g": move.entry} | {f"h{at}": group("b", is_pinned=True) for at in range(5)}
    assert balancing(groups, {"a": node(), "b": node()}, {"a", "b"}) is None


def test_queues_can_be_put_together() -> None:
    """A queue joins the group it was asked for, which is made if it is not there, whatever the limit is."""
    name, entry = group_for("bills", {}, groups_max=0, wanted="shop")
    assert (name, entry.queues) == ("shop", ["bills"])
    name, entry = group_for("orders", {"shop": entry}, groups_max=0, wanted="shop")
    assert (name, entry.queues) == ("shop", ["bills", "orders"])
    with pytest.raises(InvalidArgument, match="is already in group 'shop'"):
        group_for("orders", {"shop": entry}, groups_max=9, wanted="other")
    for queue, wanted in (("a/b", None), ("a", "b b"), ("a", "")):
        with pytest.raises(InvalidArgument, match="name"):
            group_for(queue, {}, groups_max=9, wanted=wanted)


def test_a_group_goes_with_its_last_queue() -> None:
    """Without a queue the others stay, and without the last there is no group."""
    entry = GroupEntry(queues=["a", "b"], home="n", is_pinned=True, moves=3)
    left = without("a", entry)
    assert left == GroupEntry(queues=["b"], home="n", is_pinned=True, moves=3)
    assert left is not None
    assert without("b", left) is None


def test_partitions_share_their_groups_with_no_other_queue() -> None:
    """A new queue joins none of them, and they do not count among the groups that there may be."""
    groups = {"orders": GroupEntry(queues=["orders", "mails"])}
    groups |= {f"orders~{at}": GroupEntry(queues=[f"orders~{at}"]) for at in range(1, 4)}
    assert group_for("bills", groups, groups_max=1)[0] == "orders"
    assert group_for("bills", groups, groups_max=2)[0] == "bills"
    assert group_for("orders~4", groups, groups_max=1, wanted="orders~4")[0] == "orders~4"
