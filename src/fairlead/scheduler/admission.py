"""Limits on what may wait, and who makes room when one is reached."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush

from fairlead.scheduler.item import Item
from fairlead.scheduler.keys import Keys
from fairlead.scheduler.policy import Backpressure, Refusal, RefusalReason
from fairlead.scheduler.tree import Node

_REBUILD_FROM = 64


class Admission:
    """Decides whether an item may wait.

    With a dropping policy the victim comes from the key that is over its limit, or, when it is the limit on everything,
    from the key with the most items: a flood never pushes out the quiet. Victims are of the lowest priority first, and
    never of a higher one than the newcomer. Items that are not due yet are not dropped.
    """

    def __init__(
        self,
        keys: Keys,
        *,
        waiting_max: int | None,
        backpressure: Backpressure,
        drop: Callable[[Item], None],
    ) -> None:
        self._keys = keys
        self._drop = drop
        self._longest: list[tuple[int, int, Node]] = []
        self._pushed = 0
        self._rebuild_at = _REBUILD_FROM
        self.waiting_max = waiting_max
        self.backpressure = backpressure

    def admit(self, leaf: Node, item: Item, waiting: int) -> Refusal | None:
        """Make room for an item of a leaf. Returns a refusal, with nothing changed, if there is none to be made."""
        node: Node | None = leaf
        while node is not None:
            if node.waiting_max is not None and self._waiting(node) >= node.waiting_max:
                policy = node.backpressure or self.backpressure
                victim = self._victim(self._leaves_under(node), item, policy)
                if victim is None:
                    should_wait = policy is Backpressure.WAIT
                    return Refusal(item, RefusalReason.KEY_FULL, node.key, node.waiting_max, should_wait)
                self._drop(victim)
                return None  # one fewer under this key is one fewer in all
            node = node.parent
        if self.waiting_max is not None and waiting >= self.waiting_max:
            return self._admit_beyond_all(leaf, item)
        return None

    def forget_lengths(self) -> None:
        """Note that keys have grown unseen, so that the longest must be looked for anew."""
        self._longest = []

    def _admit_beyond_all(self, leaf: Node, item: Item) -> Refusal | None:
        policy = leaf.backpressure or self.backpressure
        victim = self._victim(self._longest_first(), item, policy)
        if victim is None:
            should_wait = policy is Backpressure.WAIT
            return Refusal(item, RefusalReason.GLOBAL_FULL, None, self.waiting_max, should_wait)
        self._drop(victim)
        self._push(leaf, leaf.waiting + 1)
        return None

    def _waiting(self, node: Node) -> int:
        return sum(twin.waiting for twin in self._keys.twins(node))

    def _victim(self, leaves: Iterable[Node], item: Item, policy: Backpressure) -> Item | None:
        if policy in (Backpressure.REJECT, Backpressure.WAIT):
            return None
        victims = (_victim_of(leaf, item, policy) for leaf in leaves)
        return next((victim for victim in victims if victim is not None), None)

    def _leaves_under(self, node: Node) -> list[Node]:
        leaves = [leaf for twin in self._keys.twins(node) for leaf in self._keys.leaves_under(twin)]
        return sorted(leaves, key=lambda leaf: (-leaf.priority, -leaf.waiting))

    def _longest_first(self) -> Iterator[Node]:
        """Yield the leaf with the most items; if it has no victim, all the others, most items first."""
        if not 0 < len(self._longest) < self._rebuild_at:
            self._rebuild()
        lengths = self._longest
        while lengths and lengths[0][2].waiting != -lengths[0][0]:
            _, _, leaf = heappop(lengths)
            if leaf.waiting:
                self._push(leaf, leaf.waiting)
        if lengths:
            yield lengths[0][2]
            yield from sorted(self._keys.all_leaves(), key=lambda leaf: -leaf.waiting)

    def _rebuild(self) -> None:
        self._longest = [(-leaf.waiting, at, leaf) for at, leaf in enumerate(self._keys.all_leaves()) if leaf.waiting]
        heapify(self._longest)
        self._pushed = len(self._longest)
        self._rebuild_at = max(_REBUILD_FROM, 4 * len(self._longest))

    def _push(self, leaf: Node, waiting: int) -> None:
        self._pushed += 1
        heappush(self._longest, (-waiting, self._pushed, leaf))


def _victim_of(leaf: Node, item: Item, policy: Backpressure) -> Item | None:
    """Return who of a leaf must go for a new item, or None if all that wait rank above it."""
    lanes = leaf.lanes()
    ranks = {lane.priority for lane in lanes if lane.head is not None and lane.priority >= item.priority}
    if not ranks:
        return None
    lowest = [lane for lane in lanes if lane.priority == max(ranks)]
    if policy is Backpressure.DROP_OLDEST:
        return min((lane.head for lane in lowest if lane.head is not None), key=lambda head: head.sequence)
    return max((lane.tail for lane in lowest if lane.tail is not None), key=lambda tail: tail.sequence)
