"""What is counted for metrics: waits and their reasons, late leases, and labels that stay bounded and never fall."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fairlane.broker.measurements import Waited
from fairlane.errors import InvalidArgument
from fairlane.journal.records import Enqueued, Leased, QueueRemoved, Terms
from fairlane.model.histogram import Histogram
from fairlane.model.message import NewMessage
from fairlane.server.metrics.families import Exemplar, Family, Sample, of_histogram, written
from fairlane.server.metrics.fold import KEYS_MAX, OTHERS, MetricsFold
from fairlane.server.metrics.pauses import Pauses
from fairlane.server.metrics.scrape import Metrics
from fairlane.server.settings import check, load
from fairlane.testing.clock import FakeClock

from .house import House, opened, run


async def values(house: House) -> dict[tuple[str, tuple[str, ...]], float]:
    """Scrape, and return all values by name and labels."""
    text = (await house.http.get("/metrics")).text
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(each.name, tuple(each.labels.values())): each.value for each in samples}


def test_a_wait_is_told_by_its_reasons() -> None:
    """Of the time until a message was handed out, delay, pause, throttle and turn each have their part."""

    async def main() -> None:
        clock = FakeClock()
        async with opened(clock=clock) as house:
            broker = house.broker
            await broker.set_throttle("smtp", rate=0.1, burst=1)
            await broker.enqueue("orders", NewMessage(delay_ms=4_000))
            clock.advance(4_000)
            await broker.pause("orders")
            clock.advance(3_000)
            await broker.resume("orders")
            clock.advance(2_000)
            assert len(await broker.lease("orders")) == 1
            seen = await values(house)
            reasons = {
                labels[1]: value for (name, labels), value in seen.items() if name == "fairlane_wait_seconds_total"
            }
            assert reasons == {"turn": 2, "paused": 3, "delayed": 4, "throttled": 0, "capped": 0}
            assert seen["fairlane_delivery_wait_seconds_sum", ("orders",)] == 5
            await broker.enqueue_many("orders", [NewMessage(throttles=("smtp",))] * 2)
            assert len(await broker.lease("orders", 2)) == 1
            clock.advance(10_000)
            assert len(await broker.lease("orders", 2)) == 1
            seen = await values(house)
            assert seen["fairlane_wait_seconds_total", ("orders", "throttled")] == 10
            assert seen["fairlane_throttle_decisions_total", ("smtp", "passed")] == 2
            assert seen["fairlane_throttle_decisions_total", ("smtp", "held_back")] >= 1

    run(main())


def test_a_lease_that_ends_late_is_told() -> None:
    """How long after its end a lease was taken back is in the histogram."""

    async def main() -> None:
        clock = FakeClock()
        async with opened(clock=clock) as house:
            await house.broker.enqueue("orders", NewMessage())
            await house.broker.lease("orders", visibility_ms=1_000)
            clock.advance(1_200)
            await house.broker.enqueue("orders", NewMessage())
            seen = await values(house)
            assert seen["fairlane_lease_expiry_lateness_seconds_count", ()] == 1
            assert seen["fairlane_lease_expiry_lateness_seconds_sum", ()] == 0.2
            assert seen["fairlane_messages_total", ("orders", "returned", "expiry")] == 1

    run(main())


def test_labels_of_keys_are_bounded_and_counters_never_fall() -> None:
    """Whatever keys come and go, ten and the others are told, and each of their counters only grows."""

    async def main() -> None:
        async with opened() as house:
            before: dict[str, float] = {}
            for lap in range(4):
                for key in [f"tenant-{lap}-{number}" for number in range(30)] + ["steady"] * 5:
                    await house.broker.enqueue("orders", NewMessage(fairness_key=key))
                    await house.broker.ack((await house.broker.lease("orders"))[0])
                seen = await values(house)
                served = {
                    labels[1]: cost for (name, labels), cost in seen.items() if name == "fairlane_key_served_total"
                }
                assert len(served) == 11
                assert "steady" in served
                assert served[OTHERS] >= before.get(OTHERS, 0)
                assert all(cost >= before[key] for key, cost in served.items() if key in before)
                before = served
            assert before["steady"] == 20

    run(main())


def test_share_and_fair_share_of_keys() -> None:
    """A key of weight 3 beside one of weight 1 is due three quarters, and gets them."""

    async def main() -> None:
        clock = FakeClock()
        async with opened(clock=clock) as house:
            await house.broker.set_config("weight:orders:big", "3")
            for key in ("big", "small"):
                await house.broker.enqueue_many("orders", [NewMessage(fairness_key=key)] * 100)
            await values(house)
            for _ in range(40):
                await house.broker.lease("orders")
            clock.advance(10_000)
            seen = await values(house)
            assert abs(seen["fairlane_key_share_ratio", ("orders", "big")] - 0.75) < 0.04
            assert seen["fairlane_key_fair_share_ratio", ("orders", "big")] == 0.75
            assert seen["fairlane_key_messages", ("orders", "big")] == 100
            assert seen["fairlane_key_weight", ("orders", "big")] == 3

    run(main())


def test_names_are_written_so_that_they_can_be_read() -> None:
    """Quotes, backslashes and line breaks in a label come out of Prometheus' parser as they went in."""
    key = 'a"b\\c\nd'
    family = Family("fairlane_key_leased", "gauge", "Messages.", [Sample((("key", key),), 1.5)])
    (found,) = text_string_to_metric_families("".join(written([family], is_open_metrics=False)))
    assert (found.samples[0].labels, found.samples[0].value) == ({"key": key}, 1.5)


