"""Handing out items: the fast path and the general path through the rings.

Theory of operation
-------------------
Both paths follow the theory in ``tree``; property tests hold them to the same order.

``serve_plain`` is the fast path, for flat keys whose items have nothing but a cost. It walks the root's ring and does
per item only what can't be left out. A plain key is never *open* between calls: its whole turn, from the share it gains
to the place at the back, happens inside one iteration, so most flags of the node need not change at all. Only a turn
that ``count`` cuts short is written down, by ``settle_turn``.

A key with anything else (sub-keys, items in several lanes, throttles, a cap) takes the general path, ``serve_runs``.
A run is items of one lane: as many as the lane's tokens, the deficits and caps from the leaf to the root, and the
caller's ``count`` allow. It must end where another key might be next, so it is only more than one item where nothing in
between could change the choice. Most runs are of one item, so what ``Ring.next_turn`` and ``Ring.end_turn`` do in the
usual case has lines of its own here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from fairlane.scheduler.item import Item
from fairlane.scheduler.keys import Keys
from fairlane.scheduler.lanes import Lane, made_ahead, refill_all
from fairlane.scheduler.tree import BOUNDARY, PATIENCE, KeyNode, Ring

LaneOf: TypeAlias = Callable[[KeyNode, int], Lane | None]
"""Returns the lane of a leaf to serve next at an instant, None if its lanes have to wait."""

NoteServed: TypeAlias = Callable[[Lane, list[Item]], None]
"""Takes note of items of a lane that are handed out."""


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


def serve_runs(  # noqa: C901, PLR0912, PLR0915 - in one piece for the same reason
    root: KeyNode, out: list[Item], count: int, keys: Keys, lane_of: LaneOf, note_served: NoteServed
) -> None:
    """Serve runs of items of keys of any kind, until a plain key is next, no key is ready or ``count`` are out.

    A turn that ends and a lane that parks serve nothing, and the next key is asked. ``note_served`` receives the items
    of a run before the lane can be emptied and its stopwatch reset.
    """
    top = root.ring
    if top is None:
        return
    hand_out = out.append
    is_free = keys.capacity.most is None and not keys.has_rates
    counts_use = keys.counts_use
    while top.ready and (left := count - len(out)) > 0:
        if top.serving is None and not top.resumed and top.order[0].is_plain:
            return
        leaf, ring = root, top
        below: Ring | None = top
        while below is not None:
            ring = below
            node = ring.serving
            if node is not None:
                leaf = node
            elif (node := ring.order[0]).is_ready and not node.is_open and not ring.resumed:
                # The usual case of next_turn.
                ring.order.popleft()
                ring.serving = leaf = node
                node.is_queued = False
                node.is_open = True
                node.turns += 1
                node.round = ring.round
                node.deficit += node.share
            elif (node := ring.next_turn()) is not None:
                leaf = node
            else:
                return
            below = leaf.ring
        lane = leaf if is_free and leaf.extra is None else lane_of(leaf, keys.now_ms)
        if lane is None or (head := lane.head) is None:
            keys.refresh(leaf)  # all its lanes have just been parked: it leaves the ring
            continue
        credit, cost = leaf.deficit, head.cost
        if credit < cost:
            ring.end_turn(leaf, cost)
            continue
        if ring is not top or leaf.cap is not None or not is_free:
            credit, left = _means(leaf, cost, left, keys)
            if not left:
                continue
        if credit > cost and leaf.extra is not None:  # otherwise the run has one item
            credit, left = _limit_of_run(leaf, lane, credit, left)
        served = spent = 0
        after: Item | None = head
        while after is not None and served < left and (total := spent + after.cost) <= credit:
            hand_out(after)
            served += 1
            spent = total
            item, after = after, after.next
            item.lane = item.next = item.previous = None
            if after is None and lane.behind is not None:
                after = lane.refill(made_ahead(lane.node))
        lane.head = after
        if after is None:
            lane.tail = None
        else:
            after.previous = None
        for portion in lane.portions:
            portion.take(served, spent)
        if keys.has_clocks:
            note_served(lane, out[len(out) - served :])
        if not is_free:
            keys.capacity.in_use += served
        charged = leaf
        while (parent := charged.parent) is not None:
            charged.deficit -= spent
            charged.waiting -= served
            if charged.rate is not None:
                charged.rate.bucket.take(served, spent)
            if counts_use:
                keys.hand_out(charged, served)
            charged = parent
        if after is None:
            keys.lane_emptied(lane)
            keys.refresh(leaf)
        cost = 1
        if leaf.deficit > 0 and (next_lane := leaf.first_lane()) is not None and next_lane.head is not None:
            cost = next_lane.head.cost
        # The turn of every node ends that can't continue: of the leaf if it can't pay for its next item, of an inner
        # node if it has no deficit left at all. Its next item is not known, since any of its children may be next.
        charged = leaf
        while (parent := charged.parent) is not None and (around := parent.ring) is not None:
            if (lacks := cost - charged.deficit) > 0 and around.serving is charged:
                # The usual case of end_turn: it can pay soon, and no round has gone by without it.
                if lacks <= PATIENCE * charged.share and charged.round == around.round:
                    around.serving = None
                    charged.is_open = False
                    charged.is_queued = True
                    around.order.append(charged)
                else:
                    around.end_turn(charged, cost)
            charged, cost = parent, 1


def _means(leaf: KeyNode, cost: int, count: int, keys: Keys) -> tuple[int, int]:
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
        if node.deficit < credit:
            credit = node.deficit
        if node.cap is not None:
            count_max = min(count_max, node.cap - node.in_use)
        if node.rate is not None and node.rate.bucket.charges_cost:
            credit = min(credit, max(node.rate.bucket.ready(), cost))  # the first may cost more than there is
        elif node.rate is not None:
            count_max = min(count_max, node.rate.bucket.ready())
        node = parent
    if keys.capacity.most is not None:
        count_max = min(count_max, keys.capacity.allowance(leaf.outermost()))
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
