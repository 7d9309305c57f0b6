"""Handing out: the two ways through the rings.

``serve_plain`` is the short way, for flat keys whose items have nothing but a cost. It walks the root's ring and does
per item only what can't be left out. Whatever else a key has just now (sub-keys, items in several lanes, throttles, a
cap) goes the long way, ``serve_next``, one run of items at a time. Both follow the theory told in ``tree``; property
tests hold them to the same order.
"""

from __future__ import annotations

from collections.abc import Callable

from fairlane.scheduler.buckets import TOKEN
from fairlane.scheduler.item import Item
from fairlane.scheduler.keys import Keys
from fairlane.scheduler.lanes import Lane
from fairlane.scheduler.tree import BOUNDARY, PATIENCE, KeyNode, Ring


def serve_plain(  # noqa: C901, PLR0912, PLR0915 - one piece, because a call costs more than all it would do
    ring: Ring, out: list[Item], count: int, keys: Keys, *, counts_use: bool
) -> None:
    """Serve the plain keys that are next in a root's ring, until another kind of key is or ``count`` are out.

    Everything here is per item, so names are local, the first item of a turn has its own lines, and a key that stays in
    the ring keeps its flags as they are.
    """
    hand_out = out.append
    next_key = ring.order.popleft
    to_the_back = ring.order.append
    left = count - len(out)
    while left:
        node = next_key()
        if not node.is_plain:
            if node is not BOUNDARY:
                ring.order.appendleft(node)
                return
            if ring.order and not ring.sleepers.entries:
                ring.round += 1
                to_the_back(node)
            elif not ring.next_round():
                return
            continue
        item: Item = node.head  # type: ignore[assignment] # a plain key is ready, so it has a head
        deficit = node.deficit + node.share - item.cost
        if deficit < 0:
            node.deficit = deficit + item.cost
            if deficit + PATIENCE * node.share >= 0:
                to_the_back(node)
            else:
                ring.settle_turn(node, item.cost)
            continue
        hand_out(item)
        head = item.next
        item.lane = item.next = None
        if not deficit and head is not None:
            left -= 1
            node.waiting -= 1
            if counts_use:
                node.in_use += 1
            node.head = head
            head.previous = None
            node.deficit = 0
            to_the_back(node)
            continue
        served = 1
        cost = 0
        while head is not None and (cost := head.cost) <= deficit and served < left:
            hand_out(head)
            deficit -= cost
            served += 1
            item = head
            head = item.next
            item.lane = item.next = item.previous = None
        left -= served
        node.head = head
        node.waiting -= served
        if counts_use:
            node.in_use += served
        if head is None:
            keys.emptied(ring, node)
            continue
        head.previous = None
        node.deficit = deficit
        if not deficit or 0 < cost - deficit <= PATIENCE * node.share:
            to_the_back(node)
        else:
            ring.settle_turn(node, cost)


def serve_next(
    root: KeyNode,
    out: list[Item],
    count: int,
    keys: Keys,
    lane_of: Callable[[KeyNode, int], Lane | None],
    tell: Callable[[Lane, list[Item]], None],
    *,
    counts_use: bool,
) -> bool:
    """Serve the next run of items of the key whose turn it is, whatever kind it is. Returns False when none is ready.

    A turn that ends and a lane that parks count as progress too: the caller asks again. ``tell`` is told what comes
    out of a lane while the lane is as it was.
    """
    leaf = root
    while (ring := leaf.ring) is not None:
        child = ring.serving if ring.serving is not None else ring.next_turn()
        if child is None:
            return False
        leaf = child
    lane = lane_of(leaf, keys.now_ms)
    if lane is None or (head := lane.head) is None:
        keys.refresh(leaf)
        return True
    if leaf.deficit < head.cost and leaf.parent is not None and leaf.parent.ring is not None:
        leaf.parent.ring.end_turn(leaf, head.cost)  # the first that _means would find, without a call
        return True
    credit, room = _means(leaf, head.cost, count - len(out))
    if not room:
        return True
    if leaf.extra is not None:
        room = _room_in_lane(leaf, lane, room)
    served, spent = _hand_out(lane, out, room, credit)
    if keys.has_clocks:
        tell(lane, out[len(out) - served :])
    _charge(leaf, served, spent, keys, counts_use=counts_use)
    if lane.head is None:
        keys.lane_emptied(lane)
        keys.refresh(leaf)
    _end_spent_turns(leaf)
    return True


def _means(leaf: KeyNode, cost: int, count: int) -> tuple[int, int]:
    """Return what may be spent and how many items served, with what every node from the leaf up has and may.

    The lowest node that can't pay has its turn ended, and nothing may be served until somebody else has been asked.
    """
    credit, room = leaf.deficit, count
    node = leaf
    while (parent := node.parent) is not None and parent.ring is not None:
        if node.deficit < cost:
            parent.ring.end_turn(node, cost)
            return 0, 0
        credit = min(credit, node.deficit)
        if node.cap is not None:
            room = min(room, node.cap - node.in_use)
        node = parent
    return credit, room


def _room_in_lane(leaf: KeyNode, lane: Lane, room: int) -> int:
    """Return how many items the lane may give in one go, with others to choose from and the tokens there are."""
    if len(leaf.choices) > 1:
        return 1
    return min([room, *(bucket.level // TOKEN for bucket in lane.buckets if bucket.is_limited)])


def _hand_out(lane: Lane, out: list[Item], room: int, credit: int) -> tuple[int, int]:
    served = spent = 0
    head = lane.head
    while head is not None and served < room and (after := spent + head.cost) <= credit:
        out.append(head)
        served += 1
        spent = after
        item, head = head, head.next
        item.lane = item.next = item.previous = None
    lane.head = head
    if head is None:
        lane.tail = None
    else:
        head.previous = None
    for bucket in lane.buckets:
        bucket.take(served)
    return served, spent


def _charge(leaf: KeyNode, served: int, spent: int, keys: Keys, *, counts_use: bool) -> None:
    node = leaf
    while (parent := node.parent) is not None:
        node.deficit -= spent
        node.waiting -= served
        if counts_use:
            keys.hand_out(node, served)
        node = parent


def _end_spent_turns(leaf: KeyNode) -> None:
    """End the turn of every node that can't go on: the leaf with its next item, those above it with any."""
    lane = leaf.first_lane() if leaf.deficit > 0 else None
    cost = lane.head.cost if lane is not None and lane.head is not None else 1
    node = leaf
    while (parent := node.parent) is not None and (ring := parent.ring) is not None:
        if node.deficit < cost and ring.serving is node:
            ring.end_turn(node, cost)
        node, cost = parent, 1
