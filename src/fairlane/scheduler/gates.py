"""Where throttled lanes wait, and in which order they get tokens.

Theory of operation
-------------------
A bucket may hold back one lane or ten thousand. Waking all of them at every token would cost O(lanes) per item, so
lanes wait at a *gate* in an order, and each token wakes one of them. The order must be the one that deficit round robin
would have chosen, or a tenant with many lanes would get many times the tokens. So the waiting lanes form a tree of the
same shape as the keys: for each gate, every node holds a queue of its children that wait there. The child at the front
gets the tokens as long as its turn lasts; then it goes to the back. At each level this gives weighted turns.

A child that has been woken keeps its position at the front until its turn is over, even while nothing of it waits.
A woken lane is not served yet: it is ready, and the ring decides. If the token is gone when its turn comes, the lane
parks again.

A bucket that *charges by cost* needs two more rules. The lane at the front keeps its place until there are as many
tokens as its item needs, and lanes that come later queue behind it; or cheap items would always take what a costly one
waits for. And rounds of the ring pass at once while all other children are parked here, so they can't measure turns: a
child keeps the front until it has spent as many tokens as its share entitles it to, and what it spent beyond that
counts in its next turn. That is deficit round robin in tokens, with a quantum that pays for the costliest item.
"""

from __future__ import annotations

from collections import OrderedDict

from fairlane.scheduler.lanes import Lane
from fairlane.scheduler.portions import Portion
from fairlane.scheduler.tree import KeyNode

_NO_TURN = -1


class WaitQueue:
    """A queue of the members of one node that wait at one gate: child nodes, or the lanes of a leaf.

    Attributes:
        members: those that wait, each with what it has spent beyond its share, if the bucket charges by cost.
        turn: the turn of the front child that a token has been spent on, or ``_NO_TURN``.
        spent: what the front child has spent in its turn, if the bucket charges by cost.
    """

    __slots__ = ("members", "spent", "turn")

    def __init__(self, first: Lane) -> None:
        self.members: OrderedDict[Lane, int | None] = OrderedDict.fromkeys((first,))
        self.turn = _NO_TURN
        self.spent = 0

    def replace(self, old: Lane, new: Lane) -> None:
        """Put a new member in the position of an old one."""
        members = [(new if member is old else member, spent) for member, spent in self.members.items()]
        self.members = OrderedDict(members)


