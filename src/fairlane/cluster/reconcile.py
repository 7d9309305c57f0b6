"""The life of a group at one node: a state table, and the pure decision what to do next.

The board says which node should own a group. A node compares that with the state of each group it has, or is busy with,
and does one thing at a time about each: it opens the group's store, hands it over, or drops it because another owner
has taken the store away. This module decides; ``lifecycle`` carries out.

Nothing here is needed for safety. The store lets one owner write at a time, by its epoch, however wrong a decision is.
The table is about getting there: a group that should be here is opened as soon as its store is free, a group that
should not is let go, and no group has two tasks working on it.

``absent`` and ``open`` are the states in which nothing is under way, so these and ``lost`` are the only ones in which a
decision is made. What the board wants may change while a task runs. It is looked at again when the task ends, which
keeps every task a straight line without a way to interrupt it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from fairlane.cluster.entries import BoardView


class GroupState(StrEnum):
    """The state of a group at this node."""

    ABSENT = "absent"
    """Not served here. Every group that a node knows nothing of is absent."""
    OPENING = "opening"
    """A task opens its store, recovers it, and gives it the cluster's config."""
    WAITING = "waiting"
    """Its store could not be opened, usually because the previous owner still has it; the next attempt follows."""
    OPEN = "open"
    """Served here."""
    LOST = "lost"
    """Its broker answers no more: another node took the store over, or the store failed."""
    LEAVING = "leaving"
    """A task lets its consumers go and closes its store."""


class GroupEvent(StrEnum):
    """What changes the state of a group: an action of this node, or how an action ended."""

    OPEN = "open"
    OPENED = "opened"
    REFUSED = "refused"
    PAUSED = "paused"
    LOSE = "lose"
    HAND_OVER = "hand over"
    DROP = "drop"
    CLOSED = "closed"


TRANSITIONS: Final[Mapping[tuple[GroupState, GroupEvent], GroupState]] = {
    (GroupState.ABSENT, GroupEvent.OPEN): GroupState.OPENING,
    (GroupState.OPENING, GroupEvent.OPENED): GroupState.OPEN,
    (GroupState.OPENING, GroupEvent.REFUSED): GroupState.WAITING,
    (GroupState.WAITING, GroupEvent.PAUSED): GroupState.ABSENT,
    (GroupState.OPEN, GroupEvent.HAND_OVER): GroupState.LEAVING,
    (GroupState.OPEN, GroupEvent.LOSE): GroupState.LOST,
    (GroupState.LOST, GroupEvent.DROP): GroupState.LEAVING,
    (GroupState.LEAVING, GroupEvent.CLOSED): GroupState.ABSENT,
}
"""Every change of state there is. The diagram in docs/operating/cluster.md is drawn from it."""

DECISIONS: Final[Mapping[tuple[GroupState, bool], GroupEvent]] = {
    (GroupState.ABSENT, True): GroupEvent.OPEN,
    (GroupState.OPEN, False): GroupEvent.HAND_OVER,
    (GroupState.LOST, True): GroupEvent.DROP,  # it is opened again once it is absent
    (GroupState.LOST, False): GroupEvent.DROP,
}
"""What to do about a group in a state, if it should be here or not. Where there is no entry, there is nothing to do."""


@dataclass(frozen=True, slots=True)
class Goals:
    """Where groups should be, from the point of view of one node.

    Attributes:
        mine: the groups that should be here, each with the dead node that left it behind, or None.
        elsewhere: the addresses of the nodes where other groups should be, as far as those nodes live.
        homes: the last known home of each group; a group that should be here but is not open keeps the home before.
        ended: the processes that are known to have ended, whose stores need not be waited for.
    """

    mine: Mapping[str, str | None] = field(default_factory=dict)
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    homes: Mapping[str, str | None] = field(default_factory=dict)
    ended: frozenset[str] = frozenset()

    def reached(self, group: str) -> Goals:
        """Return the same goals for a group that has been opened: it is no takeover any more."""
        return replace(self, mine={**self.mine, group: None}) if group in self.mine else self


@dataclass(frozen=True, slots=True)
class GroupAction:
    """One thing to do about a group.

    Attributes:
        group: its name.
        event: open, hand over or drop.
        address: where the group goes, for consumers that are sent there; None if that is not known.
    """

    group: str
    event: GroupEvent
    address: str | None = None


def goals_of(
    board: BoardView,
    *,
    own: str,
    live: Collection[str],
    before: Goals,
    open_here: Collection[str],
    ended: frozenset[str] = frozenset(),
) -> Goals:
    """Return where groups should be.

    Args:
        board: the board as it was read.
        own: the name of this node.
        live: the nodes that live.
        before: the goals of the previous reading.
        open_here: the groups that are open here now.
        ended: the processes that are known to have ended.
    """
    mine: dict[str, str | None] = {}
    homes, elsewhere = dict(before.homes), dict[str, str]()
    for group, entry in board.groups.items():
        home = entry.home
        if home == own:
            # A group is a takeover if its home before is still on the board and shows no life. A node that left in good
            # order has removed its entry, and a group that this node had open already has this node as its home.
            left = own if group in open_here else homes.get(group, own)
            mine[group] = left if left in board.nodes and left not in live else None
        elif home in board.nodes and home in live:
            elsewhere[group] = board.nodes[home].address
        if home != own or group in open_here:
            homes[group] = home
    told = {board.groups[group].left_by for group in mine} - {""}
    return Goals(mine, elsewhere, homes, ended | told)


def reconcile(states: Mapping[str, GroupState], goals: Goals) -> list[GroupAction]:
    """Return what to do now, so that the groups that should be here are, and no others.

    Args:
        states: the groups that are not absent.
        goals: where groups should be.
    """
    actions = []
    for group in dict.fromkeys((*goals.mine, *states)):
        state = states.get(group, GroupState.ABSENT)
        event = DECISIONS.get((state, group in goals.mine))
        if event is not None:
            actions.append(GroupAction(group, event, goals.elsewhere.get(group)))
    return actions


def next_state(state: GroupState, event: GroupEvent) -> GroupState:
    """Return the state of a group after an event.

    Raises:
        ValueError: the event can't happen in this state, which is a bug in the caller.
    """
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise ValueError(f"A group that is {state} can't {event}.") from None


def diagram() -> str:
    """Return the table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {GroupState.ABSENT}"]
    lines += [f"    {state} --> {following}: {event}" for (state, event), following in TRANSITIONS.items()]
    return "\n".join(lines)
