"""The order of hand-out is that of deficit round robin, item for item, on both paths through the kernel."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane.scheduler import Item, Kernel, Key, KeyPolicy
from tests.property.scheduler.model import Job, path
from tests.property.scheduler.order_model import Job as NaiveJob
from tests.property.scheduler.order_model import NaiveOrder

pytestmark = pytest.mark.no_cover

FLAT: list[Key] = ["a", "b", "c", "d"]
NESTED: list[Key] = ["a", ("b", "x"), ("b", "y"), ("b", "z"), ("c", "x"), ("c", "y", "deep"), ("c", "y", "deeper")]

Step = tuple[Any, ...]


def steps(keys: list[Key], costs: list[int], *, calm: bool = False, waits_ms: int = 0) -> st.SearchStrategy[list[Step]]:
    """Generate offers and takes; with ``waits_ms`` also passing time; unless ``calm`` also cancels, pauses, settles."""
    key = st.sampled_from(keys)
    offer = st.tuples(st.just("offer"), key, st.lists(st.sampled_from(costs), min_size=1, max_size=6))
    take = st.tuples(st.just("take"), st.integers(1, 7))
    if waits_ms:
        wait = st.tuples(st.just("wait"), st.integers(1, waits_ms))
        return st.lists(st.one_of(offer, take, wait), max_size=25)
    if calm:
        return st.lists(st.one_of(offer, offer, take), max_size=25)
    return st.lists(
        st.one_of(
            offer,
            offer,
            take,
            take,
            st.tuples(st.just("pause"), key),
            st.tuples(st.just("resume"), key),
            st.tuples(st.just("cancel"), st.integers(0, 50)),
            st.tuples(st.just("settle"), key, st.integers(-20, 20)),
        ),
        max_size=40,
    )


weight_lists = st.lists(st.integers(1, 5), min_size=len(NESTED), max_size=len(NESTED))
quanta = st.sampled_from([1, 2, 3, 10])
COSTS = [1, 1, 2, 3, 7]
FAR_ABOVE_THE_QUANTUM = [1, 2, 30, 400]


def kernel_order(
    program: list[Step], kernel: Kernel[Job], throttles: tuple[str, ...] = (), *, every: int = 1
) -> list[list[int]]:
    """Run a program on a kernel and return the names taken by each take; each n-th is throttled if ``every`` is n."""
    jobs: list[Job] = []
    taken = []
    now_ms = 0
    for step in program:
        match step:
            case ("offer", key, costs):
                names = enumerate(costs, start=len(jobs))
                new = [Job(at, key, cost=cost, throttles=throttles if at % every == 0 else ()) for at, cost in names]
                jobs += new
                assert kernel.offer_many(new, now_ms) == []
            case ("take", count):
                taken.append([job.number for job in kernel.take(count, now_ms)])
            case ("wait", wait_ms):
                now_ms += wait_ms
            case ("pause", key):
                kernel.pause(key)
            case ("resume", key):
                kernel.resume(key)
            case ("cancel", number) if jobs:
                kernel.cancel(jobs[number % len(jobs)])
            case ("settle", key, difference):
                kernel.settle(key, difference)
    return [*taken, [job.number for job in kernel.take(1000, now_ms)]]


def naive_order(program: list[Step], model: NaiveOrder) -> list[list[int]]:
    """Run the same program on the naive model."""
    keys: list[Key] = []
    taken = []
    for step in program:
        match step:
            case ("offer", key, costs):
                for cost in costs:
                    model.offer(path(key), NaiveJob(len(keys), cost))
                    keys.append(key)
            case ("take", count):
                taken.append(model.take(count))
            case ("pause", key):
                model.set_paused(path(key), is_paused=True)
            case ("resume", key):
                model.set_paused(path(key), is_paused=False)
            case ("cancel", number) if keys:
                model.cancel(path(keys[number % len(keys)]), number % len(keys))
            case ("settle", key, difference):
                model.settle(path(key), difference)
    return [*taken, model.take(1000)]


def assert_same_order(program: list[Step], keys: list[Key], weights: list[int], quantum: int, **how: Any) -> None:
    kernel: Kernel[Job] = Kernel(quantum=quantum, **how)
    model = NaiveOrder(quantum)
    for key, weight in zip(keys, weights, strict=False):
        cap = 10**9 if how else None
        kernel.set_policy(key, KeyPolicy(weight=weight, cap=cap))
        model.weights[path(key)] = weight
    assert kernel_order(program, kernel) == naive_order(program, model)


@settings(max_examples=300, deadline=None)
@given(program=steps(FLAT, COSTS), weights=weight_lists, quantum=quanta)
def test_flat_keys_are_served_in_the_order_of_the_naive_model(
    program: list[Step], weights: list[int], quantum: int
) -> None:
    """The fast path hands out in exactly the order of a deficit round robin that goes through every round."""
    assert_same_order(program, FLAT, weights, quantum)


@settings(max_examples=300, deadline=None)
@given(program=steps(FLAT, COSTS), weights=weight_lists, quantum=quanta)
def test_the_general_path_serves_in_the_order_of_the_naive_model(
    program: list[Step], weights: list[int], quantum: int
) -> None:
    """Keys with a cap that is never reached are served in exactly the same order."""
    assert_same_order(program, FLAT, weights, quantum, counts_use=True)


@settings(max_examples=200, deadline=None)
@given(program=steps(FLAT, FAR_ABOVE_THE_QUANTUM), weights=weight_lists, quantum=quanta)
def test_costs_far_above_the_quantum_skip_rounds_without_changing_the_order(
    program: list[Step], weights: list[int], quantum: int
) -> None:
    """Rounds skipped by arithmetic give the same order as rounds simulated one by one."""
    assert_same_order(program, FLAT, weights, quantum)


@settings(max_examples=200, deadline=None)
@given(program=steps(FLAT, FAR_ABOVE_THE_QUANTUM), weights=weight_lists, quantum=quanta)
def test_the_general_path_skips_rounds_likewise(program: list[Step], weights: list[int], quantum: int) -> None:
    """The general path skips the same rounds."""
    assert_same_order(program, FLAT, weights, quantum, counts_use=True)


@settings(max_examples=300, deadline=None)
@given(program=steps(NESTED, COSTS), weights=weight_lists, quantum=quanta)
def test_nested_keys_are_served_in_the_order_of_the_naive_model(
    program: list[Step], weights: list[int], quantum: int
) -> None:
    """Each level takes turns independently, as in the naive model."""
    assert_same_order(program, NESTED, weights, quantum)


@settings(max_examples=200, deadline=None)
@given(program=steps(NESTED, FAR_ABOVE_THE_QUANTUM), weights=weight_lists, quantum=quanta)
def test_nested_keys_skip_rounds_without_changing_the_order(
    program: list[Step], weights: list[int], quantum: int
) -> None:
    """Rounds skipped at any level give the same order as simulated rounds."""
    assert_same_order(program, NESTED, weights, quantum)


@settings(max_examples=300, deadline=None)
@given(program=steps(FLAT, FAR_ABOVE_THE_QUANTUM, calm=True), quantum=quanta)
def test_both_paths_through_the_kernel_give_the_same_order(program: list[Step], quantum: int) -> None:
    """A cap or open throttles decide the path of a key's items, never their order."""
    plain: Kernel[Job] = Kernel(quantum=quantum)
    capped: Kernel[Job] = Kernel(quantum=quantum, counts_use=True)
    throttled: Kernel[Job] = Kernel(quantum=quantum)
    for key in FLAT:
        capped.set_policy(key, KeyPolicy(cap=10**9))
    throttled.throttles.set("wide", rate=10**6, burst=10**6, now_ms=0)
    order = kernel_order(program, plain)
    assert kernel_order(program, capped) == order
    assert kernel_order(program, throttled, ("wide", "unknown")) == order


