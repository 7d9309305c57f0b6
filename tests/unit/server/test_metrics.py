"""Metrics of a server: waits by reason, late leases, bounded labels and counters that never decrease."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from fairlane.assembly import open_async_broker
from fairlane.broker.measurements import Waited
from fairlane.errors import InvalidArgument
from fairlane.journal.records import Enqueued, Leased, QueueRemoved, Terms
from fairlane.model.histogram import Histogram
from fairlane.model.message import NewMessage
from fairlane.model.schedules import ScheduleSpec
from fairlane.server.metrics.broker import broker_families
from fairlane.server.metrics.families import OTHERS, Exemplar, Family, Sample, histogram_samples, render
from fairlane.server.metrics.fold import KEYS_MAX, MetricsFold
from fairlane.server.metrics.scrape import Metrics
from fairlane.server.settings import check, load
from fairlane.server.watchdog import Watchdog
from fairlane.testing.clock import FakeClock
from fairlane.verbs.keys import Grant
from fairlane.wire.frames import Refused

from .local_server import LocalServer, connected, opened, run


def test_each_refused_request_counts_once() -> None:
    """A request counts by its error code whether authentication, the decoder or the broker refused it."""

    async def main() -> None:
        async with opened(requires_auth=True) as server:
            key = await server.key(Grant(right="consume", queues="orders"))
            await server.post("queue/stats", {"queue": "orders"})
            await server.post("nowhere", key=key)
            await server.http.get("/v1/queue/lease", headers={"authorization": f"Bearer {key}"})
            await server.post("queue/lease", {"queue": "orders", "count": "many"}, key=key)
            await server.post("queue/enqueue", {"queue": "orders", "messages": []}, key=key)
            async with connected(server, key=key) as socket:
                for request in ({"queue": 1}, {"queue": "orders", "count": 0}):
                    socket.call("lease", request)
                    await socket.next(Refused)
                socket.call("consume", {"queue": "other", "credit": 1})
                await socket.next(Refused)
            found = server.context.tally.errors
            assert found == {"unauthenticated": 1, "route_not_found": 2, "invalid_argument": 3, "forbidden": 2}

    run(main())


async def values(server: LocalServer) -> dict[tuple[str, tuple[str, ...]], float]:
    """Scrape the server and return all values by name and label values."""
    text = (await server.http.get("/metrics")).text
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(each.name, tuple(each.labels.values())): each.value for each in samples}


def test_a_wait_is_split_by_its_reasons() -> None:
    """The wait of a leased message is divided into delay, pause, throttle and turn."""

    async def main() -> None:
        clock = FakeClock()
        async with opened(clock=clock) as server:
            broker = server.broker
            await broker.set_throttle("smtp", rate=0.1, burst=1)
            await broker.enqueue("orders", NewMessage(delay_ms=4_000))
            clock.advance(4_000)
            await broker.pause("orders")
            clock.advance(3_000)
            await broker.resume("orders")
            clock.advance(2_000)
            assert len(await broker.lease("orders")) == 1
            seen = await values(server)
            reasons = {
                labels[1]: value for (name, labels), value in seen.items() if name == "fairlane_wait_seconds_total"
            }
            assert reasons == {"turn": 2, "paused": 3, "delayed": 4, "throttled": 0, "capped": 0}
            assert seen["fairlane_delivery_wait_seconds_sum", ("orders",)] == 5
            await broker.enqueue_many("orders", [NewMessage(throttles=("smtp",))] * 2)
            assert len(await broker.lease("orders", 2)) == 1
            clock.advance(10_000)
            assert len(await broker.lease("orders", 2)) == 1
            seen = await values(server)
            assert seen["fairlane_wait_seconds_total", ("orders", "throttled")] == 10
            assert seen["fairlane_throttle_decisions_total", ("smtp", "passed")] == 2
            assert seen["fairlane_throttle_decisions_total", ("smtp", "held_back")] >= 1

    run(main())


def test_a_late_lease_expiry_is_measured() -> None:
    """The histogram has the time from the end of a lease to the return of its message."""

    async def main() -> None:
        clock = FakeClock()
        async with opened(clock=clock) as server:
            await server.broker.enqueue("orders", NewMessage())
            await server.broker.lease("orders", visibility_ms=1_000)
            clock.advance(1_200)
            await server.broker.enqueue("orders", NewMessage())
            seen = await values(server)
            assert seen["fairlane_lease_expiry_lateness_seconds_count", ()] == 1
            assert seen["fairlane_lease_expiry_lateness_seconds_sum", ()] == 0.2
            assert seen["fairlane_messages_total", ("orders", "returned", "expiry")] == 1

    run(main())


def test_refused_messages_are_counted_by_queue_and_code() -> None:
    """Messages that a limit kept out of a batch show up, also if the call as a whole succeeded, and 0 before that."""

    async def main() -> None:
        clock = FakeClock()
        async with opened(clock=clock) as server:
            await server.broker.update_queue("orders", {"key_waiting_max": 1})
            await server.broker.enqueue("orders", NewMessage(fairness_key="acme"))
            assert (await values(server))["fairlane_refused_total", ("orders", "key_full")] == 0
            await server.broker.enqueue_many("orders", [NewMessage(fairness_key="acme")] * 3)
            clock.advance(1_000)
            await server.broker.enqueue("orders", NewMessage(fairness_key="beta"))
            seen = await values(server)
            assert seen["fairlane_refused_total", ("orders", "key_full")] == 3
            assert seen["fairlane_refused_total", ("orders", "queue_full")] == 0

    run(main())


def test_ticks_of_schedules_are_counted_by_outcome() -> None:
    """Fired, missed and run by hand are told apart, and schedules are counted by state with their next tick."""

    async def main() -> None:
        clock = FakeClock(1_800_000_000_000)
        async with opened(clock=clock) as server:
            broker = server.broker
            spec = ScheduleSpec(every_ms=60_000, until_ms=1_800_000_120_000)
            await broker.set_schedule("orders", "a", replace(spec, overlap="skip"))
            await broker.set_schedule("orders", "b", spec)
            await broker.set_schedule("orders", "c", spec)
            await broker.pause_schedule("orders", "c")
            assert (await values(server))["fairlane_schedule_next_timestamp_seconds", ("orders",)] == 1_800_000_060
            for _ in range(2):
                clock.advance(60_000)
                await broker.enqueue("orders", NewMessage())
            await broker.run_schedule("orders", "b")
            seen = await values(server)
            outcomes = ("fired", "manual", "overlap")
            ticks = [seen["fairlane_schedule_ticks_total", ("orders", outcome)] for outcome in outcomes]
            assert ticks == [3, 1, 1]
            states = {state: seen["fairlane_schedules", ("orders", state)] for state in ("active", "paused", "delayed")}
            assert states == {"active": 2, "paused": 1, "delayed": 0}
            assert ("fairlane_schedule_next_timestamp_seconds", ("orders",)) not in seen

    run(main())


def test_key_labels_are_bounded_and_counters_never_decrease() -> None:
    """Ten keys and the shared label are exported however keys come and go, and their counters only grow."""

    async def main() -> None:
        async with opened() as server:
            before: dict[str, float] = {}
            for lap in range(4):
                for key in [f"tenant-{lap}-{number}" for number in range(30)] + ["steady"] * 5:
                    await server.broker.enqueue("orders", NewMessage(fairness_key=key))
                    await server.broker.ack((await server.broker.lease("orders"))[0])
                seen = await values(server)
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


def test_share_and_entitled_share_of_keys() -> None:
    """A key of weight 3 beside a key of weight 1 is entitled to three quarters and receives them."""

    async def main() -> None:
        clock = FakeClock()
        async with opened(clock=clock) as server:
            await server.broker.set_config("weight:orders:big", "3")
            for key in ("big", "small"):
                await server.broker.enqueue_many("orders", [NewMessage(fairness_key=key)] * 100)
            await values(server)
            for _ in range(40):
                await server.broker.lease("orders")
            clock.advance(10_000)
            seen = await values(server)
            assert abs(seen["fairlane_key_share_ratio", ("orders", "big")] - 0.75) < 0.04
            assert seen["fairlane_key_entitled_share_ratio", ("orders", "big")] == 0.75
            assert seen["fairlane_key_messages", ("orders", "big")] == 100
            assert seen["fairlane_key_weight", ("orders", "big")] == 3

    run(main())


def test_a_paused_key_is_paused_and_not_starved() -> None:
    """A key that an operator paused is exported as paused, and is entitled to no more than it received."""

    async def main() -> None:
        clock = FakeClock()
        async with opened(clock=clock) as server:
            for key in ("acme", "bakery"):
                await server.broker.enqueue_many("orders", [NewMessage(fairness_key=key)] * 100)
            await values(server)
            await server.broker.pause("orders", key="acme")
            for _ in range(40):
                await server.broker.lease("orders")
            clock.advance(300_000)
            seen = await values(server)
            assert seen["fairlane_key_paused", ("orders", "acme")] == 1
            assert seen["fairlane_key_paused", ("orders", "bakery")] == 0
            for name in ("fairlane_key_share_ratio", "fairlane_key_entitled_share_ratio"):
                assert (seen[name, ("orders", "acme")], seen[name, ("orders", "bakery")]) == (0, 1)
            await server.broker.resume("orders", key="acme")
            assert (await server.broker.lease("orders"))[0].fairness_key == "acme"
            seen = await values(server)
            assert seen["fairlane_wait_seconds_total", ("orders", "paused")] == 300
            assert seen["fairlane_wait_seconds_total", ("orders", "turn")] == 0

    run(main())


def test_label_values_are_escaped() -> None:
    """Prometheus' own parser returns quotes, backslashes and line breaks of a label unchanged."""
    key = 'a"b\\c\nd'
    family = Family("fairlane_key_leased", "gauge", "Messages.", [Sample((("key", key),), 1.5)])
    (found,) = text_string_to_metric_families("".join(render([family], is_open_metrics=False)))
    assert (found.samples[0].labels, found.samples[0].value) == ({"key": key}, 1.5)


