"""Who lives, by the clock of whoever watches."""

from __future__ import annotations

from fairlane.cluster.entries import NodeEntry
from fairlane.cluster.heartbeat import Liveness


def beats(**numbers: int) -> dict[str, NodeEntry]:
    return {name: NodeEntry(address="", beat=beat, incarnation="1") for name, beat in numbers.items()}


def test_a_node_lives_while_its_beat_changes() -> None:
    """A beat that stands still for a lease is that of a dead node; one more brings it back."""
    watch = Liveness(1_000)
    watch.note(beats(a=1, b=1), 0)
    watch.note(beats(a=1, b=1), 450)
    watch.note(beats(a=2, b=1), 900)
    assert watch.live(999) == {"a", "b"}
    assert watch.live(1_000) == {"a"}
    assert watch.silent_ms("b", 1_000) == 1_000
    watch.note(beats(a=2, b=2), 1_400)
    watch.note(beats(a=2, b=2), 1_500)
    assert watch.live(1_500) == {"a", "b"}
    assert watch.live(1_900) == {"b"}


def test_a_beat_that_goes_back_is_a_sign_of_life_too() -> None:
    """A node that was started again begins to count anew, under another incarnation or its own."""
    watch = Liveness(1_000)
    watch.note(beats(a=100), 0)
    watch.note(beats(a=100), 450)
    watch.note(beats(a=1), 900)
    assert watch.live(1_500) == {"a"}
    watch.note(beats(a=1), 1_350)
    again = {"a": NodeEntry(address="", beat=1, incarnation="2")}
    watch.note(again, 1_800)
    assert watch.live(2_700) == {"a"}


def test_who_begins_to_watch_gives_everybody_a_lease() -> None:
    """What a new watcher finds may be long dead or alive; it waits for a lease before it decides."""
    watch = Liveness(1_000)
    watch.note(beats(ghost=7), 5_000)
    assert watch.live(5_999) == {"ghost"}
    watch.note(beats(ghost=7), 5_500)
    watch.note(beats(ghost=7), 5_999)
    assert watch.live(6_000) == frozenset()


def test_silence_counts_only_while_the_board_was_read() -> None:
    """Who could not read for more than half a lease gives everybody another: they may not have been able to write."""
    watch = Liveness(1_000)
    watch.note(beats(a=1), 0)
    watch.note(beats(a=1), 900)
    assert watch.live(1_500) == {"a"}
    assert watch.silent_ms("a", 1_500) == 600
    watch.note(beats(a=1), 1_400)
    assert watch.live(1_900) == frozenset()


def test_a_process_that_is_known_to_have_ended_does_not_live() -> None:
    """Evidence of its end counts at once, for that process only, and while there is evidence."""
    watch = Liveness(1_000)
    nodes = {name: NodeEntry(address="", beat=1, incarnation=f"{name}1") for name in "ab"}
    watch.note(nodes, 0, ended=["a1"])
    assert watch.live(1) == {"b"}
    assert watch.ended == {"a1"}
    again = {**nodes, "a": NodeEntry(address="", beat=2, incarnation="a2")}
    watch.note(again, 10, ended=["a1"])
    assert watch.live(11) == {"a", "b"}
    watch.note(nodes, 20)
    assert watch.live(21) == {"a", "b"}


def test_who_is_gone_from_the_board_is_forgotten() -> None:
    """A node that left does not live, and is not silent either."""
    watch = Liveness(1_000)
    watch.note(beats(a=1, b=1), 0)
    watch.note(beats(a=1), 10)
    assert watch.live(10) == {"a"}
    assert watch.silent_ms("b", 10) is None
