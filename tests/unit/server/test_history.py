"""The history of queues: the rings against a naive model, what a server records, and the route."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane.model.histogram import bucket_of
from fairlane.model.message import NewMessage
from fairlane.server.live.history import KEYS_MAX, SPANS, HistoryRings, Resolution, Slot, SlotRing
from fairlane.server.live.recorder import IDLE_MS
from fairlane.testing.clock import FakeClock
from fairlane.verbs.keys import Grant

from .local_server import LocalServer, opened, run

SMALL = Resolution(step_ms=100, slots_max=4)


def naive(samples: list[Slot], resolution: Resolution) -> list[tuple[int, int, int, int, dict[str, int]]]:
    """Return start, time, count, highest level and cost by key of each slot, by looking at all samples each time."""
    starts: list[int] = []
    for sample in samples:
        start = (sample.at_ms - 1) // resolution.step_ms * resolution.step_ms
        starts.append(max([start, *starts[-1:]]))
    found = []
    for start in sorted(set(starts))[-resolution.slots_max :]:
        own = [sample for sample, its in zip(samples, starts, strict=True) if its == start]
        costs: dict[str, int] = {}
        for sample in own:
            for key, cost in sample.keys:
                costs[str(key)] = costs.get(str(key), 0) + cost
        covered, counted = sum(each.covered_ms for each in own), sum(each.enqueued for each in own)
        found.append((start, covered, counted, max(each.waiting for each in own), costs))
    return found


sampled = st.builds(
    lambda gap, count, waiting, costs: (gap, count, waiting, tuple(costs.items())),
    st.integers(min_value=-50, max_value=350),
    st.integers(min_value=0, max_value=1_000),
    st.integers(min_value=0, max_value=1_000),
    st.dictionaries(st.sampled_from("abc"), st.integers(min_value=1, max_value=9)),
)


@given(st.lists(sampled, max_size=40))
@settings(max_examples=300, deadline=None)
def test_a_ring_equals_a_model_that_keeps_all_samples(
    steps: list[tuple[int, int, int, tuple[tuple[str, int], ...]]],
) -> None:
    """Whatever the pauses between samples are, and if the clock is set back, slots are sums of their samples."""
    ring, samples, at_ms = SlotRing(SMALL), [], 1_000
    for gap, count, waiting, costs in steps:
        at_ms += gap
        sample = Slot(at_ms=at_ms, covered_ms=max(0, gap), enqueued=count, waiting=waiting, keys=costs)
        samples.append(sample)
        ring.note(sample)
    shown = [
        (slot.at_ms, slot.covered_ms, slot.enqueued, slot.waiting, {str(key): cost for key, cost in slot.keys})
        for slot in ring.slots(since_ms=-10_000)
    ]
    assert shown == naive(samples, SMALL)


def test_a_slot_names_the_keys_that_were_served_most() -> None:
    """However many keys come and go, a slot names a bounded number of them, the largest first."""
    ring = SlotRing(SMALL)
    for at in range(3):
        costs = tuple((f"key-{number}", number + 1) for number in range(100))
        ring.note(Slot(at_ms=1 + at * 100, keys=costs))
    for slot in ring.slots(since_ms=0):
        assert [key for key, _ in slot.keys] == [f"key-{number}" for number in range(99, 99 - KEYS_MAX, -1)]


def test_memory_is_bounded() -> None:
    """After a week with more queues than allowed, each queue has one hour and one day, and no more."""
    history = HistoryRings(queues_max=2)
    step_ms, day_ms = 60_000, 86_400_000
    for at_ms in range(step_ms, 2 * day_ms, step_ms):
        history.note({name: Slot(at_ms=at_ms) for name in "abc"}, Slot(at_ms=at_ms))
    assert history.queues == {"a", "b"}
    for name in ("a", None):
        assert len(history.slots(name, "day", now_ms=2 * day_ms)) == SPANS["day"].slots_max
        assert len(history.slots(name, "hour", now_ms=2 * day_ms)) == 59  # one sample a minute
    assert history.slots("c", "day", now_ms=2 * day_ms) == []
    history.note({"c": Slot(at_ms=2 * day_ms)}, Slot(at_ms=2 * day_ms))
    assert history.queues == {"c"}


@pytest.mark.parametrize("seed", range(5))
def test_percentiles_are_exact_to_one_part_in_eight(seed: int) -> None:
    """A percentile from the counts is never below the exact one, and at most an eighth above it."""
    random = Random(seed)
    waits = sorted(round(random.expovariate(1 / 60_000)) for _ in range(1_000))
    counts: dict[int, int] = {}
    for wait in waits:
        bucket = bucket_of(wait, 3)
        counts[bucket] = counts.get(bucket, 0) + 1
    slot = Slot(waits=tuple(sorted(counts.items())))
    for part, exact in ((0.5, waits[499]), (0.99, waits[989])):
        found = slot.wait_ms(part)
        assert found is not None
        assert exact <= found <= exact * 1.125 + 1
    assert Slot().wait_ms(0.5) is None


async def _work(server: LocalServer, clock: FakeClock) -> None:
    """Enqueue ten messages of two keys, deliver four a second later, acknowledge one and fail one."""
    keys = ["acme"] * 7 + ["bakery"] * 3
    await server.broker.enqueue_many("orders", [NewMessage(fairness_key=key) for key in keys])
    clock.advance(1_000)
    receipts = [{"id": each.id, "token": each.token} for each in await server.broker.lease("orders", 4)]
    await server.post("queue/ack", {"queue": "orders", "receipts": receipts[:1]})
    await server.post("queue/nack", {"queue": "orders", "receipts": receipts[1:2]})


def test_a_server_records_what_its_queues_did() -> None:
    """A sample has the counts, the backlog, the waits and the shares of the time before it."""

    async def main() -> None:
        clock = FakeClock()
        async with opened(clock=clock) as server:
            await server.context.recorder.sample()  # counts from here on
            await _work(server, clock)
            clock.advance(9_000)
            await server.context.recorder.sample()
            clock.advance(10_000)
            await server.context.recorder.sample()
            for path in ("queue=orders&", ""):
                answer = (await server.http.get(f"/v1/history?{path}span=hour")).json()
                busy, quiet = answer["slots"][-2:]
                assert [busy[name] for name in ("enqueued", "leased", "acked", "failed")] == [10, 4, 1, 1]
                assert (busy["covered_ms"], busy["waiting"], busy["in_flight"]) == (10_000, 7, 2)
                assert (quiet["enqueued"], quiet["waiting"], quiet["wait_p99_ms"]) == (0, 7, None)
                assert quiet["at_ms"] - busy["at_ms"] == answer["step_ms"] == 10_000
                assert 1_000 <= busy["wait_p50_ms"] <= 1_125
            slots = (await server.http.get("/v1/history?queue=orders")).json()["slots"]
            assert slots[-2]["keys"] == [{"key": "acme", "served": 2}, {"key": "bakery", "served": 2}]
            assert (await server.http.get("/v1/history?queue=orders&span=day")).json()["slots"][-1]["leased"] == 4

    run(main())


def test_an_outage_is_a_gap() -> None:
    """Where no sample was taken there is no slot, and what was counted meanwhile is spread over the time it took."""

    async def main() -> None:
        clock = FakeClock()
        async with opened(clock=clock) as server:
            await server.context.recorder.sample()
            clock.advance(60_000)
            await server.context.recorder.sample()
            slots = (await server.http.get("/v1/history?queue=orders")).json()["slots"]
            assert slots[-1]["covered_ms"] == 60_000
            assert slots[-1]["at_ms"] - slots[-2]["at_ms"] == 60_000

    run(main())


def test_an_idle_queue_gives_way_to_a_busy_one() -> None:
    """With more queues than the limit, one that was busy keeps its history for ten minutes and no longer."""

    async def main() -> None:
        clock = FakeClock()
        async with opened(clock=clock, metrics_queues_max=1) as server:

            async def sampled(queue: str, wait_ms: int = 10_000) -> dict[str, Any]:
                clock.advance(wait_ms)
                await server.context.recorder.sample()
                found: dict[str, Any] = (await server.http.get(f"/v1/history?queue={queue}")).json()
                return found

            await server.broker.enqueue("orders", b"")
            await server.broker.ack(*await server.broker.lease("orders", 1))
            since_ms = server.broker.now_ms()
            assert (await sampled("orders"))["since_ms"] == since_ms
            await server.broker.create_queue("busy")
            await server.broker.enqueue("busy", b"")
            unknown = await sampled("busy", IDLE_MS - 10_000)
            assert (unknown["since_ms"], unknown["slots"]) == (None, [])
            assert len((await sampled("busy"))["slots"]) == 1
            await server.broker.enqueue_many("busy", [NewMessage()] * 3)
            assert (await sampled("busy"))["slots"][-1]["enqueued"] == 3
            assert (await sampled("orders"))["since_ms"] is None

    run(main())


def test_a_queue_that_never_did_anything_gives_way_at_once() -> None:
    """Queues that nobody uses keep no busy one from its history."""

    async def main() -> None:
        clock = FakeClock()
        async with opened(clock=clock, metrics_queues_max=1) as server:
            await server.context.recorder.sample()
            assert server.context.recorder.history.queues == {"orders"}
            await server.broker.create_queue("busy")
            await server.broker.enqueue("busy", b"")
            clock.advance(10_000)
            await server.context.recorder.sample()
            assert server.context.recorder.history.queues == {"busy"}

    run(main())


def test_the_history_needs_the_right_to_observe() -> None:
    """A key sees the queues it may observe; the total needs the right on all of them."""

    async def main() -> None:
        async with opened(requires_auth=True) as server:
            key = await server.key(Grant(right="observe", queues="orders"))
            headers = {"authorization": f"Bearer {key}"}
            assert (await server.http.get("/v1/history?queue=orders", headers=headers)).status_code == 200
            assert (await server.http.get("/v1/history", headers=headers)).status_code == 403
            assert (await server.http.get("/v1/history?queue=other", headers=headers)).status_code == 403

    run(main())


def test_an_unknown_queue_or_span_is_refused() -> None:
    """The error names what was wrong."""

    async def main() -> None:
        async with opened() as server:
            assert (await server.http.get("/v1/history?queue=nosuch")).json()["error"]["code"] == "queue_not_found"
            refused = (await server.http.get("/v1/history?span=week")).json()["error"]
            assert refused["cause"] == "span must be one of hour, day, not 'week'."

    run(main())
