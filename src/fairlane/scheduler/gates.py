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
        turn: the turn of the front child that a token has been spent on, or ``_NO_TURN``.
    """

    __slots__ = ("members", "turn")

    def __init__(self, first: Lane) -> None:
        self.members = OrderedDict.fromkeys((first,))
        self.turn = _NO_TURN

    def replace(self, old: Lane, new: Lane) -> None:
        """Put a new member in the position of an old one."""
        self.members = OrderedDict.fromkeys(new if member is old else member for member in self.members)


class Gate:
    """The lanes of one kernel that wait for one bucket.

    Attributes:
        armed_ms: when the kernel will open it next; None if no timer is set.
    """

    __slots__ = ("armed_ms", "bucket", "portion")

    def __init__(self, portion: Portion) -> None:
        self.portion = portion
        self.bucket = portion.bucket
        self.armed_ms: int | None = None

    def park(self, lane: Lane) -> None:
        """Add a lane to the wait, together with its node and all nodes above it that do not wait yet."""
        lane.gate = self
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

    def wake(self, node: KeyNode) -> Lane | None:
        """Wake and return the lane under a node that gets the next token.

        Return None if no waiting lane could go: lanes under a key that is paused or at its cap are passed over.
        """
        queue = node.waits.get(self)
        lane = None
        if queue is not None and node.ring is None:
            lane = self._wake_lane(queue)
        elif queue is not None:
            lane = self._wake_child(queue)
            if not queue.members and node.parent is None:
                # The root has no parent whose queue would drop the empty entry, so it is dropped here. Inner nodes keep
                # theirs: an empty queue at the front is what remembers that a child's turn is still going on.
                del node.waits[self]
        return lane

    def _wake_lane(self, queue: WaitQueue) -> Lane | None:
        if not queue.members:
            return None
        lane, _ = queue.members.popitem(last=False)
        lane.gate = None
        return lane

    def _wake_child(self, queue: WaitQueue) -> Lane | None:
        """Wake a lane of the front child while its turn lasts, else of the other children in order, each tried once."""
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
            lane = None if is_over or child.is_blocked() else self.wake(child)
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
