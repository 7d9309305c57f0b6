"""Explanations are correct, and explaining changes nothing."""

from __future__ import annotations

from fairlane.scheduler import Item, Kernel, KeyPolicy, WaitReason
from tests.unit.scheduler.workload import offer


def test_each_reason_is_named() -> None:
    """Not waiting, not due, paused, capped, throttled, or waiting for its turn."""
    kernel: Kernel[Item] = Kernel(counts_use=True)
    kernel.throttles.set("t", rate=10, burst=1, tokens=0, now_ms=0)
    kernel.set_policy("capped", KeyPolicy(cap=0))
    kernel.pause("paused")
    items = {
        WaitReason.NOT_DUE: offer(kernel, "a", due_ms=9)[0],
        WaitReason.PAUSED: offer(kernel, ("paused", "x"))[0],
        WaitReason.CAPPED: offer(kernel, ("capped", "x"))[0],
        WaitReason.THROTTLED: offer(kernel, "a", throttles=["t"])[0],
        WaitReason.ELIGIBLE: offer(kernel, "a")[0],
        WaitReason.NOT_WAITING: Item("a"),
    }
    explanations = {reason: kernel.explain(item, 0) for reason, item in items.items()}
    assert {reason: explanation.reason for reason, explanation in explanations.items()} == {r: r for r in items}
    assert explanations[WaitReason.NOT_DUE].until_ms == 9
    assert explanations[WaitReason.PAUSED].key == "paused"
    assert explanations[WaitReason.CAPPED].key == "capped"
    assert (explanations[WaitReason.THROTTLED].throttle, explanations[WaitReason.THROTTLED].until_ms) == ("t", 100)
    assert all(str(explanation) for explanation in explanations.values())


def test_an_eligible_item_has_a_number_of_turns() -> None:
    """Behind three other keys, the first item waits for three turns and the second for six."""
    kernel: Kernel[Item] = Kernel()
    for key in ("a", "b", "c"):
        offer(kernel, key, 5)
    first, second = offer(kernel, "d", 2)
    assert [kernel.explain(item, 0).turns for item in (first, second)] == [3, 6]


def test_turns_are_never_negative() -> None:
    """An item whose token is there but whose lane has not been woken yet is zero or more turns away."""
    kernel: Kernel[Item] = Kernel()
    kernel.throttles.set("t", rate=0, burst=1, tokens=0, now_ms=0)
    (item,) = offer(kernel, "a", cost=5, throttles=["t"])
    kernel.take(1, 0)
    kernel.throttles.set("t", rate=0, burst=1, tokens=1, now_ms=0)
    turns = kernel.explain(item, 0).turns
    assert turns is not None
    assert turns >= 0


def test_explaining_at_a_later_instant_loses_no_events() -> None:
    """After an explanation, expired items are not handed out and due items are."""
    kernel: Kernel[Item] = Kernel()
    (expired,) = offer(kernel, "a", deadline_ms=5)
    due = offer(kernel, "b", due_ms=5)
    kernel.explain(expired, 10)
    assert kernel.take(5, 10) == due
    assert [departure.item for departure in kernel.reap(10)] == [expired]
