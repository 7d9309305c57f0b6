"""The keys a kernel knows: made when an item names them, ruled by policies, forgotten when idle."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeAlias

from fairlead.scheduler.buckets import Throttles
from fairlead.scheduler.gates import WaitQueue
from fairlead.scheduler.item import Item, Key, Priority, canonical_key, path_of
from fairlead.scheduler.lanes import Lane
from fairlead.scheduler.policy import KeyPolicy
from fairlead.scheduler.tree import Node, Ring

PolicyProvider: TypeAlias = Callable[[Key], KeyPolicy | None]
"""Asked for the policy of a key when the key is first seen; None means the default."""

_DEFAULT_POLICY = KeyPolicy()
_LANES_KEPT = 16


class Keys:
    """One tree of keys, or with strict priority one for each priority, whose nodes for the same key are *twins*.

    Weight, cap, pause and items in use are the same for all twins of a key.
    """

    def __init__(
        self,
        throttles: Throttles,
        *,
        quantum: int,
        key_waiting_max: int | None,
        is_strict: bool,
        idle_keys_max: int,
    ) -> None:
        self._throttles = throttles
        self.roots = [_root(priority) for priority in (Priority if is_strict else (Priority.NORMAL,))]
        self.leaves: list[dict[Key, Node]] = [{} for _ in self.roots]
        self.provider: PolicyProvider | None = None
        self._is_strict = is_strict
        self._quantum = quantum
        self._key_waiting_max = key_waiting_max
        self._policies: dict[Key, KeyPolicy] = {}
        self._paused: set[Key] = set()
        self._idle: deque[Node] = deque()
        self._idle_keys_max = idle_keys_max

    def band(self, priority: Priority) -> int:
        """Return which tree holds the items of a priority."""
        return int(priority) if self._is_strict else 0

    def leaf_of(self, item: Item) -> Node:
        """Return the leaf an item belongs to, made if there is none."""
        band = self.band(item.priority)
        leaf = self.leaves[band].get(item.key)
        return leaf if leaf is not None else self._make_leaf(band, item.key)

    def find(self, key: Key) -> list[Node]:
        """Return the nodes of a key, one a tree, as far as they exist. Inner keys have nodes too."""
        path = path_of(canonical_key(key))
        found = []
        for root in self.roots:
            node: Node | None = root
            for name in path:
                node = node.ring.children.get(name) if node is not None and node.ring is not None else None
            if node is not None:
                found.append(node)
        return found

    def twins(self, node: Node) -> list[Node]:
        """Return the nodes that stand for the same key as this one, itself included."""
        if len(self.roots) == 1:
            return [node]
        if node.ring is None:
            return [leaves[node.key] for leaves in self.leaves if node.key in leaves]
        return [twin for twin in self.find(node.key) if twin.ring is not None]

    def policy_of(self, key: Key) -> KeyPolicy:
        """Return the policy in force: the one set for the key, else the provider's, else the default."""
        policy = self._policies.get(key)
        if policy is None and self.provider is not None:
            policy = self.provider(key)
        return policy if policy is not None else _DEFAULT_POLICY

    def set_policy(self, key: Key, policy: KeyPolicy | None) -> None:
        """Set the policy of a key, or with None go back to the provider's; it acts on the backlog at once."""
        key = canonical_key(key)
        if policy is None:
            self._policies.pop(key, None)
        else:
            self._policies[key] = policy
        self.refresh_policy(key)

    def refresh_policy(self, key: Key) -> None:
        """Ask again for the policy of a key."""
        for node in self.find(key):
            self._apply_policy(node)

    def set_provider(self, provider: PolicyProvider | None) -> None:
        """Set the function that knows the policies; it acts on the backlog at once."""
        self.provider = provider
        for node in list(self.nodes()):
            self._apply_policy(node)

    def set_paused(self, key: Key, *, is_paused: bool) -> None:
        """Hold back or let go everything under a key."""
        key = canonical_key(key)
        (self._paused.add if is_paused else self._paused.discard)(key)
        for node in self.find(key):
            node.is_paused = is_paused
            self.refresh(node)

    def nodes(self) -> Iterator[Node]:
        """Yield every node but the roots."""
        stack = [child for root in self.roots for child in _children(root).values()]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(_children(node).values())

    def all_leaves(self) -> Iterator[Node]:
        """Yield every leaf."""
        for leaves in self.leaves:
            yield from leaves.values()

    def leaves_under(self, node: Node) -> Iterator[Node]:
        """Yield the leaves of a node, or the node itself if it is one."""
        stack = [node]
        while stack:
            node = stack.pop()
            if node.ring is None:
                yield node
            stack.extend(_children(node).values())

    def lane_of(self, leaf: Node, item: Item) -> Lane:
        """Return the lane of a leaf an item belongs to, made if there is none."""
        if not item.throttles and (item.priority == Priority.NORMAL or self._is_strict):
            return leaf
        extra = leaf.extra
        if extra is None:
            extra = leaf.begin_lanes()
            self._classify(leaf)
        sort = (item.priority, item.throttles)
        lane = extra.get(sort)
        if lane is None:
            lane = extra[sort] = Lane(leaf, item.priority, self._throttles.join(item.throttles))
        return lane

    def refresh(self, node: Node) -> None:
        """Bring a node's readiness, and that of the nodes above it, in line with what it holds."""
        parent = node.parent
        while parent is not None and parent.ring is not None:
            ready = node.can_serve()
            if ready == node.is_ready:
                if ready:
                    parent.ring.reconsider(node)
                elif node.waiting == node.delayed and not node.is_idle:
                    parent.ring.empty(node)
            else:
                node.is_ready = ready
                (parent.ring.enter if ready else parent.ring.leave)(node)
            self._classify(node)
            if node.waiting == 0:
                self.note_idle(node)
            node, parent = parent, parent.parent

    def emptied(self, ring: Ring, node: Node) -> None:
        """Note that a plain key has been served its last item."""
        node.tail = None
        node.deficit = 0
        node.is_ready = node.is_plain = node.is_queued = False
        node.is_idle = True
        ring.ready -= 1
        if not node.is_forgettable:
            self.note_idle(node)

    def use(self, node: Node, count: int) -> None:
        """Change how many items of a key are in use, for all its twins alike."""
        for twin in self.twins(node):
            twin.in_use += count
            if twin.cap is not None:
                self.refresh(twin)

    def note_idle(self, node: Node) -> None:
        """Put a key without items on the list of those to forget; who has been there longest goes first."""
        if node.is_forgettable or node.ring is not None:
            return
        node.is_forgettable = True
        self._idle.append(node)
        if len(self._idle) > self._idle_keys_max:
            oldest = self._idle.popleft()
            oldest.is_forgettable = False
            if oldest.waiting == 0 and oldest.in_use == 0:
                self._forget(oldest)

    def drop_lane(self, lane: Lane) -> None:
        """Forget a lane if it is empty and its key has many, as with a throttle for every recipient."""
        extra = lane.node.extra
        if extra is None or len(extra) <= _LANES_KEPT or lane is lane.node:
            return
        if lane.head is None and lane.gate is None:
            del extra[(lane.priority, tuple(bucket.name for bucket in lane.buckets))]
            self._throttles.leave(lane.buckets)

    def _forget(self, node: Node) -> None:
        # Entries it may still have in the ring or at a gate are harmless: whoever meets them finds it empty.
        for lane in (node.extra or {}).values():
            self._throttles.leave(lane.buckets)
        leaves = self.leaves[self._band_of(node)]
        del leaves[node.key]
        parent = node.parent
        while parent is not None and parent.ring is not None:
            del parent.ring.children[node.name]
            node, parent = parent, parent.parent
            if node.ring is None or node.ring.children:
                return

    def _band_of(self, node: Node) -> int:
        while node.parent is not None:
            node = node.parent
        return self.roots.index(node)

    def _make_leaf(self, band: int, key: Key) -> Node:
        path = path_of(key)
        node = self.roots[band]
        for depth, name in enumerate(path, start=1):
            is_inner = depth < len(path)
            child = _children(node).get(name)
            if child is None:
                child = self._make_node(node, name, path[:depth])
                child.ring = Ring() if is_inner else None
            elif is_inner and child.ring is None:
                child = self._grow(child)
            node = child
        if node.ring is not None:
            node = self._make_node(node, None, path)
        self.leaves[band][key] = node
        self._classify(node)
        self.note_idle(node)
        return node

    def _make_node(self, parent: Node, name: str | None, path: tuple[str, ...]) -> Node:
        node = Node(canonical_key(path), name, parent)
        node.priority = parent.priority
        _children(parent)[name] = node
        self._apply_policy(node)
        node.is_paused = name is not None and node.key in self._paused
        node.in_use = max(twin.in_use for twin in self.twins(node)) if len(self.roots) > 1 else 0
        return node

    def _grow(self, leaf: Node) -> Node:
        """Turn a leaf into an inner key. Its own items become one child beside the sub-keys to come."""
        parent = leaf.parent
        if parent is None or parent.ring is None:
            raise AssertionError("A root is never a leaf.")
        group = Node(leaf.key, leaf.name, parent)
        group.priority = leaf.priority
        group.ring = Ring()
        group.waiting, group.delayed, group.in_use = leaf.waiting, leaf.delayed, leaf.in_use
        group.is_paused = leaf.is_paused
        _children(parent)[leaf.name] = group
        parent.ring.replace(leaf, group)
        for gate in leaf.waits:
            group.wait_at(gate, WaitQueue(leaf))
            members = parent.waits[gate].members
            members[members.index(leaf)] = group
        leaf.name, leaf.parent = None, group
        leaf.detach()
        group.ring.children[None] = leaf
        self._apply_policy(group)
        self._apply_policy(leaf)
        return group

    def _apply_policy(self, node: Node) -> None:
        policy = _DEFAULT_POLICY if node.name is None else self.policy_of(node.key)
        share = policy.weight * (policy.quantum or self._quantum)
        if node.wake_round and node.parent is not None and node.parent.ring is not None:
            node.parent.ring.reconsider(node)
        if share < node.share:
            node.deficit = min(node.deficit, share)
        node.share = share
        node.cap = policy.cap
        node.waiting_max = policy.waiting_max
        if node.waiting_max is None and node.ring is None:
            node.waiting_max = self._key_waiting_max
        node.backpressure = policy.backpressure
        self.refresh(node)

    def _classify(self, node: Node) -> None:
        """Work out whether a node may take the short ways through ``offer_many`` and ``take``."""
        is_flat = node.ring is None and node.extra is None and node.parent is not None and node.parent.parent is None
        node.is_simple = is_flat and node.waiting_max is None
        node.is_plain = is_flat and node.cap is None and node.is_ready


def _root(priority: Priority) -> Node:
    root = Node("", None, None)
    root.priority = priority
    root.ring = Ring()
    return root


def _children(node: Node) -> dict[str | None, Node]:
    return node.ring.children if node.ring is not None else {}
