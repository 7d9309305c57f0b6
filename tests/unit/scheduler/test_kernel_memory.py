"""Items and keys that are gone hold no memory."""

from __future__ import annotations

import gc
import weakref

from fairlane.scheduler import Item, Kernel, Priority, Throttles
from fairlane.scheduler.tree import KeyNode, Ring


class Payload(Item):
    """An item that can be watched."""

    __slots__ = ("__weakref__",)


def root_of(kernel: Kernel[Item]) -> tuple[KeyNode, Ring]:
    """Return the root of a kernel's keys, with its ring."""
    root = kernel._keys.roots[0]
    assert root.ring is not None
    return root, root.ring


def test_keys_that_come_and_go_without_being_served_leave_nothing_in_the_ring() -> None:
    """Items of ever new keys, each cancelled before a take, do not accumulate entries."""
    kernel: Kernel[Item] = Kernel(idle_keys_max=10)
    for number in range(5_000):
        item = Item(f"key {number}")
        kernel.offer(item, 0)
        kernel.cancel(item)
    _, ring = root_of(kernel)
    assert len(ring.order) < 200
    assert kernel.known_keys() == 10


def test_costly_items_that_are_cancelled_leave_nothing_asleep() -> None:
    """A key put to sleep for a billion rounds again and again has few entries among the sleepers."""
    kernel: Kernel[Item] = Kernel()
    kernel.offer_many([Item("busy") for _ in range(5_000)], 0)
    for number in range(2_000):
        costly = Item("saver", cost=10**9)
        kernel.offer(costly, 0)
        kernel.take(2, 0)
        assert costly.is_waiting, f"after {number}"
        kernel.cancel(costly)
    _, ring = root_of(kernel)
    assert len(ring.sleepers) < 200


def test_keys_that_expire_behind_a_shut_throttle_leave_nothing_at_its_gate() -> None:
    """Items of ever new keys that wait for a token that never comes, and expire, do not accumulate."""
    kernel: Kernel[Item] = Kernel(idle_keys_max=10)
    kernel.throttles.set("shut", rate=0, burst=1, tokens=0, now_ms=0)
    for now_ms in range(2_000):
        kernel.offer(Item(f"key {now_ms}", throttles=["shut"], deadline_ms=now_ms), now_ms)
        assert kernel.take(1, now_ms) == []
        kernel.reap(now_ms)
    root, _ = root_of(kernel)
    assert sum(len(queue.members) for queue in root.waits.values()) <= 1
    assert kernel.known_keys() <= 11


def test_unknown_throttles_are_forgotten_with_their_lanes() -> None:
    """A throttle named by items but never set is remembered only as long as a lane names it."""
    kernel: Kernel[Item] = Kernel(idle_keys_max=10)
    for number in range(1_000):
        kernel.offer(Item(f"key {number}", throttles=[f"recipient {number}"]), 0)
        assert len(kernel.take(1, 0)) == 1
    assert len(kernel.throttles._buckets) <= 11


def test_an_item_handed_out_is_not_kept_alive() -> None:
    """Once the caller drops an item with a far deadline and due time, it is freed in spite of its timers."""
    kernel: Kernel[Item] = Kernel()
    watched = []
    for number in range(1_000):
        item = Payload(f"key {number % 3}", deadline_ms=10**9)
        watched.append(weakref.ref(item))
        kernel.offer(item, 0)
        del item
        assert len(kernel.take(1, 0)) == 1
    gc.collect()
    assert sum(reference() is not None for reference in watched) <= 64


def test_items_of_one_key_share_one_string() -> None:
    """Equal strings passed for one key are stored once, by the fast path and the general path."""
    kernel: Kernel[Item] = Kernel()
    items = [Item("".join(("ten", "ant"))) for _ in range(4)]
    items[2] = Item("".join(("ten", "ant")), priority=Priority.LOW)
    assert len({id(item.key) for item in items}) == 4
    kernel.offer_many(items, 0)
    assert {item.key for item in items} == {"tenant"}
    assert len({id(item.key) for item in items}) == 1


def test_lanes_that_come_and_go_behind_a_better_one_leave_nothing_to_choose_from() -> None:
    """Items with ever new throttles, cancelled while an older lane of a paused key waits, do not accumulate."""
    kernel: Kernel[Item] = Kernel()
    kernel.pause("a")
    kernel.offer(Item("a"), 0)
    for number in range(3_000):
        item = Item("a", throttles=[f"recipient {number}"])
        kernel.offer(item, 0)
        kernel.cancel(item)
    leaf = kernel._keys.leaves[0]["a"]
    assert len(leaf.choices) < 300
    kernel.resume("a")
    assert len(kernel.take(2, 0)) == 1


def test_keys_that_get_sub_keys_while_in_use_are_forgotten() -> None:
    """A key handed out, then grown into an inner key, then released, is not remembered for ever."""
    kernel: Kernel[Item] = Kernel(counts_use=True, idle_keys_max=10)
    for number in range(200):
        name = f"key {number}"
        kernel.offer(Item(name), 0)
        kernel.take(1, 0)
        kernel.offer(Item((name, "sub")), 0)
        kernel.take(1, 0)
        kernel.release(name)
        kernel.release((name, "sub"))
    assert kernel.known_keys() <= 10


def test_a_table_of_throttles_does_not_keep_kernels_alive() -> None:
    """A discarded kernel with parked lanes disappears from the table it shared."""
    throttles = Throttles()
    throttles.set("shared", rate=0, burst=1, tokens=0, now_ms=0)
    kernel: Kernel[Item] = Kernel(throttles=throttles)
    kernel.offer(Item("a", throttles=["shared"]), 0)
    assert kernel.take(1, 0) == []
    bucket = throttles.get("shared")
    assert bucket is not None
    assert len(bucket.watching()) == 1
    del kernel
    gc.collect()
    assert len(bucket.watching()) == 0
