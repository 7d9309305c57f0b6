from __future__ import annotations

import asyncio
import threading

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from fairlane.asgi import FairGate, FairQueue, queue_time_ms, report_cost
from fairlane.asgi.prometheus import GateCollector
from fairlane.asgi.protocol import Receive, Scope, Send
from fairlane.errors import InvalidArgument
from fairlane.scheduler import Backpressure, KeyPolicy

from .driver import Clock, FairService, Stage, run, until

MS_NS = 1_000_000


async def waits(there: FairService, clock: Clock, *waits_ms: int) -> None:
    """Serve requests ``a0``, ``a1``, … of a service with one slot, each after this wait."""
    for number, wait_ms in enumerate(waits_ms):
        await there.send_waiting(f"z{number}", f"a{number}")
        clock.now_ms += wait_ms
        there.stage.let_go(f"z{number}")
        await until(lambda number=number: f"a{number}" in there.stage.started)  # type: ignore[misc]
        there.stage.let_go(f"a{number}")
        await until(lambda: there.gate.stats().in_flight == 0)


def test_queue_time_is_reported_in_total_and_by_key(clock: Clock) -> None:
    """Percentiles are those of the waits, to one eighth, for the key that waited and for all keys together."""

    async def scenario() -> None:
        stage = Stage()
        there = FairService(FairQueue(stage, in_flight=1, clock=clock), stage)
        await waits(there, clock, *([10] * 18), 200, 1000)
        stats = there.queue.stats()
        wait = stats.keys["a"].wait
        assert (wait.count, wait.max_ns, wait.sum_ns) == (20, 1000 * MS_NS, 1380 * MS_NS)
        assert 10 * MS_NS <= wait.p50_ns <= 12 * MS_NS
        assert 200 * MS_NS <= wait.p95_ns <= 225 * MS_NS
        assert wait.p99_ns == 1000 * MS_NS
        assert stats.keys["z"].wait.max_ns == 0
        assert (stats.total.wait.count, stats.total.wait.p50_ns) == (40, 0)
        assert 10 * MS_NS <= stats.total.wait.percentile_ns(90) <= 12 * MS_NS

    run(clock, scenario())


def test_every_way_out_of_the_queue_is_counted_for_its_key(clock: Clock) -> None:
    """Refused, dropped, expired and disconnected requests count for their key, and none is left waiting."""

    async def scenario() -> None:
        stage = Stage()
        policies = {"d": KeyPolicy(waiting_max=1, backpressure=Backpressure.DROP_OLDEST)}
        there = FairService(
            FairQueue(stage, in_flight=1, key_waiting_max=1, wait_timeout_ms=500, policies=policies, clock=clock), stage
        )
        await there.send_waiting("a1", "b1", "b2", "d1", "d2")
        gone = there.send("c1")
        await until(lambda: there.gate.waiting("c") == 1)
        gone.disconnect()
        await until(lambda: there.gate.stats().disconnected == 1)
        await there.send("e1").response()
        keys = there.gate.stats().keys
        assert (keys["a"].enqueued, keys["a"].dequeued) == (1, 1)
        assert (keys["b"].enqueued, keys["b"].rejected, keys["b"].expired) == (1, 1, 1)
        assert (keys["d"].enqueued, keys["d"].dropped, keys["d"].expired) == (2, 1, 1)
        assert (keys["c"].cancelled, keys["e"].expired) == (1, 1)
        assert sum(counts.waiting for counts in keys.values()) == 0
        await there.drained()

    run(clock, scenario())


def test_statistics_of_keys_are_bounded(clock: Clock) -> None:
    """A service with many tenants remembers only the latest ones, and all of them in the totals."""

    async def scenario() -> None:
        stage = Stage()
        stage.open()
        queue = FairQueue(stage, key=lambda scope: scope["path"], stats_keys_max=3, clock=clock)
        there = FairService(queue, stage)
        for number in range(20):
            assert (await there.send(f"a{number}").response()).status == 200
        stats = there.gate.stats()
        assert list(stats.keys) == ["/a17", "/a18", "/a19"]
        assert (stats.total.dequeued, stats.total.cost) == (20, 20)

    run(clock, scenario())


def test_the_number_of_keys_with_statistics_must_be_positive() -> None:
    """A gate without statistics of keys is refused when it is created."""
    with pytest.raises(ValueError, match="stats_keys_max"):
        FairGate(stats_keys_max=0)


def test_top_keys_rank_tenants(clock: Clock) -> None:
    """The tenants with the most requests, or the highest cost, come first."""

    async def scenario() -> None:
        stage = Stage()
        stage.open()
        queue = FairQueue(stage, cost=lambda scope: 9 if scope["path"] == "/c1" else 1, clock=clock)
        there = FairService(queue, stage)
        for name in ("a1", "b1", "b2", "c1"):
            await there.send(name).response()
        stats = queue.stats()
        assert [key for key, _ in stats.top_keys(1)] == ["b"]
        assert [(key, counts.cost) for key, counts in stats.top_keys(2, by="cost")] == [("c", 9), ("b", 2)]

    run(clock, scenario())


