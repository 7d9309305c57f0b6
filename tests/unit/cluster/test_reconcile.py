"""The life of a group at a node: the goals that follow from the board, and single decisions."""

from __future__ import annotations

import pytest

from fairlane.cluster.entries import BoardView, GroupEntry, NodeEntry
from fairlane.cluster.reconcile import (
    TRANSITIONS,
    Goals,
    GroupAction,
    GroupEvent,
    GroupState,
    goals_of,
    next_state,
    reconcile,
)


def board(homes: dict[str, str | None], nodes: str = "ab") -> BoardView:
    """Return a board with groups of these homes."""
    return BoardView(
        nodes={name: NodeEntry(address=f"http://{name}", beat=1, incarnation=name) for name in nodes},
        groups={name: GroupEntry(queues=[name], home=home) for name, home in homes.items()},
    )


def goals(view: BoardView, *, live: str, before: Goals | None = None, open_here: str = "") -> Goals:
    """Return the goals of node a."""
    return goals_of(view, own="a", live=set(live), before=before or Goals(), open_here=set(open_here.split()))


def test_goals_know_who_has_ended_from_the_node_and_from_the_board() -> None:
    """The evidence of this node counts, and so does what the board tells about its own groups."""
    view = board({"mine": None, "other": None})
    view.groups["mine"] = GroupEntry(queues=["mine"], home="a", left_by="x1")
    view.groups["other"] = GroupEntry(queues=["other"], home="b", left_by="x2")
    wanted = goals_of(view, own="a", live={"a", "b"}, before=Goals(), open_here=(), ended=frozenset({"c1"}))
    assert wanted.ended == {"c1", "x1"}


def test_the_board_says_which_groups_are_mine_and_where_the_others_are() -> None:
    """A group whose home is dead, or that has none, is nowhere for the moment."""
    wanted = goals(board({"mine": "a", "other": "b", "dead": "c", "new": None}, "abc"), live="ab")
    assert wanted.mine == {"mine": None}
    assert wanted.elsewhere == {"other": "http://b"}


def test_a_group_of_a_dead_node_is_a_takeover_once() -> None:
    """It counts when it is opened; a group that comes back later, or from a node that left, does not count."""
    before = goals(board({"orders": "b"}), live="ab")
    wanted = goals(board({"orders": "a"}), live="a", before=before)
    assert wanted.mine == {"orders": "b"}
    assert goals(board({"orders": "a"}), live="a", before=wanted).mine == {"orders": "b"}, "until it is open"
    assert wanted.reached("orders").mine == {"orders": None}
    opened = goals(board({"orders": "a"}), live="a", before=wanted.reached("orders"), open_here="orders")
    assert opened.mine == {"orders": None}
    assert goals(board({"orders": "a"}), live="a", before=opened).mine == {"orders": None}
    assert goals(board({"orders": "a"}, "a"), live="a", before=before).mine == {"orders": None}


def test_a_decision_for_each_group() -> None:
    """Absent groups that should be here are opened, others that are here go, and lost ones are dropped first."""
    states = {
        "stays": GroupState.OPEN,
        "goes": GroupState.OPEN,
        "lost": GroupState.LOST,
        "comes back": GroupState.LEAVING,
        "tries": GroupState.WAITING,
    }
    wanted = Goals(mine=dict.fromkeys(("stays", "new", "lost", "comes back", "tries")), elsewhere={"goes": "http://b"})
    assert reconcile(states, wanted) == [
        GroupAction("new", GroupEvent.OPEN),
        GroupAction("lost", GroupEvent.DROP),
        GroupAction("goes", GroupEvent.HAND_OVER, "http://b"),
    ]


def test_an_event_that_the_table_does_not_have_is_a_bug() -> None:
    """It is raised, and nothing is guessed."""
    with pytest.raises(ValueError, match="A group that is open can't open"):
        next_state(GroupState.OPEN, GroupEvent.OPEN)


def test_every_state_can_be_reached_and_left() -> None:
    """There is no state that a group never gets into, or never out of."""
    entered = set(TRANSITIONS.values())
    left = {before for before, _ in TRANSITIONS}
    assert entered == left == set(GroupState)
