"""Limits on what may wait, and who makes room when one is reached."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from heapq import heapify, heappop, heappush

from fairlead.scheduler.item import Item, Key
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
        self._longest: list[tuple[int, int, Key]] = []
        self._pushed = 0
        self._rebuild_at = _REBUILD_FROM
        self.waiting_max = waiting_max
        self.backpressure = backpressure

    def admit(self, leaf: Node, item: Item, waiting: int) -> Refusal | None:
        """Make room for an item of a leaf. Returns a refusal, with nothing changed, if there is none to be made."""
        refusal = self._make_room(leaf, item, waiting)
        if refusal is None and self._longest:
            self._push(item.key, self._length(item.key) + 1)
        return refusal

    def has_room_for(self, count: int, waiting: int) -> bool:
        """Tell whether so many items more may wait in all, and nobody needs to know which keys grow by them."""
        return self.waiting_max is None or (waiting + count <= self.waiting_max and not self._longest)

    def _make_room(self, leaf: Node, item: Item, waiting: int) -> Refusal | None:
        full = self._full_key(leaf)
        if full is not None:
            node, limit, leaves = full
            return self._replace(
                item, self._policy(node), leaves, Refusal(item, RefusalReason.KEY_FULL, node.key, limit)
            )
        if self.waiting_max is not None and waiting >= self.waiting_max:
            refusal = Refusal(item, RefusalReason.GLOBAL_FULL, None, self.waiting_max)
            return self._replace(item, self._policy(leaf), self._longest_first(), refusal)
        return None

    def _full_key(self, leaf: Node) -> tuple[Node, int, list[Node]] | None:
        """Return the first node, from a leaf up, that is at its limit, with the limit and the leaves it counts.

        To make room there is to make room above it too. The general limit is on a key's own items, in place of a
        policy's, which counts those below as well.
        """
        named = leaf.parent if leaf.name is None else leaf
        general = self._keys.key_waiting_max
        if general is not None and named is not None and named.waiting_max is None:
            own = self._keys.leaves_of(leaf.key)
            if sum(twin.waiting for twin in own) >= general:
                return leaf, general, own
        node: Node | None = leaf
        while node is not None:
            if node.waiting_max is not None:
                twins = self._keys.twins(node)
                if sum(twin.waiting for twin in twins) >= node.waiting_max:
                    return node, node.waiting_max, self._leaves_under(twins)
            node = node.parent
        return None

    def _replace(self, item: Item, policy: Backpressure, leaves: Iterable[Node], refusal: Refusal) -> Refusal | None:
        """Drop one of the items of these leaves in favour of a new one, if the policy is to and there is one."""
        if policy is Backpressure.REJECT:
            return refusal
        if policy is Backpressure.WAIT:
            return replace(refusal, should_wait=True)
        victims = (_victim_of(leaf, item, policy) for leaf in leaves)
        victim = next((victim for victim in victims if victim is not None), None)
        if victim is None:
            return refusal
        self._drop(victim)
        return None

    def _policy(self, node: Node | None) -> Backpressure:
        """Return what the nearest key from here up says, or the general rule."""
        while node is not None:
            if node.backpressure is not None:
                return node.backpressure
            node = node.parent
        return self.backpressure

    def _leaves_under(self, twins: list[Node]) -> list[Node]:
        leaves = [leaf for twin in twins for leaf in self._keys.leaves_under(twin)]
        return sorted(leaves, key=lambda leaf: (-leaf.priority, -leaf.waiting))

    def _longest_first(self) -> Iterator[Node]:
        """Yield the leaves of the key with the most items; if they have no victim, all the others, most items first."""
        if not self._longest:
            self._rebuild()
        lengths = self._longest
        while lengths and self._length(lengths[0][2]) != -lengths[0][0]:
            _, _, key = heappop(lengths)
            if length := self._length(key):
                self._push(key, length)
        if lengths:
            yield from self._keys.leaves_of(lengths[0][2])
            for key in sorted(self._keys.leaf_keys(), key=self._length, reverse=True):
                yield from self._keys.leaves_of(key)

    def _length(self, key: Key) -> int:
        return sum(leaf.waiting for leaf in self._keys.leaves_of(key))

    def _rebuild(self) -> None:
        lengths = [(key, length) for key in self._keys.leaf_keys() if (length := self._length(key))]
        self._longest = [(-length, at, key) for at, (key, length) in enumerate(lengths)]
        heapify(self._longest)
        self._pushed = len(lengths)
        self._rebuild_at = max(_REBUILD_FROM, 4 * len(lengths))

    def _push(self, key: Key, length: int) -> None:
        if len(self._longest) >= self._rebuild_at:
            self._longest = []  # mostly out of date by now: looked for anew when needed
            return
        self._pushed += 1
        heappush(self._longest, (-length, self._pushed, key))


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