def test_a_bucket_has_its_exemplar() -> None:
    """In OpenMetrics the trace is beside the bucket that its value is in, and nowhere else."""
    waits = Histogram((1, 2))
    waits.note(1.5)
    samples = list(of_histogram(waits, (), {1: Exemplar("ab" * 16, "cd" * 8, 1.5, 7.0)}))
    family = Family("fairlane_delivery_wait_seconds", "histogram", "Waits.", samples)
    lines = "".join(written([family], is_open_metrics=True)).splitlines()
    assert [line for line in lines if "#" in line[1:]] == [
        f'fairlane_delivery_wait_seconds_bucket{{le="2"}} 1 # {{trace_id="{"ab" * 16}",span_id="{"cd" * 8}"}} 1.5 7.000'
    ]
    assert "trace_id" not in "".join(written([family], is_open_metrics=False))


def test_little_is_told_exactly_and_of_much_one_stands_for_others() -> None:
    """Up to some thousands between two scrapes every message counts; beyond, estimates are close for every key."""
    chance = Random(3)
    fold = MetricsFold(
        lambda _, number: Waited(f"key-{number % 2}", 1, number % 2 * 500, 0), queues_max=2, chance=chance
    )
    batch = Leased(1, "mail", list(range(100)), 99)
    counts = fold.of("mail")
    for _ in range(200):
        fold.note([batch], 1_000)
    assert fold.take_served() == {"mail": ({"key-0": 10_000, "key-1": 10_000}, 0)}
    assert (counts.waits.count, counts.waits.sum) == (20_000, 15_000)
    for _ in range(400):
        fold.note([batch], 1_000)
    ((served, others),) = fold.take_served().values()
    assert (sum(served.values()), others, counts.waits.count, counts.leased) == (40_000, 0, 60_000, 60_000)
    assert 0 < abs(served["key-0"] - 20_000) < 1_200
    assert abs(counts.waits.sum - 45_000) < 600


def test_without_labels_for_keys_none_are_looked_at() -> None:
    """A server that is told to name no keys neither counts nor tells them, and tells the rest as ever."""

    async def main() -> None:
        async with opened() as house:
            metrics = Metrics(house.broker, keys_max=0)
            house.broker.add_tap(metrics.fold.note)
            await house.broker.enqueue("orders", NewMessage(fairness_key="acme"))
            await house.broker.lease("orders")
            assert metrics.fold.of("orders").served == {}
            families = await metrics.families(house.doors.tally)
            labels = {value for family in families for sample in family.samples for _, value in sample.labels}
            assert "acme" not in labels
            assert metrics.fold.of("orders").waits.count == 1

    run(main())


@pytest.mark.parametrize(
    ("name", "value"), [("metrics_queues_max", 0), ("metrics_keys_max", -1), ("metrics_keys_max", 1_001)]
)
def test_a_number_of_labels_that_makes_no_sense_is_refused(name: str, value: int) -> None:
    """The error names the setting."""
    with pytest.raises(InvalidArgument, match=f"{name} is"):
        check(load(None, {}, {name: value}))


def test_keys_are_kept_in_bounded_memory() -> None:
    """Of more keys than may be told apart the rest is counted together, and a scrape makes room again."""
    fold = MetricsFold(lambda _, number: Waited(f"key-{number}", 1, 0, 0), queues_max=2)
    for number in range(KEYS_MAX + 7):
        fold.note([Leased(1, "mail", [number], 99)], 0)
    served, others = fold.take_served()["mail"]
    assert (len(served), others) == (KEYS_MAX, 7)
    fold.note([Leased(1, "mail", [KEYS_MAX + 5], 99)], 0)
    assert fold.take_served()["mail"] == ({f"key-{KEYS_MAX + 5}": 1}, 0)


def test_queues_beyond_so_many_share_a_label() -> None:
    """A queue that goes away makes room for another."""
    fold = MetricsFold(lambda _queue, _number: None, queues_max=2)

    def enqueued(queue: str) -> Enqueued:
        return Enqueued(1, queue, [7], [0], Terms(["a"]))

    fold.note([enqueued(name) for name in ("a", "b", "c", "d", "a")], 0)
    assert Counter({name: counts.enqueued for name, counts in fold.queues.items()}) == {"a": 2, "b": 1, OTHERS: 2}
    fold.note([QueueRemoved(9, "a"), QueueRemoved(10, "b"), enqueued("e")], 0)
    assert fold.queues.keys() == {"e", OTHERS}


def test_pauses_are_counted_within_a_wait_only() -> None:
    """Of a pause that began before or is not over that part counts which the message waited through."""
    pauses = Pauses()
    pauses.note("mail", None, 100, is_paused=True)
    pauses.note("mail", None, 200, is_paused=True)
    pauses.note("mail", None, 300, is_paused=False)
    pauses.note("mail", ("acme", "mobile"), 350, is_paused=True)
    assert pauses.within("mail", "bakery", 250, 500) == 50
    assert pauses.within("mail", ("acme", "mobile", "eu"), 250, 500) == 150
    assert pauses.within("other", "bakery", 0, 500) == 0
    pauses.forget("mail")
    assert not pauses