def test_the_application_can_read_its_queue_time(clock: Clock) -> None:
    """A request that waited reads for how long; one that did not pass the queue reads None."""
    seen: dict[str, int | None] = {}
    stage = Stage()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen[scope["path"]] = queue_time_ms(scope)
        await stage(scope, receive, send)

    async def scenario() -> None:
        queue = FairQueue(app, in_flight=1, exempt=lambda scope: scope["path"] == "/health", clock=clock)
        there = FairService(queue, stage)
        await there.send_waiting("a1", "a2")
        clock.now_ms += 70
        await there.drained()
        await there.send("health").response()
        assert seen == {"/a1": 0, "/a2": 70, "/health": None}

    run(clock, scenario())


def started_after_settling(clock: Clock, costs: dict[str, int]) -> list[str]:
    """Return in which order ``a2``, ``b1``, ``b2`` and ``a3`` start after ``a1`` has reported its true cost."""
    stage = Stage()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].strip("/") in costs:
            assert report_cost(scope, 99)  # the last report counts
            assert report_cost(scope, costs[scope["path"].strip("/")])
        await stage(scope, receive, send)

    async def scenario() -> int:
        there = FairService(FairQueue(app, in_flight=1, clock=clock), stage)
        await there.send_waiting("a1", "a2", "b1", "b2", "a3", "b3")
        for number in range(6):
            await until(lambda number=number: len(stage.started) == number + 1)  # type: ignore[misc]
            stage.let_go(stage.started[-1])
        await there.drained()
        return there.gate.stats().keys["a"].cost

    assert run(clock, scenario()) == sum(costs.get(name, 1) for name in ("a1", "a2", "a3"))
    return stage.started


def test_a_true_cost_is_settled_when_the_request_finishes(clock: Clock) -> None:
    """A tenant whose request cost more than estimated waits until others have had as much."""
    assert started_after_settling(clock, {}) == ["a1", "a2", "b1", "a3", "b2", "b3"]
    assert started_after_settling(clock, {"a1": 3}) == ["a1", "b1", "b2", "a2", "b3", "a3"]


@pytest.mark.parametrize("cost", [-1, 1.5, True, "3"])
def test_a_true_cost_must_be_a_whole_number(cost: object) -> None:
    """A cost that is negative or not an integer is refused."""
    with pytest.raises(InvalidArgument, match="cost of a request"):
        report_cost({}, cost)  # type: ignore[arg-type]


def test_a_cost_outside_a_queue_is_ignored() -> None:
    """A handler that reports its cost also works without the middleware."""
    assert not report_cost({}, 3)
    assert queue_time_ms({}) is None


def test_prometheus_reads_queue_times_of_the_busiest_keys(clock: Clock) -> None:
    """The collector has histograms in total and by key, slots, and refusals by code."""

    async def scenario() -> str:
        stage = Stage()
        there = FairService(FairQueue(stage, in_flight=1, key_waiting_max=1, clock=clock), stage)
        await waits(there, clock, 3, 700)
        await there.send_waiting("q1", "q2", "q3")
        registry = CollectorRegistry()
        registry.register(GateCollector(there.gate, keys_max=2))
        text = generate_latest(registry).decode()
        await there.drained()
        return text

    text = run(clock, scenario())
    series = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert series['fairlane_gate_wait_seconds_bucket{le="0.005"}'] == "4.0"
    assert series['fairlane_gate_key_wait_seconds_bucket{key="a",le="0.5"}'] == "1.0"
    assert series['fairlane_gate_key_wait_seconds_count{key="a"}'] == "2.0"
    assert series['fairlane_gate_refused_total{code="key_full"}'] == "1.0"
    assert series["fairlane_gate_finished_total"] == "4.0"
    assert (series["fairlane_gate_in_flight"], series["fairlane_gate_waiting"]) == ("1.0", "1.0")
    assert not any('key="q"' in name for name in series)
    assert "# HELP fairlane_gate_wait_seconds Time that requests waited before they were handed out" in text


def test_statistics_can_be_read_from_another_thread(clock: Clock) -> None:
    """A thread that scrapes while keys come and go always gets a snapshot."""
    stage = Stage()
    stage.open()
    gate = FairGate(stats_keys_max=4, clock=clock)
    there = FairService(FairQueue(stage, gate=gate, key=lambda scope: scope["path"]), stage)
    done = threading.Event()
    errors: list[BaseException] = []

    def scrape() -> None:
        try:
            while not done.is_set():
                gate.stats()
        except BaseException as error:  # noqa: BLE001 - the test fails with whatever it is
            errors.append(error)

    async def scenario() -> None:
        await asyncio.gather(*(there.send(f"a{number}").response() for number in range(300)))

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        run(clock, scenario())
    finally:
        done.set()
        thread.join()
    assert errors == []
    assert gate.stats().total.dequeued == 300