def test_a_bucket_has_its_exemplar() -> None:
    """OpenMetrics has the exemplar at the bucket of its value; Prometheus text has none."""
    waits = Histogram((1, 2))
    waits.note(1.5)
    samples = list(histogram_samples(waits, (), {1: Exemplar("ab" * 16, "cd" * 8, 1.5, 7.0)}))
    family = Family("fairlane_delivery_wait_seconds", "histogram", "Waits.", samples)
    lines = "".join(render([family], is_open_metrics=True)).splitlines()
    assert [line for line in lines if "#" in line[1:]] == [
        f'fairlane_delivery_wait_seconds_bucket{{le="2"}} 1 # {{trace_id="{"ab" * 16}",span_id="{"cd" * 8}"}} 1.5 7.000'
    ]
    assert "trace_id" not in "".join(render([family], is_open_metrics=False))


def test_light_traffic_is_exact_and_heavy_traffic_is_sampled() -> None:
    """Every message counts up to the lookup budget of a scrape; beyond it, the estimates of each key are close."""
    random = Random(3)
    fold = MetricsFold(
        lambda _, number: Waited(f"key-{number % 2}", 1, number % 2 * 500, 0), queues_max=2, random=random
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


def test_keys_are_not_counted_when_key_labels_are_disabled() -> None:
    """With metrics_keys_max = 0 the server neither counts nor exports keys; all other metrics stay."""

    async def main() -> None:
        async with opened() as server:
            metrics = Metrics(server.broker, watchdog=Watchdog(), keys_max=0)
            server.broker.add_tap(metrics.fold.note)
            await server.broker.enqueue("orders", NewMessage(fairness_key="acme"))
            await server.broker.lease("orders")
            assert metrics.fold.of("orders").served == {}
            families = await metrics.families(server.context.tally, server.context.connections)
            labels = {value for family in families for sample in family.samples for _, value in sample.labels}
            assert "acme" not in labels
            assert metrics.fold.of("orders").waits.count == 1

    run(main())


@pytest.mark.parametrize(
    ("name", "value"), [("metrics_queues_max", 0), ("metrics_keys_max", -1), ("metrics_keys_max", 1_001)]
)
def test_an_invalid_number_of_labels_is_rejected(name: str, value: int) -> None:
    """The error names the setting."""
    with pytest.raises(InvalidArgument, match=f"{name} must be"):
        check(load(None, {}, {name: value}))


def test_counting_keys_takes_bounded_memory() -> None:
    """Keys beyond the limit are counted together, and each scrape frees the limit."""
    fold = MetricsFold(lambda _, number: Waited(f"key-{number}", 1, 0, 0), queues_max=2)
    for number in range(KEYS_MAX + 7):
        fold.note([Leased(1, "mail", [number], 99)], 0)
    served, others = fold.take_served()["mail"]
    assert (len(served), others) == (KEYS_MAX, 7)
    fold.note([Leased(1, "mail", [KEYS_MAX + 5], 99)], 0)
    assert fold.take_served()["mail"] == ({f"key-{KEYS_MAX + 5}": 1}, 0)


def test_queues_beyond_the_limit_share_a_label() -> None:
    """A deleted queue frees its label for another."""
    fold = MetricsFold(lambda _queue, _number: None, queues_max=2)

    def enqueued(queue: str) -> Enqueued:
        return Enqueued(1, queue, [7], [0], Terms(["a"]))

    fold.note([enqueued(name) for name in ("a", "b", "c", "d", "a")], 0)
    assert Counter({name: counts.enqueued for name, counts in fold.queues.items()}) == {"a": 2, "b": 1, OTHERS: 2}
    fold.note([QueueRemoved(9, "a"), QueueRemoved(10, "b"), enqueued("e")], 0)
    assert fold.queues.keys() == {"e", OTHERS}


def test_requests_without_a_valid_key_are_counted() -> None:
    """A missing and a wrong API key count; a valid one without the right does not."""

    async def main() -> None:
        async with opened(requires_auth=True) as server:
            key = await server.key(Grant(right="consume", queues="orders"))
            observer = await server.key(Grant(right="observe", queues="*"))
            await server.post("queues/list")
            await server.post("queues/list", key="wrong")
            await server.post("config/list", key=key)
            text = (await server.http.get("/metrics", headers={"authorization": f"Bearer {observer}"})).text
            assert "fairlane_auth_failures_total 2" in text.splitlines()

    run(main())


def test_the_process_and_the_payloads_are_measured() -> None:
    """A scrape has processor time, memory and descriptors, what is kept, and how much of the limits is used."""

    async def main() -> None:
        async with opened() as server:
            await server.broker.enqueue("orders", b"x" * 1_000)
            found = await values(server)
            assert found["process_cpu_seconds_total", ()] > 0
            assert found["process_resident_memory_bytes", ()] > 1 << 20
            assert 0 < found["process_open_fds", ()] <= found["process_max_fds", ()]
            assert 1_600_000_000 < found["process_start_time_seconds", ()] < datetime.now(UTC).timestamp()
            assert found["fairlane_held_bytes", ()] == 1_000
            assert found["fairlane_waiting_used_ratio", ()] == 1 / 4_000_000
            assert found["fairlane_waiting_bytes_used_ratio", ()] == 1_000 / 2**38
            assert ("fairlane_disk_free_bytes", ()) not in found  # this broker is in memory

    run(main())


def test_the_disk_of_a_store_is_measured(tmp_path: Path) -> None:
    """A store in a folder has the space of its disk; the reserve is an eighth of it at most."""

    async def main() -> None:
        async with await open_async_broker(tmp_path / "store") as broker:
            families = broker_families(broker.measured())
            found = {family.name: family.samples[0].value for family in families if family.samples}
        assert 0 < found["fairlane_disk_free_bytes"] <= found["fairlane_disk_bytes"]
        assert 0 < found["fairlane_disk_reserve_bytes"] <= found["fairlane_disk_bytes"] / 8

    run(main())
