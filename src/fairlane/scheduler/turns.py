"""Handing out items: the fast path and the general path through the rings.

Theory of operation
-------------------
Both paths follow the theory in ``tree``; property tests hold them to the same order.

``serve_plain`` is the fast path, for flat keys whose items have nothing but a cost. It walks the root's ring and does
per item only what can't be left out. A plain key is never *open* between calls: its whole turn, from the share it gains
to the place at the back, happens inside one iteration, so most flags of the node need not change at all. Only a turn
that ``count`` cuts short is written down, by ``settle_turn``.

A key with anything else (sub-keys, items in several lanes, throttles, a cap) takes the general path, ``serve_next``,
which serves one run of items of one lane: as many as the lane's tokens, the deficits and caps from the leaf to the
root, and the caller's ``count`` allow. A run must end where another key might be next, so it is only more than one item
where nothing in between could change the choice.
"""

from __future__ import annotations

from collections.abc import Callable

from fairlane.scheduler.item import Item
from fairlane.scheduler.keys import Keys
from fairlane.scheduler.lanes import Lane, made_ahead, refill_all
from fairlane.scheduler.tree import BOUNDARY, PATIENCE, KeyNode, Ring


def serve_plain(  # noqa: C901, PLR0912, PLR0915 - one piece, because a call costs more than all it would do
    ring: Ring, out: list[Item], count: int, keys: Keys, *, counts_use: bool
) -> None:
    """Serve the plain keys that are next in a root's ring, until another kind of key is next or ``count`` are out.

    Everything here runs per item, so names are local, the first item of a turn has lines of its own, and a key that
    stays in the ring keeps its flags as they are.
    """
    hand_out = out.append
    next_key = ring.order.popleft
    to_the_back = ring.order.append
    left = count - len(out)
    drained: list[KeyNode] = []  # whose next items are made together, before their next turns
    while left:
        node = next_key()
        if not node.is_plain:
            if node is not BOUNDARY:
                ring.order.appendleft(node)
                break
            if drained:
                refill_all(drained)
            # The common round has no sleepers: advance it without a call.
            if ring.order and not ring.sleepers.entries:
                ring.round += 1
                to_the_back(node)
            elif not ring.next_round():
                break
            continue
        item: Item = node.head  # type: ignore[assignment] # a plain key is ready, so it has a head
        deficit = node.deficit + node.share - item.cost
        if deficit < 0:
            # It can't pay yet. It keeps the share it just gained and goes round, or sleeps if that takes many rounds.
            node.deficit = deficit + item.cost
            if deficit + PATIENCE * node.share >= 0:
                to_the_back(node)
            else:
                ring.settle_turn(node, item.cost)
            continue
        hand_out(item)
        head = item.next
        item.lane = item.next = None
        if head is None and node.behind is not None:
            if deficit and left > 1:
                head = node.refill(made_ahead(node))
            else:
                drained.append(node)
        # The commonest turn by far: cost equals share, one item, more behind it. It has no loop and one append.
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
            if head is None and node.behind is not None:
                if deficit and served < left:
                    head = node.refill(made_ahead(node))
                else:
                    drained.append(node)
        left -= served
        node.head = head
        node.waiting -= served
        if counts_use:
            node.in_use += served
        node.deficit = deficit
        if head is not None:
            head.previous = None
        elif node.behind is None:
            keys.emptied(ring, node)
            continue
        else:
            cost = 1  # that of a row, which is made with those of other keys
        # Either its turn is over and it can pay soon: to the back. Or it could have gone on and only ``count`` stopped
        # it, or it needs many rounds: settle_turn keeps the turn open, or puts it to sleep.
        if not deficit or 0 < cost - deficit <= PATIENCE * node.share:
            to_the_back(node)
        else:
            ring.settle_turn(node, cost)
    if drained:
        refill_all(drained)


