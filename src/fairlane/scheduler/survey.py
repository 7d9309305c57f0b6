"""The keys with the most items, and what holds them back. Takes O(keys)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from fairlane.scheduler.item import Key
from fairlane.scheduler.keys import Keys
from fairlane.scheduler.lanes import Lane
from fairlane.scheduler.tree import KeyNode


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyState:
    """The state of one key at one instant.

    Attributes:
        waiting: its waiting items, including delayed ones.
        in_use: its items that are handed out and not released, if the kernel counts them.
        throttle: the throttle that holds back all due items of the key; of several, the first to have a token. None if
            an item may go.
        until_ms: when that throttle has a token; None for never.
        may_go: whether one of its items may be handed out now, if its turn comes.
    """

    key: Key
    waiting: int
    in_use: int
    may_go: bool
    throttle: str | None = None
    until_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The keys with the most items, longest first.

    Attributes:
        active: how many keys have waiting items or items in use.
        throttles: the names of all throttles that waiting items name.
    """

    keys: tuple[KeyState, ...]
    active: int
    throttles: frozenset[str]


def survey(keys: Keys, count: int, now_ms: int, *, wanted: Callable[[Key], bool] | None = None) -> Survey:
    """Return the state of the ``count`` longest keys, of all or of those that ``wanted`` selects."""
    groups = _twins(keys)
    sizes = _sizes(groups) if len(keys.leaves) > 1 else _sizes_of_single(keys.leaves[0].values())
    places = range(len(groups)) if wanted is None else [at for at, twins in enumerate(groups) if wanted(twins[0].key)]
    top = sorted(places, key=sizes.__getitem__, reverse=True)[:count]
    throttles = {
        portion.bucket.name
        for leaf in keys.all_leaves()
        if leaf.extra is not None
        for lane in leaf.extra.values()
        if lane.head is not None
        for portion in lane.portions
    }
    return Survey(
        keys=tuple(_state(groups[at], now_ms) for at in top if sizes[at]),
        active=len(sizes) - sizes.count(0),
        throttles=frozenset(throttles),
    )


def _twins(keys: Keys) -> list[tuple[KeyNode, ...]]:
    """Return the leaves of each key: one, or with strict priority one per tree."""
    if len(keys.leaves) == 1:
        return list(zip(keys.leaves[0].values(), strict=True))
    groups: dict[Key, list[KeyNode]] = {}
    for leaf in keys.all_leaves():
        groups.setdefault(leaf.key, []).append(leaf)
    return [tuple(twins) for twins in groups.values()]


def _sizes(groups: Iterable[tuple[KeyNode, ...]]) -> list[int]:
    return [sum(leaf.waiting for leaf in twins) + max(map(_in_use, twins)) for twins in groups]


def _sizes_of_single(leaves: Iterable[KeyNode]) -> list[int]:
    """Return the same as ``_sizes`` for leaves without twins, in a fraction of the time."""
    return [leaf.waiting + (leaf.in_use if leaf.name is not None else _in_use(leaf)) for leaf in leaves]


def _in_use(leaf: KeyNode) -> int:
    """Return how many items of a leaf are in use. An inner key counts its own items together with those below it."""
    if leaf.name is not None or leaf.parent is None or leaf.parent.ring is None:
        return leaf.in_use
    others = (child.in_use for child in leaf.parent.ring.children.values() if child is not leaf)
    return leaf.parent.in_use - sum(others)


def _state(twins: tuple[KeyNode, ...], now_ms: int) -> KeyState:
    state = KeyState(
        key=twins[0].key,
        waiting=sum(leaf.waiting for leaf in twins),
        in_use=max(map(_in_use, twins)),
        may_go=any(map(_may_go, twins)),
    )
    shut: list[tuple[float, str, int | None]] = []
    for lane in (lane for leaf in twins for lane in leaf.lanes() if lane.head is not None):
        holder = _holder(lane, now_ms)
        if holder is None:
            return state
        shut.append(holder)
    if not shut:
        return state
    _, throttle, until_ms = min(shut, key=lambda each: each[0])
    return replace(state, throttle=throttle, until_ms=until_ms, may_go=False)


def _may_go(leaf: KeyNode) -> bool:
    """Return whether a leaf and all keys above it are ready."""
    node = leaf
    while node.parent is not None and node.is_ready:
        node = node.parent
    return node.parent is None


def _holder(lane: Lane, now_ms: int) -> tuple[float, str, int | None] | None:
    """Return the throttle that holds a lane back longest and when it has a token; None if the lane may go."""
    found = None
    cost = 1 if lane.head is None else lane.head.cost
    named = [(portion.bucket.name, portion.token_at(now_ms, cost)) for portion in lane.portions]
    named += [(rate.bucket.name, rate.bucket.token_at(now_ms, cost)) for rate in lane.node.rates()]
    for name, until_ms in named:
        if until_ms != now_ms:
            entry = (float("inf") if until_ms is None else float(until_ms), name, until_ms)
            found = entry if found is None else max(found, entry, key=lambda each: each[0])
    return found