@settings(max_examples=300, deadline=None)
@given(program=steps(FLAT, FAR_ABOVE_THE_QUANTUM), weights=weight_lists, quantum=quanta, every=st.integers(2, 9))
def test_a_key_changes_its_path_and_keeps_the_order_of_the_naive_model(
    program: list[Step], weights: list[int], quantum: int, every: int
) -> None:
    """When some items have an open throttle, keys switch between the paths and keep the order."""
    kernel: Kernel[Job] = Kernel(quantum=quantum)
    kernel.throttles.set("wide", rate=10**6, burst=10**6, now_ms=0)
    model = NaiveOrder(quantum)
    for key, weight in zip(FLAT, weights, strict=False):
        kernel.set_policy(key, KeyPolicy(weight=weight))
        model.weights[path(key)] = weight
    assert kernel_order(program, kernel, ("wide",), every=every) == naive_order(program, model)


@settings(max_examples=500, deadline=None)
@given(program=steps(FLAT[:2], COSTS, waits_ms=30), quantum=quanta, every=st.integers(2, 4))
def test_parked_lanes_are_served_in_the_same_order_on_both_paths(program: list[Step], quantum: int, every: int) -> None:
    """A key that takes the fast path whenever it can is served like one that never does."""
    orders = []
    for cap in (None, 10**9):
        kernel: Kernel[Job] = Kernel(quantum=quantum, counts_use=True)
        for key in FLAT:
            kernel.set_policy(key, KeyPolicy(cap=cap))
        kernel.throttles.set("narrow", rate=50, burst=1, now_ms=0)
        orders.append(kernel_order(program, kernel, ("narrow",), every=every))
    assert orders[0] == orders[1]


def test_a_finished_turn_ends_at_once_on_both_paths() -> None:
    """A key that cannot pay for its next item is at the back before a new key arrives, on both paths."""
    orders = []
    for cap in (None, 10**9):
        kernel: Kernel[Item] = Kernel(quantum=3, counts_use=True)
        kernel.set_policy("a", KeyPolicy(cap=cap))
        kernel.offer_many([Item("a", cost=2), Item("a", cost=2)], 0)
        first = kernel.take(1, 0)
        kernel.offer(Item("b"), 0)
        orders.append([item.key for item in [*first, *kernel.take(2, 0)]])
    assert orders == [["a", "a", "b"], ["a", "a", "b"]]