def serve_next(
    root: KeyNode,
    out: list[Item],
    count: int,
    keys: Keys,
    lane_of: Callable[[KeyNode, int], Lane | None],
    note_served: Callable[[Lane, list[Item]], None],
    *,
    counts_use: bool,
) -> bool:
    """Serve the next run of items of the key whose turn it is, of any kind. Return False when no key is ready.

    A turn that ends and a lane that parks count as progress too: the caller calls again. ``note_served`` receives the
    items of a run before the lane can be emptied and its stopwatch reset.
    """
    leaf = root
    while (ring := leaf.ring) is not None:
        child = ring.serving if ring.serving is not None else ring.next_turn()
        if child is None:
            return False
        leaf = child
    lane = lane_of(leaf, keys.now_ms)
    if lane is None or (head := lane.head) is None:
        # All its lanes have just been parked: it leaves the ring, and the caller asks the next key.
        keys.refresh(leaf)
        return True
    if leaf.deficit < head.cost and leaf.parent is not None and leaf.parent.ring is not None:
        leaf.parent.ring.end_turn(leaf, head.cost)  # the most common outcome of _means, without the call
        return True
    credit, count_max = _means(leaf, head.cost, count - len(out))
    if keys.capacity.most is not None:
        count_max = min(count_max, keys.capacity.allowance(leaf.outermost()))
    if not count_max:
        return True
    if leaf.extra is not None:
        credit, count_max = _limit_of_run(leaf, lane, credit, count_max)
    served, spent = _hand_out(lane, out, count_max, credit)
    if keys.has_clocks:
        note_served(lane, out[len(out) - served :])
    _charge(leaf, served, spent, keys, counts_use=counts_use)
    if lane.head is None:
        keys.lane_emptied(lane)
        keys.refresh(leaf)
    _end_spent_turns(leaf)
    return True


def _means(leaf: KeyNode, cost: int, count: int) -> tuple[int, int]:
    """Return how much may be spent and how many items served, limited by every node from the leaf up.

    The turn of the lowest node that can't pay is ended, and nothing is served until the rings have been asked again:
    another child of that node may be able to pay, and only if none is does the node above lose its turn too.
    """
    credit, count_max = leaf.deficit, count
    node = leaf
    while (parent := node.parent) is not None and parent.ring is not None:
        if node.deficit < cost:
            parent.ring.end_turn(node, cost)
            return 0, 0
        credit = min(credit, node.deficit)
        if node.cap is not None:
            count_max = min(count_max, node.cap - node.in_use)
        if node.rate is not None:
            count_max = min(count_max, node.rate.bucket.ready())
        node = parent
    return credit, count_max


def _limit_of_run(leaf: KeyNode, lane: Lane, credit: int, count_max: int) -> tuple[int, int]:
    """Return how much the lane may spend and how many items it may give in one run."""
    if len(leaf.choices) > 1:
        return credit, 1  # the next item may be in another lane: choose again after each
    for portion in lane.portions:
        if portion.bucket.charges_cost and portion.bucket.is_limited and lane.head is not None:
            credit = min(credit, max(portion.ready(), lane.head.cost))  # the first may cost more than there is
        elif portion.bucket.is_limited:
            count_max = min(count_max, portion.ready())
    return credit, count_max


def _hand_out(lane: Lane, out: list[Item], count_max: int, credit: int) -> tuple[int, int]:
    served = spent = 0
    head = lane.head
    while head is not None and served < count_max and (after := spent + head.cost) <= credit:
        out.append(head)
        served += 1
        spent = after
        item, head = head, head.next
        item.lane = item.next = item.previous = None
        if head is None and lane.behind is not None:
            head = lane.refill(made_ahead(lane.node))
    lane.head = head
    if head is None:
        lane.tail = None
    else:
        head.previous = None
    for portion in lane.portions:
        portion.take(served, spent)
    return served, spent


def _charge(leaf: KeyNode, served: int, spent: int, keys: Keys, *, counts_use: bool) -> None:
    keys.capacity.in_use += served
    node = leaf
    while (parent := node.parent) is not None:
        node.deficit -= spent
        node.waiting -= served
        if node.rate is not None:
            node.rate.bucket.take(served)
        if counts_use:
            keys.hand_out(node, served)
        node = parent


def _end_spent_turns(leaf: KeyNode) -> None:
    """End the turn of every node that can't continue: the leaf if it can't pay for its next item, an inner node if it
    has no deficit left at all. An inner node's next item is not known, since any of its children may be next.
    """
    lane = leaf.first_lane() if leaf.deficit > 0 else None
    cost = lane.head.cost if lane is not None and lane.head is not None else 1
    node = leaf
    while (parent := node.parent) is not None and (ring := parent.ring) is not None:
        if node.deficit < cost and ring.serving is node:
            ring.end_turn(node, cost)
        node, cost = parent, 1
