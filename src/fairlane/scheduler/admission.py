"""Limits on waiting items, and which item is dropped when a limit is reached.

Theory of operation
-------------------
Two kinds of limit exist: on one key (its policy's ``waiting_max``, which counts everything below the key, or the
kernel's ``key_waiting_max``, which counts the key's own items), and on everything (``waiting_max``). Finding the victim
of a dropping policy at the global limit means finding the outermost key with the most items. That is the one question
here that is not local, so it has a structure of its own: a heap of lengths that is built when first needed and
corrected lazily. Kernels that never reach the global limit never pay for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from heapq import heapify, heappop, heappush

from fairlane.scheduler.item import Item, Key, path_of
from fairlane.scheduler.keys import Keys
from fairlane.scheduler.policy import Backpressure, Refusal, RefusalReason
from fairlane.scheduler.tree import KeyNode

_REBUILD_FROM = 64
_DROPPING = (Backpressure.DROP_OLDEST, Backpressure.DROP_NEWEST)


class Admission:
    """Decides whether an item may wait.

    With a dropping policy the victim comes from the key that is at its limit or, at the global limit, from the
    outermost key with the most items, and below that, level by level, again from the child with the most. If that key
    has no item to drop, the new item is refused: a flood never pushes out the work of a quiet tenant. Victims have the
    lowest priority first, and never a higher priority than the new item. Items that are not due yet are never dropped.

    Attributes:
        longest: a heap of the outermost keys by their items, once a victim was searched; while it is empty, items need
            no bookkeeping and plain ones are accepted without asking. Of keys with equally many items the first by name
            comes first: the order must not depend on how items were offered, one by one or as rows.
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
        self.longest: list[tuple[int, str]] = []
        self._rebuild_at = _REBUILD_FROM
        self.waiting_max = waiting_max
        self.backpressure = backpressure

    def admit(self, leaf: KeyNode, item: Item, waiting: int) -> Refusal | None:
        """Make space for an item of a leaf. Return a refusal, with nothing changed, if that is not possible."""
        refusal = self._make_space(leaf, item, waiting)
        if refusal is None and self.longest:
            name = path_of(item.key)[0]
            self._push(name, self._length(name) + 1)
        return refusal

    def _make_space(self, leaf: KeyNode, item: Item, waiting: int) -> Refusal | None:
        full = self._full_key(leaf)
        if full is not None:
            node, limit, twins = full
            return self._replace(
                item, self._policy(node), twins, Refusal(item, RefusalReason.KEY_FULL, node.key, limit)
            )
        if self.waiting_max is not None and waiting >= self.waiting_max:
            policy = self._policy(leaf)
            twins = self._longest_twins() if policy in _DROPPING else []
            return self._replace(item, policy, twins, Refusal(item, RefusalReason.GLOBAL_FULL, None, self.waiting_max))
        return None

    def _full_key(self, leaf: KeyNode) -> tuple[KeyNode, int, list[KeyNode]] | None:
        """Return the first node, from a leaf up, that is at its limit, with the limit and the twins it counts.

        Space made there is space at every limit above it too. The general limit counts a key's own items and applies
        only where the policy sets no limit of its own, which counts the items below the key as well.
        """
        named = leaf.parent if leaf.name is None else leaf
        general = self._keys.key_waiting_max
        if general is not None and named is not None and named.waiting_max is None:
            own = self._keys.leaves_of(leaf.key)
            if sum(twin.waiting for twin in own) >= general:
                return leaf, general, own
        node: KeyNode | None = leaf
        while node is not None:
            if node.waiting_max is not None:
                twins = self._keys.twins(node)
                if sum(twin.waiting for twin in twins) >= node.waiting_max:
                    return node, node.waiting_max, twins
            node = node.parent
        return None

    def _replace(self, item: Item, policy: Backpressure, twins: list[KeyNode], refusal: Refusal) -> Refusal | None:
        """Drop an item under these nodes in favour of a new one, if the policy drops and there is a victim."""
        if policy not in _DROPPING:
            return replace(refusal, should_wait=policy is Backpressure.WAIT)
        victim = self._victim_under(twins, item, policy)
        if victim is None:
            return refusal
        self._drop(victim)
        return None

    def note_rows(self, keys: Iterable[Key]) -> None:
        """Note that items of these keys wait now, which were accepted without asking."""
        for name in dict.fromkeys(path_of(key)[0] for key in keys):
            if self.longest:  # a push may empty it
                self._push(name, self._length(name))

    def victim_for(self, item: Item, policy: Backpressure, key: Key | None) -> Item | None:
        """Return the item that would be dropped for another: one under ``key``, or with None one under the longest
        key.
        """
        twins = self._keys.find(key) if key is not None else self._longest_twins()
        return self._victim_under(twins, item, policy)

    def _victim_under(self, twins: list[KeyNode], item: Item, policy: Backpressure) -> Item | None:
        while any(twin.ring is not None for twin in twins):
            twins = self._keys.longest_child(twins)
        lowest_first = sorted(twins, key=lambda leaf: leaf.priority, reverse=True)
        victims = (_victim_of(leaf, item, policy) for leaf in lowest_first)
        return next((victim for victim in victims if victim is not None), None)

    def _policy(self, node: KeyNode | None) -> Backpressure:
        """Return the policy of the nearest key from here up that sets one, else the general policy."""
        while node is not None:
            if node.backpressure is not None:
                return node.backpressure
            node = node.parent
        return self.backpressure

    def _longest_twins(self) -> list[KeyNode]:
        """Return the nodes of the outermost key with the most items."""
        if not self.longest:
            names = dict.fromkeys(path_of(key)[0] for key in self._keys.leaf_keys())
            self.longest = [(-self._length(name), name) for name in names]
            heapify(self.longest)
            self._rebuild_at = max(_REBUILD_FROM, 4 * len(names))
        lengths = self.longest
        if not lengths:
            return []
        # Lengths shrink without notice (items are taken, expire, are cancelled) but never grow without a push. So an
        # entry is an upper bound: if the top entry is still exact, no key is longer; if not, correct it and look again.
        while (length := self._length(lengths[0][1])) != -lengths[0][0]:
            _, name = heappop(lengths)
            self._push(name, length)
        return self._keys.find(lengths[0][1])

    def _length(self, name: str) -> int:
        return sum(node.waiting for node in self._keys.find(name))

    def _push(self, name: str, length: int) -> None:
        if len(self.longest) >= self._rebuild_at:
            self.longest = []  # most entries are stale by now; the heap is rebuilt when it is needed again
            return
        heappush(self.longest, (-length, name))


def _victim_of(leaf: KeyNode, item: Item, policy: Backpressure) -> Item | None:
    """Return the item of a leaf to drop for a new item, or None if all waiting items have a higher priority."""
    lanes = leaf.lanes()
    ranks = {lane.priority for lane in lanes if lane.head is not None and lane.priority >= item.priority}
    if not ranks:
        return None
    lowest = [lane for lane in lanes if lane.priority == max(ranks)]
    if policy is Backpressure.DROP_OLDEST:
        return min((lane.head for lane in lowest if lane.head is not None), key=lambda head: head.sequence)
    return max((last for lane in lowest if (last := lane.last()) is not None), key=lambda last: last.sequence)
