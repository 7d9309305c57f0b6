"""Where groups of queues should be: pure decisions from the board and the nodes that are alive.

Every node decides for itself. Nodes that see the same board and the same live nodes decide the same, and what they put
on the board is conditional on what they had read, so it does not matter which is first. A wrong decision costs time and
nothing else: the stores of groups ensure that there is one owner at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import fsum

import msgspec

from fairlane.cluster.entries import GroupEntry, NodeEntry
from fairlane.errors import InvalidArgument
from fairlane.model.names import queue_name_fault
from fairlane.model.partitions import MARK

_UNEVEN = 0.3
"""Two nodes are uneven if the gap between them is larger than this fraction of the mean burden of a node."""
_MOVES_MAX = 4
"""How many groups of drained nodes move at a time."""
_GAIN = 0.2
"""A move must close at least this fraction of the gap, because each one makes clients wait for a moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A new home for a group.

    Attributes:
        group: the name of the group.
        home: the node that should own it.
        entry: its new entry on the board.
        is_urgent: whether no node serves it meanwhile; other moves may be made one after the other.
    """

    group: str
    home: str
    entry: GroupEntry
    is_urgent: bool = False


def weights(groups: Mapping[str, GroupEntry], nodes: Mapping[str, NodeEntry]) -> dict[str, float]:
    """Return the weight of each group: half for its existence, half for its share of the load; the mean is 1."""
    loads = dict.fromkeys(groups, 0.0)
    for entry in nodes.values():
        for group, load in entry.load.items():
            if group in loads:
                loads[group] = max(loads[group], load)
    total = fsum(loads.values())
    if total <= 0:
        return dict.fromkeys(groups, 1.0)
    return {group: 0.5 + 0.5 * len(loads) * load / total for group, load in loads.items()}


def eligible(nodes: Mapping[str, NodeEntry], live: Collection[str]) -> list[str]:
    """Return the nodes that may get groups: those that live and don't drain, or if there are none, all that live."""
    living = sorted(name for name in nodes if name in live)
    return [name for name in living if not nodes[name].is_draining] or living


def steward(nodes: Mapping[str, NodeEntry], live: Collection[str]) -> str | None:
    """Return the node that balances load and divides throttles, which one node alone should do; None without nodes."""
    return next(iter(eligible(nodes, live)), None)


def homeless(
    groups: Mapping[str, GroupEntry],
    nodes: Mapping[str, NodeEntry],
    live: Collection[str],
    ended: Collection[str] = (),
) -> list[Move]:
    """Return moves for all groups without a home, or with a home that is dead or draining.

    A pinned group whose home has died is no longer pinned. A process that is known to have ended is named in the move.
    """
    candidates = eligible(nodes, live)
    if not candidates:
        return []
    weigh = weights(groups, nodes)
    burdens = _burdens(groups, nodes, candidates, weigh)
    moves = []
    for name in sorted(groups):
        entry = groups[name]
        if entry.home in burdens:
            continue
        home = min(candidates, key=lambda node: (burdens[node] + weigh[name] / _capacity(nodes[node]), node))
        burdens[home] += weigh[name] / _capacity(nodes[home])
        process = nodes[entry.home].incarnation if entry.home is not None and entry.home in nodes else ""
        left_by = process if process in ended else ""
        moves.append(_move(name, entry, home, is_urgent=entry.home not in live, left_by=left_by))
    return moves


def next_moves(
    groups: Mapping[str, GroupEntry],
    nodes: Mapping[str, NodeEntry],
    live: Collection[str],
    ended: Collection[str] = (),
) -> list[Move]:
    """Return the moves to make now: all urgent ones, and of the others only a few at a time."""
    moves = homeless(groups, nodes, live, ended)
    # A group is under way while its home has not reported it as open. Its consumers wait meanwhile, so that a drained
    # node gives its groups away a few at a time, and most queues are served at any moment.
    under_way = sum(
        entry.home in nodes and name not in nodes[entry.home].load
        for name, entry in groups.items()
        if entry.home is not None
    )
    others = [move for move in moves if not move.is_urgent]
    return [move for move in moves if move.is_urgent] + others[: max(0, _MOVES_MAX - under_way)]


