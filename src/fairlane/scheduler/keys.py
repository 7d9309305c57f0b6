"""The keys that a kernel knows: created when an item names them, ruled by policies, forgotten when idle.

Theory of operation
-------------------
The tree has one invariant: a node is ready, and has a place in its parent's ring, exactly while something under it can
be handed out. Offers, tokens, releases, pauses and policies all change that, and all of them end in ``refresh``, which
walks up and brings each node in line. No other code changes readiness, except for the two hot paths that know the
answer (``emptied`` here, ``serve_plain`` in ``turns``).

With strict priority there is one tree per priority. The nodes of one key in these trees are *twins*: they take turns
independently, but share cap, pause and items in use, since those belong to the key.

A key that has sub-keys may also have items of its own. They live in a nameless child (``name is None``) beside the
sub-keys, so that every item is in a leaf and every ring has children only.

Keys are remembered after their last item, up to a number, because a debt must outlast an empty queue. Entries of a
forgotten node in rings and gates are left behind on purpose; see ``tree``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeAlias

from fairlane.scheduler.buckets import Throttles, rate_family
from fairlane.scheduler.compiled import Life
from fairlane.scheduler.gates import WaitQueue
from fairlane.scheduler.item import Item, Key, Priority, canonical_key, path_of
from fairlane.scheduler.key_limits import InUseLimit, KeyRate
from fairlane.scheduler.lanes import Lane, StopWatch
from fairlane.scheduler.policy import KeyPolicy
from fairlane.scheduler.portions import Portion
from fairlane.scheduler.token_bucket import Limit
from fairlane.scheduler.tree import KeyNode, Ring

PolicyProvider: TypeAlias = Callable[[Key], KeyPolicy | None]
"""A function that returns the policy of a key when the key is first seen; None means the default."""

_DEFAULT_POLICY = KeyPolicy()
_LANES_KEPT = 16
_HASHABLE = (str, tuple)


class Keys:
    """A tree of keys, or with strict priority one per priority, in which the nodes of one key are *twins*.

    Weight, cap, pause and items in use are the same for all twins of a key. With ``is_timed`` every item carries how
    long it was held up, which the fast path through ``take`` would not tell.

    Attributes:
        now_ms: the present instant, as passed to the kernel.
        has_clocks: whether any lane has ever been parked or any key at its cap, so that stopwatches exist.
        open_lanes: the lanes with throttles that have items and are not parked.
        limited: the keys with a cap or a rate that are ready.
        has_rates: whether any key has ever had a rate.
        has_charges: whether any key has ever had one that charges by cost.
        has_limits: whether any key has ever had a limit on its waiting items.
        capacity: how many items may be in use in all, and the keys that wait because there are as many.
    """

    def __init__(
        self,
        throttles: Throttles,
        *,
        quantum: int,
        key_waiting_max: int | None,
        is_strict: bool,
        counts_use: bool,
        idle_keys_max: int,
        name: str = "",
        is_timed: bool = False,
    ) -> None:
        self._name = name
        self._is_timed = is_timed
        self._life = Life()
        self._portions: dict[str, Portion] = {}
        self.counts_use = counts_use
        self._has_twins_to_tell = is_strict and counts_use
        self._throttles = throttles
        self.roots = [_root(priority) for priority in (Priority if is_strict else (Priority.NORMAL,))]
        self.leaves: list[dict[Key, KeyNode]] = [{} for _ in self.roots]
        self._provider: PolicyProvider | None = None
        self.is_strict = is_strict
        self.normal_band = int(Priority.NORMAL) if is_strict else 0  # what ``band`` returns for most items
        self.quantum = quantum
        self.key_waiting_max = key_waiting_max
        self.has_limits = key_waiting_max is not None
        self._policies: dict[Key, KeyPolicy] = {}
        self._paused: set[Key] = set()
        self._idle: deque[KeyNode] = deque()
        self.now_ms = 0
        self.has_clocks = is_timed
        self.open_lanes: dict[Lane, None] = {}
        self.limited: set[KeyNode] = set()
        self.has_rates = self.has_charges = False
        self.capacity = InUseLimit()
        self._idle_keys_max = idle_keys_max

    def band(self, priority: Priority) -> int:
        """Return the index of the tree that holds the items of a priority."""
        return int(priority) if self.is_strict else 0

    def leaf_of(self, item: Item) -> KeyNode:
        """Return the leaf of an item, creating it if needed."""
        band: int = item.priority if self.is_strict else 0
        leaf = self.leaves[band].get(item.key)
        return leaf if leaf is not None else self._make_leaf(band, item.key)

    def leaf_for(self, key: Key, priority: Priority) -> KeyNode:
        """Return the leaf for a key and a priority, creating it if needed."""
        band = self.band(priority)
        leaf = self.leaves[band].get(key) if type(key) in _HASHABLE else None
        if leaf is None:
            key = canonical_key(key)
            leaf = self.leaves[band].get(key)
        return leaf if leaf is not None else self._make_leaf(band, key)

    def find(self, key: Key) -> list[KeyNode]:
        """Return the existing nodes of a key, one per tree. Inner keys have nodes too."""
        path = path_of(canonical_key(key))
        found = []
        for root in self.roots:
            node: KeyNode | None = root
            for name in path:
                node = node.ring.children.get(name) if node is not None and node.ring is not None else None
            if node is not None:
                found.append(node)
        return found

    def twins(self, node: KeyNode) -> list[KeyNode]:
        """Return the nodes of the same key as this one, including itself."""
        if not self.is_strict:
            return [node]
        twins = self.find(node.key)
        if node.name is None:
            return [child for twin in twins if (child := _children(twin).get(None)) is not None]
        return twins

    def set_policy(self, key: Key, policy: KeyPolicy | None) -> None:
        """Set the policy of a key, or with None return to the provider's. It acts on the backlog at once."""
        key = canonical_key(key)
        before = self._policies.pop(key, None)
        try:
            if policy is not None:
                self._policies[key] = self._allow(policy)
            self.refresh_policy(key)
        except BaseException:
            if before is not None:
                self._policies[key] = before
            raise

    def refresh_policy(self, key: Key) -> None:
        """Look up and apply the policy of a key again."""
        for node in self.find(key):
            self._apply_policy(node, self._policy_for(node))

    def set_provider(self, provider: PolicyProvider | None) -> None:
        """Set the function that returns policies. It acts on the backlog at once."""
        before, self._provider = self._provider, provider
        try:
            # Ask about every key before anything is applied: a provider that raises leaves all policies as they were.
            # By name: keys that a limit has held back come back in this order, and a replay, whose nodes were created
            # in another one, must bring them back in the same.
            nodes = sorted(self.nodes(), key=lambda node: path_of(node.key))
            policies = [(node, self._policy_for(node)) for node in nodes]
        except BaseException:
            self._provider = before
            raise
        for node, policy in policies:
            self._apply_policy(node, policy)

    def set_paused(self, key: Key, *, is_paused: bool) -> None:
        """Pause or resume everything under a key."""
        key = canonical_key(key)
        (self._paused.add if is_paused else self._paused.discard)(key)
        for node in self.find(key):
            node.is_paused = is_paused
            self.refresh(node)

    def nodes(self) -> Iterator[KeyNode]:
        """Yield every node but the roots."""
        stack = [child for root in self.roots for child in _children(root).values()]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(_children(node).values())

    def count_waiting(self) -> int:
        """Count all items that wait, key by key."""
        return sum(child.waiting for root in self.roots for child in _children(root).values())

    def all_leaves(self) -> Iterator[KeyNode]:
        """Yield every leaf."""
        for leaves in self.leaves:
            yield from leaves.values()

    def leaf_keys(self) -> list[Key]:
        """Return the keys that have a leaf, each once, in an order that is the same in a replay."""
        return list(dict.fromkeys(key for leaves in self.leaves for key in leaves))

    def leaves_of(self, key: Key) -> list[KeyNode]:
        """Return the leaves of a key, one per tree, lowest priority first."""
        return [leaves[key] for leaves in reversed(self.leaves) if key in leaves]

    def longest_child(self, twins: list[KeyNode]) -> list[KeyNode]:
        """Return the child of these twins with the most items, as a list of its twins; of several the first by name.

        A leaf counts as its own child.
        """
        below: dict[str | None, list[KeyNode]] = {}
        for twin in twins:
            children = {None: twin} if twin.ring is None else _children(twin)
            for name, child in children.items():
                below.setdefault(name, []).append(child)
        return min(below.items(), key=lambda child: (-sum(node.waiting for node in child[1]), child[0] or ""))[1]

    def lane_of(self, leaf: KeyNode, item: Item) -> Lane:
        """Return the lane of a leaf that an item belongs to, creating it if needed."""
        if not item.throttles and (item.priority == Priority.NORMAL or self.is_strict):
            return leaf
        extra = leaf.extra
        if extra is None:
            extra = leaf.begin_lanes()
            self._classify(leaf)
        sort = (item.priority, item.throttles)
        lane = extra.get(sort)
        if lane is None:
            lane = extra[sort] = Lane(leaf, item.priority, tuple([self._join(name) for name in item.throttles]))
        return lane

    def _join(self, throttle: str) -> Portion:
        """Return the kernel's portion of a throttle for one more lane."""
        portion = self._portions.get(throttle)
        if portion is None:
            portion = self._portions[throttle] = self._throttles.join(throttle, self._name, self._life, self.now_ms)
        portion.lanes += 1
        return portion

    def _leave(self, lane: Lane) -> None:
        """Undo ``_join`` for the throttles of a lane that is forgotten."""
        for portion in lane.portions:
            portion.lanes -= 1
            if not portion.lanes:
                del self._portions[portion.bucket.name]
                self._throttles.leave(portion, self.now_ms)

    def leave_throttles(self) -> None:
        """Undo ``_join`` for all throttles of a kernel that is not used again."""
        for portion in self._portions.values():
            self._throttles.leave(portion, self.now_ms)
        self._portions = {}
        for node in self.nodes() if self.has_rates else ():
            self._remove_rate(node)

    def refresh(self, node: KeyNode) -> None:
        """Bring the readiness of a node, and of the nodes above it, in line with what it holds."""
        parent = node.parent
        # The walk goes on to the root even where readiness did not change: a sleeping node must work out its rounds
        # again if its next item, share or deficit changed, at every level.
        while parent is not None and parent.ring is not None:
            if node.cap is not None or node.capped is not None or node.is_crowded:
                self._note_cap(node)
            ready = node.can_serve()
            if node.cap is not None or node.rate is not None:
                (self.limited.add if ready else self.limited.discard)(node)
            if ready == node.is_ready:
                if ready:
                    parent.ring.reconsider(node)
                elif node.waiting == node.delayed and not node.is_idle:
                    parent.ring.empty(node)
            else:
                node.is_ready = ready
                (parent.ring.enter if ready else parent.ring.leave)(node)
                if not ready and parent.rate is not None and parent.rate.is_saving:
                    parent.rate.open(self.now_ms)  # perhaps it saved tokens for an item of this node
            self._classify(node)
            self.note_idle(node)
            node, parent = parent, parent.parent

    def _note_cap(self, node: KeyNode) -> None:
        is_capped = node.is_crowded or (node.cap is not None and node.in_use >= node.cap)
        if node.capped is None and is_capped:
            node.capped = StopWatch()
            self.has_clocks = True
        if node.capped is not None:
            node.capped.note(self.now_ms, is_so=is_capped)

    def emptied(self, ring: Ring, node: KeyNode) -> None:
        """Record that a plain key has been served its last item. Does what ``refresh`` would do, without the walk."""
        node.tail = None
        node.deficit = 0
        node.is_ready = node.is_plain = node.is_queued = False
        node.is_idle = True
        ring.ready -= 1
        if not node.is_forgettable:
            self.note_idle(node)

    def use(self, node: KeyNode, count: int) -> None:
        """Count items of a key as in use, in all its twins. Own items of an inner key are counted at that key."""
        if node.name is None:
            return
        for twin in self.twins(node):
            twin.in_use += count
            if twin.cap is not None:
                self.refresh(twin)

    def hand_out(self, node: KeyNode, count: int) -> None:
        """Count items of the key being served as in use. Below its cap nothing else depends on the count."""
        if self.is_strict:
            self.use(node, count)
        elif node.name is not None:
            node.in_use += count
            if node.cap is not None and node.in_use >= node.cap:
                self.refresh(node)

    def release(self, key: Key, count: int) -> bool:
        """Count items of a key as no longer in use. Return False, with nothing changed, if fewer are in use."""
        leaf = None if self.is_strict or type(key) not in _HASHABLE else self.leaves[0].get(key)
        if leaf is not None and leaf.is_simple and leaf.in_use >= count:  # nothing depends on the count
            leaf.in_use -= count
            if not leaf.waiting and not leaf.is_forgettable:
                self.note_idle(leaf)
            return True
        if self.capacity.most is not None:
            return self._release_capacity(path_of(canonical_key(key)), count)
        if leaf is None:
            return self._release_path(path_of(canonical_key(key)), count)
        node = leaf if leaf.name is not None else leaf.parent
        if node is None or node.in_use < count:
            return False
        if _is_undisturbed(node):  # the count changes no readiness, so no node needs a refresh
            self._release_quietly(leaf, node, count)
            return True
        while (parent := node.parent) is not None:
            self._release_node(node, count)
            node = parent
        return True

    def _release_quietly(self, leaf: KeyNode, node: KeyNode, count: int) -> None:
        while (parent := node.parent) is not None:
            node.in_use -= count
            if node.ring is not None and not node.in_use:
                self._prune(node)
            node = parent
        if not leaf.waiting and not leaf.is_forgettable:
            self.note_idle(leaf)

    def _release_path(self, path: tuple[str, ...], count: int) -> bool:
        if not any(node.in_use >= count for node in self.find(path)):
            return False
        for depth in range(len(path), 0, -1):
            for node in self.find(path[:depth]):
                self._release_node(node, count)
        return True

    def set_in_use_max(self, most: int | None) -> None:
        """Limit how many items may be in use in all, or with None no longer."""
        in_use = {node.key: node.in_use for root in self.roots for node in _children(root).values()}
        # In the order in which they were crowded out. That of the nodes depends on a past that a replay may not know.
        for node in self.capacity.set(most, sum(in_use.values())):
            self.refresh(node)
        for node in self.nodes():  # the fast paths know no such limit
            self._classify(node)

    def crowd_out(self, leaf: KeyNode) -> bool:
        """Hold the outermost key of a leaf back if no more items of it may be in use. Return whether that is so."""
        node = leaf.outermost()
        if self.capacity.allowance(node) > 0:
            return False
        self.capacity.wait(node)
        self.refresh(node)
        return True

    def admit(self, count: int = 1) -> bool:
        """Bring back keys that were crowded out, if more items may be in use now. Return whether there were any."""
        admitted = self.capacity.admit(count)
        for node in admitted:
            self.refresh(node)
        return bool(admitted)

    def _release_capacity(self, path: tuple[str, ...], count: int) -> bool:
        if not self._release_path(path, count):
            return False
        self.capacity.in_use -= count
        for node in self.find(path[:1]):
            if node.is_crowded and node.in_use < node.floor:
                node.is_crowded = False
                self.refresh(node)
        return True

    def _release_node(self, node: KeyNode, count: int) -> None:
        node.in_use -= count
        self.refresh(node)
        if node.ring is not None:
            self._prune(node)

    def note_idle(self, node: KeyNode) -> None:
        """Add a key without items to the keys that may be forgotten; the one idle longest goes first."""
        if node.is_forgettable or node.waiting or node.ring is not None:
            return
        node.is_forgettable = True
        self._idle.append(node)
        if len(self._idle) > self._idle_keys_max:
            oldest = self._idle.popleft()
            oldest.is_forgettable = False
            if oldest.waiting == 0 and oldest.in_use == 0:
                self._forget(oldest)

    def lane_emptied(self, lane: Lane) -> None:
        """Remove an empty lane from its gate, and forget it if its key has many, such as one per recipient."""
        if lane.gate is not None:
            lane.gate.leave(lane)
        elif lane.portions:
            del self.open_lanes[lane]
        lane.parked = None  # the next item of this lane has not been held up by anything yet
        for portion in lane.portions:
            if portion.lane_emptied(self.now_ms):
                self._throttles.note_returned(portion.bucket)
        extra = lane.node.extra
        if extra is not None and len(extra) > _LANES_KEPT and lane is not lane.node:
            del extra[(lane.priority, tuple(portion.bucket.name for portion in lane.portions))]
            self._leave(lane)

    def _forget(self, node: KeyNode) -> None:
        # Entries that it may still have in the ring or at a gate are harmless: they are skipped because the node is
        # empty.
        node.is_forgettable = True  # code that still holds the node must not add it to the list again
        for lane in (node.extra or {}).values():
            self._leave(lane)
        self._remove_rate(node)
        del self.leaves[self.band(node.priority)][node.key]
        parent = node.parent
        if parent is not None:
            del _children(parent)[node.name]
            self._prune(parent)

    def _prune(self, node: KeyNode) -> None:
        """Forget an inner key that has nothing below it any more, and then the keys above it that are empty too."""
        while (parent := node.parent) is not None and not _children(node) and not node.in_use:
            _children(parent).pop(node.name, None)
            self._remove_rate(node)
            node = parent

    def _make_leaf(self, band: int, key: Key) -> KeyNode:
        path = path_of(key)
        node = self.roots[band]
        try:
            for depth, name in enumerate(path, start=1):
                node = self._make_step(node, name, path[:depth], is_inner=depth < len(path))
        except BaseException:
            # A policy provider raised halfway down the path. The steps made so far have no leaf: remove them again.
            self._prune(node)
            raise
        if node.ring is not None:
            node = self._make_node(node, None, path, None)
        self.leaves[band][key] = node
        self._classify(node)
        return node

    def _make_step(self, parent: KeyNode, name: str, path: tuple[str, ...], *, is_inner: bool) -> KeyNode:
        child = _children(parent).get(name)
        if child is None:
            return self._make_node(parent, name, path, Ring() if is_inner else None)
        return self._grow(child) if is_inner and child.ring is None else child

    def _make_node(self, parent: KeyNode, name: str | None, path: tuple[str, ...], ring: Ring | None) -> KeyNode:
        node = KeyNode(canonical_key(path), name, parent)
        policy = self._policy_for(node)
        node.priority = parent.priority
        node.ring = ring
        _children(parent)[name] = node
        self._set_terms(node, policy)
        node.is_paused = name is not None and node.key in self._paused
        node.in_use = max((twin.in_use for twin in self.twins(node)), default=0)
        return node

    def _grow(self, leaf: KeyNode) -> KeyNode:
        """Turn a leaf into an inner key. Its own items become a nameless child beside the sub-keys.

        The new inner node takes over everything that the outside knows of the leaf: its position in the ring, the turn
        and deficit it has, and its positions at gates. The leaf starts afresh below it, with the items and lanes it
        had. So nothing is lost or gained when the first sub-key of a tenant appears in the middle of a turn.
        """
        parent = leaf.parent
        if parent is None or parent.ring is None:
            raise AssertionError("A root is never a leaf.")
        policy = self._policy_for(leaf)
        group = KeyNode(leaf.key, leaf.name, parent)
        group.priority = leaf.priority
        group.ring = Ring()
        group.waiting, group.delayed, group.in_use = leaf.waiting, leaf.delayed, leaf.in_use
        group.is_paused = leaf.is_paused
        group.capped, leaf.capped = leaf.capped, None
        self.capacity.replace(leaf, group)
        group.rate, leaf.rate = leaf.rate, None
        if group.rate is not None:
            group.rate.node = group
        _children(parent)[leaf.name] = group
        parent.ring.replace(leaf, group)
        for gate in leaf.waits:
            group.wait_at(gate, WaitQueue(leaf))
            parent.waits[gate].replace(leaf, group)
        leaf.name, leaf.parent = None, group
        leaf.detach()
        group.ring.children[None] = leaf
        self._apply_policy(group, policy)
        self._apply_policy(leaf, _DEFAULT_POLICY)
        return group

    def _policy_of(self, key: Key) -> KeyPolicy:
        """Return the effective policy: the one set for the key, else the provider's, else the default."""
        policy = self._policies.get(key)
        if policy is None and self._provider is not None:
            policy = self._provider(key)
        return self._allow(policy) if policy is not None else _DEFAULT_POLICY

    def _policy_for(self, node: KeyNode) -> KeyPolicy:
        return _DEFAULT_POLICY if node.name is None else self._policy_of(node.key)

    def _allow(self, policy: KeyPolicy) -> KeyPolicy:
        if policy.cap is not None and not self.counts_use:
            raise ValueError("A cap needs counts_use=True, which counts items from hand-out to release.")
        return policy

    def _apply_policy(self, node: KeyNode, policy: KeyPolicy) -> None:
        # A sleeper's rounds were worked out with the old share. Credit those that passed before the share changes.
        if node.wake_round and node.parent is not None and node.parent.ring is not None:
            node.parent.ring.reconsider(node)
        self._set_terms(node, policy)
        self.refresh(node)

    def _set_terms(self, node: KeyNode, policy: KeyPolicy) -> None:
        share = policy.weight * (policy.quantum or self.quantum)
        if node.is_open:
            # A smaller weight acts on the open turn too. Between turns the deficit is what the key has saved up for an
            # expensive item, which stays.
            node.deficit = min(node.deficit, share)
        node.share = share
        node.cap = policy.cap
        if node.floor != policy.floor:
            node.floor = policy.floor
            node.is_crowded = False  # until its turn shows otherwise
        if policy.cap is None and policy.rate is None:
            self.limited.discard(node)
        if policy.rate is not None or node.rate is not None:
            self._set_rate(node, policy)
        node.backpressure = policy.backpressure
        node.waiting_max = policy.waiting_max
        self.has_limits = self.has_limits or policy.waiting_max is not None

    def _set_rate(self, node: KeyNode, policy: KeyPolicy) -> None:
        """Give a key the rate of its policy, or none. A key that is shut opens, until its turn shows otherwise."""
        before = node.rate
        if policy.rate is None:
            self._remove_rate(node)
            return
        limit = Limit(policy.rate, policy.burst, policy.charges_cost, family=rate_family(self._name))
        bucket = self._throttles.join_key(self._name, node.key, limit, self.now_ms)
        self.has_charges = self.has_charges or policy.charges_cost
        if before is None:
            node.rate = KeyRate(node, bucket)
            self.has_rates = True
        else:
            self._throttles.leave_key(bucket, self.now_ms)  # it has been joined before
            before.open(self.now_ms)

    def _remove_rate(self, node: KeyNode) -> None:
        if node.rate is not None:
            node.rate.open(self.now_ms)  # its timer is stale from now on
            self._throttles.leave_key(node.rate.bucket, self.now_ms)
            node.rate = None

    def _classify(self, node: KeyNode) -> None:
        """Decide whether a node may take the fast paths through ``offer_many`` and ``take``."""
        is_flat = node.ring is None and node.parent is not None and node.parent.parent is None
        is_unlimited = node.waiting_max is None and self.key_waiting_max is None
        is_free = node.cap is None and node.rate is None and self.capacity.most is None
        node.is_simple = is_flat and is_unlimited and is_free and node.capped is None
        is_quick = is_free and not self._has_twins_to_tell and not self._is_timed
        node.is_plain = is_flat and node.is_ready and is_quick and node.has_one_lane()


def _is_undisturbed(node: KeyNode) -> bool:
    """Return whether a change of ``in_use`` cannot change readiness: no cap on the path, and no sleeping node."""
    if node.parent is not None and node.parent.parent is None and node.ring is None:
        return node.cap is None
    at: KeyNode | None = node
    while at is not None:
        if at.cap is not None or at.capped is not None or at.wake_round:
            return False
        at = at.parent
    return True


def _root(priority: Priority) -> KeyNode:
    root = KeyNode("", None, None)
    root.priority = priority
    root.ring = Ring()
    return root


def _children(node: KeyNode) -> dict[str | None, KeyNode]:
    return node.ring.children if node.ring is not None else {}
