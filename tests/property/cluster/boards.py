"""Boards of all kinds, for properties of what is decided from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hypothesis import strategies as st

from fairlane.cluster.entries import GroupEntry, NodeEntry

NAMES = ("ann", "bob", "cid", "dot", "eve")


@dataclass(frozen=True)
class Scene:
    """Nodes, groups, and who of the nodes lives."""

    nodes: dict[str, NodeEntry]
    groups: dict[str, GroupEntry]
    live: frozenset[str]

    def with_group(self, name: str, entry: GroupEntry) -> Scene:
        return Scene(self.nodes, self.groups | {name: entry}, self.live)


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=len(NAMES)))
    count = draw(st.integers(0, 12))
    loads = draw(st.lists(st.floats(0, 1000), min_size=count, max_size=count))
    homes = draw(st.lists(st.sampled_from((None, "gone", *NAMES)), min_size=count, max_size=count))
    groups = {
        f"group-{at}": GroupEntry(queues=[f"queue-{at}"], home=home, is_pinned=draw(st.booleans()))
        for at, home in enumerate(homes)
    }
    nodes = {
        name: NodeEntry(
            address="",
            beat=1,
            incarnation="",
            is_draining=draw(st.booleans()),
            capacity=draw(st.sampled_from((0.5, 1.0, 1.0, 2.0))),
            load={group: loads[at] for at, group in enumerate(groups) if groups[group].home == name},
        )
        for name in names
    }
    live = draw(st.frozensets(st.sampled_from(names))) if names else frozenset()
    return Scene(nodes, groups, live)


def spread(scene: Scene, weigh: Mapping[str, float]) -> float:
    """How far the heaviest node that may get groups is above the lightest, in plain words."""
    candidates = [name for name in scene.nodes if name in scene.live and not scene.nodes[name].is_draining]
    candidates = candidates or [name for name in scene.nodes if name in scene.live]
    burdens = []
    for node in candidates:
        mine = [weigh[group] for group, entry in scene.groups.items() if entry.home == node]
        burdens.append(sum(mine) / scene.nodes[node].capacity)
    return max(burdens) - min(burdens)