class Gate:
    """The lanes of one kernel that wait for one bucket.

    Attributes:
        armed_ms: when the kernel will open it next; None if no timer is set.
        parked: how many lanes wait here. Nodes may wait here longer than their lanes, while a turn lasts.
        lacking: how many tokens the lane needs that is next, if there are too few for it; 0 otherwise.
        is_held: whether the next tokens are for a lane that has been woken and is about to park again.
        woken: lanes that were woken and have not parked again, and whether they may still take tokens. Only for a
            bucket that charges by cost, like ``lacking`` and ``is_held``.
    """

    __slots__ = ("_cost_max", "_quantum", "armed_ms", "bucket", "is_held", "lacking", "parked", "portion", "woken")

    def __init__(self, portion: Portion, quantum: int) -> None:
        self._quantum = quantum
        self._cost_max = 1
        self.portion = portion
        self.bucket = portion.bucket
        self.armed_ms: int | None = None
        self.lacking = 0
        self.is_held = False
        self.parked = 0
        self.woken: dict[Lane, bool] = {}

    def park(self, lane: Lane) -> None:
        """Add a lane to the wait, together with its node and all nodes above it that do not wait yet."""
        lane.gate = self
        self.parked += 1
        self.woken.pop(lane, None)
        if lane.head is not None and lane.head.cost > self._cost_max:
            self._cost_max = lane.head.cost
        member: Lane = lane
        node: KeyNode | None = lane.node
        while node is not None:
            # A node that already waits here is already in its parent's queue, so the walk up can stop.
            queue = node.waits.get(self)
            if queue is not None:
                queue.members[member] = None
                return
            node.wait_at(self, WaitQueue(member))
            member, node = node, node.parent

    def leave(self, lane: Lane) -> None:
        """Remove a lane from the wait, together with all nodes above it that have no other waiting member."""
        lane.gate = None
        self.parked -= 1
        member: Lane = lane
        node: KeyNode | None = lane.node
        while node is not None:
            queue = node.waits[self]
            if next(iter(queue.members)) is member:
                # The turn belonged to the member at the front. Its successor must not inherit it, or it would be moved
                # to the back as if its own turn were over.
                queue.turn = _NO_TURN
            del queue.members[member]
            if queue.members:
                return
            del node.waits[self]
            member, node = node, node.parent

    def wake(self, node: KeyNode, tokens: int) -> Lane | None:
        """Wake and return the lane under a node that gets the next tokens, of as many as there are.

        Return None if no waiting lane could go: lanes under a key that is paused or at its cap are passed over. A lane
        that needs more tokens is not: it stays the next, and ``lacking`` is what it needs. Otherwise lanes with cheap
        items would always take what it waits for.
        """
        queue = node.waits.get(self)
        lane = None
        if queue is not None and node.ring is None:
            lane = self._wake_lane(queue, tokens)
        elif queue is not None:
            lane = self._wake_child(queue, tokens)
            if not queue.members and node.parent is None:
                # The root has no parent whose queue would drop the empty entry, so it is dropped here. Inner nodes keep
                # theirs: an empty queue at the front is what remembers that a child's turn is still going on.
                del node.waits[self]
        return lane

    def need(self, lane: Lane) -> int:
        """Return how many tokens the next item of a lane needs."""
        return self.portion.need(1 if lane.head is None else lane.head.cost)

    def _wake_lane(self, queue: WaitQueue, tokens: int) -> Lane | None:
        if not queue.members:
            return None
        lane = next(iter(queue.members))
        need = self.need(lane)
        if need > tokens:
            self.lacking = need
            return None
        del queue.members[lane]
        lane.gate = None
        self.parked -= 1
        return lane

    def begin(self) -> None:
        """Forget what the last attempt to wake lanes found."""
        self.lacking = 0
        self.is_held = False
        self.woken = {lane: may for lane, may in self.woken.items() if lane.head is not None and lane.gate is None}

    def charge(self, lane: Lane, cost: int) -> None:
        """Record what a woken lane has spent; its next item waits for its turn again."""
        if lane not in self.woken:
            return
        self.woken[lane] = False
        child, node = lane.node, lane.node.parent
        while node is not None:
            queue = node.waits.get(self)
            if queue is not None and next(iter(queue.members), None) is child:
                queue.spent += cost
            child, node = node, node.parent

    def _wake_charged(self, queue: WaitQueue, tokens: int) -> Lane | None:
        """Do what ``_wake_child`` does, with turns that are measured in tokens."""
        for _ in range(2 * len(queue.members) + 1):
            if not queue.members:
                break
            child = next(iter(queue.members)).node
            if queue.turn == _NO_TURN:
                queue.turn, queue.spent = 0, queue.members[child] or 0
            share = child.share * max(1, -(-self._cost_max // self._quantum))
            lane = None
            if queue.spent < share and not child.is_blocked():
                lane = self.wake(child, tokens)
                self.is_held = self.is_held or (lane is None and not self.lacking and self._is_pending(child))
                if lane is not None or self.lacking or self.is_held:
                    return lane
            queue.members[child] = max(0, queue.spent - share)
            queue.turn = _NO_TURN
            queue.members.move_to_end(child)
            if not child.waits[self].members and not self._is_pending(child):
                del queue.members[child]
                del child.waits[self]
        return None

    def _is_pending(self, node: KeyNode) -> bool:
        """Return whether a lane of a leaf has been woken and not parked again."""
        return node.ring is None and any(lane.node is node for lane in self.woken)

    def _wake_child(self, queue: WaitQueue, tokens: int) -> Lane | None:
        """Wake a lane of the front child while its turn lasts, else of the other children in order, each tried once."""
        if self.bucket.charges_cost:
            return self._wake_charged(queue, tokens)
        # One more try than members: the front child is tried again, with a new turn, if all others are blocked or
        # empty.
        for _ in range(len(queue.members) + 1):
            if not queue.members:
                break
            child = next(iter(queue.members)).node
            # The ring, not the gate, decides when a turn is over. The gate notes the number of the turn that it started
            # to spend tokens on; once the child's ring has closed that turn or opened the next, the child goes to the
            # back.
            is_over = queue.turn != _NO_TURN and not (child.is_open and child.turns == queue.turn)
            lane = None if is_over or child.is_blocked() else self.wake(child, tokens)
            if lane is not None:
                if queue.turn == _NO_TURN:
                    # A child that is not open has been parked between turns: its tokens belong to the turn it opens
                    # next.
                    queue.turn = child.turns if child.is_open else child.turns + 1
                return lane
            queue.turn = _NO_TURN
            queue.members.move_to_end(child)
            if not child.waits[self].members:
                del queue.members[child]
                del child.waits[self]
        return None
