"""A check of everything a kernel holds: all its parts must agree with each other."""

from __future__ import annotations

from typing import Any

from fairlane.scheduler import Kernel
from fairlane.scheduler.item import Item
from fairlane.scheduler.lanes import Lane
from fairlane.scheduler.tree import BOUNDARY, KeyNode, Ring


def check_soundness(kernel: Kernel[Any], items: list[Any]) -> None:
    """Assert that lists, rings and counts of a kernel are intact; ``items`` are those that should wait."""
    keys = kernel._keys
    seen: set[int] = set()
    for root in keys.roots:
        assert root.ring is not None
        check_ring(root.ring)
        for node in root.ring.children.values():
            _check_node(kernel, node, root, seen)
    delayed = {id(item) for item in items if item.lane is kernel._not_due}
    assert seen | delayed == {id(item) for item in items}
    assert len(kernel) == len(items)
    for leaves in keys.leaves:
        for key, leaf in leaves.items():
            assert leaf.key == key
            assert leaf.ring is None
            assert leaf.parent is not None
            assert leaf.parent.ring is not None
            assert leaf.parent.ring.children.get(leaf.name) is leaf


def check_ring(ring: Ring) -> None:
    """Assert that a ring counts its ready children correctly, and that each of them has an entry in it."""
    ready = [child for child in ring.children.values() if child.is_ready]
    assert ring.ready == len(ready)
    assert sum(node is BOUNDARY for node in ring.order) == 1
    sleeping = {id(node) for node in ring.sleepers}
    for child in ready:
        places = [
            ring.serving is child,
            sum(node is child for node in ring.order) == 1,
            sum(node is child for node in ring.resumed) == 1 and not child.is_queued,
            id(child) in sleeping,
        ]
        assert sum(places) == 1, f"{child.key!r} is ready and has the places {places}"
    for node in ring.order:
        assert node is BOUNDARY or node.is_queued
    for node in ring.resumed:
        assert node.is_resuming
    if ring.serving is not None:
        assert ring.serving.is_ready
        assert ring.serving.is_open


def _check_node(kernel: Kernel[Any], node: KeyNode, parent: KeyNode, seen: set[int]) -> None:
    assert node.parent is parent
    assert node.is_ready == node.can_serve()
    assert node.waiting >= node.delayed >= 0
    assert node.in_use >= 0
    if node.ring is not None:
        check_ring(node.ring)
        children = list(node.ring.children.values())
        for child in children:
            _check_node(kernel, child, node, seen)
        assert node.waiting == sum(child.waiting for child in children)
        assert node.delayed == sum(child.delayed for child in children)
        return
    lanes: list[Lane] = [node, *(node.extra or {}).values()]
    counts = [_check_lane(lane, seen) for lane in lanes]
    assert node.waiting - node.delayed == sum(counts)
    for lane, count in zip(lanes, counts, strict=True):
        assert lane.node is node
        if count and node.extra is not None:
            assert lane.gate is not None or lane.is_listed
        if lane.gate is not None:
            assert lane in node.waits[lane.gate].members


def _check_lane(lane: Lane, seen: set[int]) -> int:
    count = 0
    before: Item | None = None
    item = lane.head
    while item is not None:
        assert item.lane is lane
        assert item.previous is before
        assert id(item) not in seen
        seen.add(id(item))
        count += 1
        before, item = item, item.next
    assert lane.tail is before
    return count
