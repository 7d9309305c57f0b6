"""Where throttled lanes wait, and in which order they get the tokens.

Theory of operation
-------------------
A bucket may hold back one lane or ten thousand. Waking all of them at every token would cost O(lanes) for one item, so
lanes wait at a *gate* in an order, and a token wakes one of them. That order must be the one deficit round robin would
have chosen, or a tenant with many lanes would get many times the tokens. So the waiting lanes form a tree of the same
shape as the keys: every node holds, for each gate, a queue of those of its children that wait there. The child at the
front is asked as long as its turn lasts; then it goes to the back. At each level this gives turns in turn, weighted.

A child that has been woken keeps its place at the front, even while nothing of it waits, until its turn is over.
Being woken is not being served: a woken lane is merely ready, and the ring decides. If the token is gone by the time
its turn comes, the lane parks again.
"""

from __future__ import annotations

from collections import OrderedDict

from fairlane.scheduler.buckets import Bucket
from fairlane.scheduler.lanes import Lane
from fairlane.scheduler.tree import KeyNode

_NOBODY = -1


class WaitQueue:
    """The members of one node that wait at one gate: child nodes, or the lanes of a leaf.

    Attributes:
        turn: the turn of the front child that a token has been spent on, or ``_NOBODY``.
    """

    __slots__ = ("members", "turn")

    def __init__(self, first: Lane) -> None:
        self.members = OrderedDict.fromkeys((first,))
        self.turn = _NOBODY

    def replace(self, old: Lane, new: Lane) -> None:
        """Let a new member take the place of an old one."""
        self.members = OrderedDict.fromkeys(new if member is old else member for member in self.members)


class Gate:
    """What waits in one kernel for one bucket.

    Attributes:
        armed_ms: when the kernel will look at it again; None for not at all.
    """

    __slots__ = ("armed_ms", "bucket")

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        self.armed_ms: int | None = None

    def park(self, lane: Lane) -> None:
        """Let a lane wait, with its node and all nodes above it that do not wait yet."""
        lane.gate = self
        member: Lane = lane
        node: KeyNode | None = lane.node
        while node is not None:
            queue = node.waits.get(self)
            if queue is not None:
                queue.members[member] = None
                return
            node.wait_at(self, WaitQueue(member))
            member, node = node, node.parent

    def leave(self, lane: Lane) -> None:
        """Let a lane wait no longer, and with it all nodes above it of which no other member waits."""
        lane.gate = None
        member: Lane = lane
        node: KeyNode | None = lane.node
        while node is not None:
            queue = node.waits[self]
            if next(iter(queue.members)) is member:
                queue.turn = _NOBODY
            del queue.members[member]
            if queue.members:
                return
            del node.waits[self]
            member, node = node, node.parent

    def wake(self, node: KeyNode) -> Lane | None:
        """Free the lane under a node whose turn it is to have a token.

        Returns None when none waits that could go: those under a key that is paused or at its cap are passed over.
        """
        queue = node.waits.get(self)
        lane = None
        if queue is not None and node.ring is None:
            lane = self._wake_lane(queue)
        elif queue is not None:
            lane = self._wake_child(queue)
            if not queue.members and node.parent is None:
                del node.waits[self]
        return lane

    def _wake_lane(self, queue: WaitQueue) -> Lane | None:
        if not queue.members:
            return None
        lane, _ = queue.members.popitem(last=False)
        lane.gate = None
        return lane

    def _wake_child(self, queue: WaitQueue) -> Lane | None:
        """Ask the child at the front while its turn lasts, then the others in order, each once."""
        for _ in range(len(queue.members) + 1):
            if not queue.members:
                break
            child = next(iter(queue.members)).node
            is_over = queue.turn != _NOBODY and not (child.is_open and child.turns == queue.turn)
            lane = None if is_over or child.is_blocked() else self.wake(child)
            if lane is not None:
                if queue.turn == _NOBODY:
                    queue.turn = child.turns if child.is_open else child.turns + 1
                return lane
            queue.turn = _NOBODY
            queue.members.move_to_end(child)
            if not child.waits[self].members:
                del queue.members[child]
                del child.waits[self]
        return None