def balancing(groups: Mapping[str, GroupEntry], nodes: Mapping[str, NodeEntry], live: Collection[str]) -> Move | None:
    """Return the one move that balances the load best, or None if it is even enough.

    Pinned groups stay. Both nodes end up between what the two had before, and clearly nearer to each other. So with a
    constant load the moves come to an end, and a group never goes back.
    """
    candidates = eligible(nodes, live)
    if not candidates:
        return None
    weigh = weights(groups, nodes)
    burdens = _burdens(groups, nodes, candidates, weigh)
    taker = min(candidates, key=lambda node: (burdens[node], node))
    uneven = _UNEVEN * fsum(burdens.values()) / len(burdens)
    for giver in sorted(candidates, key=lambda node: (-burdens[node], node)):
        if burdens[giver] - burdens[taker] <= uneven:
            break
        gifts = {
            name: (weigh[name] / _capacity(nodes[giver]), weigh[name] / _capacity(nodes[taker]))
            for name, entry in groups.items()
            if entry.home == giver and not entry.is_pinned
        }
        if (best := _best_gift(gifts, high=burdens[giver], low=burdens[taker])) is not None:
            return _move(best, groups[best], taker)
    return None


def _best_gift(gifts: Mapping[str, tuple[float, float]], *, high: float, low: float) -> str | None:
    """Return the group whose move leaves giver and taker nearest to each other; None if none brings them much nearer.

    Args:
        gifts: what each group takes from the giver, and adds to the taker.
        high: the burden of the giver.
        low: the burden of the taker.
    """
    # The taker must stay below what the giver had. Otherwise the two would only swap places, and the group would be
    # moved back by the next decision. The giver must not fall below what the taker had: a group that is a lot to a
    # small node is little to a large one, and the small node would be further from all others than before.
    gaps = {}
    for name, (less, more) in gifts.items():
        gap = abs((high - less) - (low + more))
        if low + more < high and high - less >= low and gap <= (1 - _GAIN) * (high - low):
            gaps[name] = gap
    return min(gaps, key=lambda name: (gaps[name], name), default=None)


def moved_by_hand(group: str, entry: GroupEntry, node: str) -> Move:
    """Return a move that an operator asked for: it pins the group to the node."""
    return _move(group, entry, node, is_pinned=True)


def group_for(
    queue: str, groups: Mapping[str, GroupEntry], *, groups_max: int, wanted: str | None = None
) -> tuple[str, GroupEntry]:
    """Return the group that a new queue joins, and its entry with the queue in it.

    Args:
        queue: the new queue; a queue that is on the board stays where it is.
        groups: the groups on the board.
        groups_max: while there are fewer, not counting those of partitions, a queue gets its own group, named after it.
        wanted: the group that the caller named.

    Raises:
        InvalidArgument: the queue is in another group than the caller named, or a name is malformed.
    """
    for fault in (queue_name_fault(name) for name in (queue, wanted) if name is not None):
        if fault is not None:
            raise InvalidArgument(fault)
    present = next((name for name in sorted(groups) if queue in groups[name].queues), None)
    if present is not None:
        if wanted not in (None, present):
            raise InvalidArgument(f"Queue {queue!r} is already in group {present!r}; it can't be in {wanted!r} too.")
        return present, groups[present]
    shared = [name for name in groups if MARK not in name]  # every id in a partition's group names the partition
    if wanted is not None:
        name = wanted
    elif queue in shared or len(shared) < groups_max or not shared:
        name = queue
    else:
        name = min(shared, key=lambda group: (len(groups[group].queues), group))
    entry = groups.get(name, GroupEntry(queues=[]))
    return name, _with_queues(entry, [*entry.queues, queue])


def without(queue: str, entry: GroupEntry) -> GroupEntry | None:
    """Return a group's entry without a queue; None if it was the last one, so that the group goes too."""
    left = [name for name in entry.queues if name != queue]
    return _with_queues(entry, left) if left else None


def _with_queues(entry: GroupEntry, queues: list[str]) -> GroupEntry:
    return msgspec.structs.replace(entry, queues=queues)


def _move(
    group: str, entry: GroupEntry, home: str, *, is_pinned: bool = False, is_urgent: bool = False, left_by: str = ""
) -> Move:
    moves = entry.moves + (entry.home != home)
    moved = GroupEntry(queues=entry.queues, home=home, is_pinned=is_pinned, moves=moves, left_by=left_by)
    return Move(group=group, home=home, entry=moved, is_urgent=is_urgent)


def _burdens(
    groups: Mapping[str, GroupEntry],
    nodes: Mapping[str, NodeEntry],
    candidates: Collection[str],
    weigh: Mapping[str, float],
) -> dict[str, float]:
    """Return the weight of each candidate's groups, relative to its capacity."""
    parts: dict[str, list[float]] = {node: [] for node in candidates}
    for name, entry in groups.items():
        if entry.home in parts:
            parts[entry.home].append(weigh[name] / _capacity(nodes[entry.home]))
    # Exact sums: nodes read the board in different orders, and rounding must not make them decide differently.
    return {node: fsum(part) for node, part in parts.items()}


def _capacity(node: NodeEntry) -> float:
    return node.capacity if node.capacity > 0 else 1.0
