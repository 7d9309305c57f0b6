"""Where groups go, whatever is on the board."""

from __future__ import annotations

from hypothesis import assume, given

from fairlane.cluster.placement import balancing, group_for, homeless, steward, weights

from .boards import Scene, scenes, spread


def settled(scene: Scene) -> Scene:
    """Put everybody's first decisions on the board."""
    for move in homeless(scene.groups, scene.nodes, scene.live):
        scene = scene.with_group(move.group, move.entry)
    return scene


@given(scenes())
def test_every_group_gets_a_home_that_lives(scene: Scene) -> None:
    """While any node lives, every group ends with one that does, and with one that is not drained if there is one."""
    assume(scene.live)
    homes = {entry.home for entry in settled(scene).groups.values()}
    assert homes <= scene.live
    if any(not scene.nodes[name].is_draining for name in scene.live):
        assert not any(scene.nodes[home].is_draining for home in homes if home is not None)


@given(scenes())
def test_who_has_a_good_home_stays(scene: Scene) -> None:
    """Only groups whose home is none, dead or drained are given another, and one decision is enough."""
    for move in homeless(scene.groups, scene.nodes, scene.live):
        home = scene.groups[move.group].home
        assert home not in scene.live or scene.nodes[str(home)].is_draining
        assert move.is_urgent == (home not in scene.live)
        assert move.entry.moves == scene.groups[move.group].moves + 1
    again = settled(scene)
    assert homeless(again.groups, again.nodes, again.live) == []


@given(scenes())
def test_all_decide_the_same(scene: Scene) -> None:
    """Two nodes that have read the same in another order come to the same decisions."""
    groups = dict(reversed(scene.groups.items()))
    nodes = dict(reversed(scene.nodes.items()))
    live = frozenset(sorted(scene.live, reverse=True))
    assert homeless(groups, nodes, live) == homeless(scene.groups, scene.nodes, scene.live)
    assert balancing(groups, nodes, live) == balancing(scene.groups, scene.nodes, scene.live)
    assert steward(nodes, live) == steward(scene.nodes, scene.live)


@given(scenes())
def test_moves_for_balance_come_to_an_end_and_never_make_it_worse(scene: Scene) -> None:
    """With the same load each move leaves the nodes as even or more, pinned groups stay, and soon there are none."""
    assume(scene.live)
    scene = settled(scene)
    weigh = weights(scene.groups, scene.nodes)
    moved: list[str] = []
    while (move := balancing(scene.groups, scene.nodes, scene.live)) is not None:
        entry = scene.groups[move.group]
        assert not entry.is_pinned
        assert entry.home != move.home
        after = scene.with_group(move.group, move.entry)
        # The load of a group is told by whoever has it, so it does not change with the move.
        assert spread(after, weigh) <= spread(scene, weigh) + 1e-9
        scene = after
        moved.append(move.group)
        assert len(moved) <= 4 * len(scene.groups)


@given(scenes())
def test_a_new_node_gets_its_part(scene: Scene) -> None:
    """Where groups weigh the same and nothing is pinned, no node ends with three groups more than another."""
    nodes = {
        name: type(entry)(address="", beat=1, incarnation="", is_draining=entry.is_draining)
        for name, entry in scene.nodes.items()
    }
    groups = {name: type(entry)(queues=entry.queues, home=entry.home) for name, entry in scene.groups.items()}
    scene = settled(Scene(nodes, groups, scene.live))
    assume(scene.live)
    for _ in range(4 * len(groups)):
        move = balancing(scene.groups, scene.nodes, scene.live)
        if move is not None:
            scene = scene.with_group(move.group, move.entry)
    assert spread(scene, dict.fromkeys(groups, 1.0)) < 3


@given(scenes())
def test_a_new_queue_joins_one_group(scene: Scene) -> None:
    """Up to the limit a queue has a group of its own; beyond, it joins one with the fewest queues; twice is as once."""
    for groups_max in (0, len(scene.groups), len(scene.groups) + 1):
        name, entry = group_for("fresh", scene.groups, groups_max=groups_max)
        assert entry.queues[-1] == "fresh"
        if len(scene.groups) < groups_max or not scene.groups:
            assert (name, entry.queues) == ("fresh", ["fresh"])
        else:
            assert len(entry.queues) == 1 + min(len(other.queues) for other in scene.groups.values())
        assert group_for("fresh", scene.groups | {name: entry}, groups_max=groups_max) == (name, entry)
