"""Firq: examples, benchmarks and promises."""

from __future__ import annotations

import asyncio
import importlib
import io
import json
import re
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from benchmarks import neighbours
from benchmarks.report import Options, Report
from benchmarks.scheduler import (
    CROWDS,
    compare_contention,
    compare_faces,
    scheduler_crowd,
    through_async_scheduler,
    through_scheduler,
)
from fairlane.asgi import FairGate, FairQueue
from fairlane.assembly import open_broker
from fairlane.client.transport.protocol import Conversation
from fairlane.scheduler import AsyncScheduler, Scheduler, Task
from fairlane.verbs.queues import ListQueues
from fairlane.worker import WorkMessage
from tests.kit.public_names import RECORD, metrics
from tests.kit.waiting import PATIENCE_S, until
from tests.unit.asgi.driver import Clock, FairService, Stage, run
from tests.unit.broker.stepping import broker_with, payloads
from tests.unit.cluster.in_process import cluster_of
from tests.unit.server.local_server import opened
from tests.unit.worker.bench import WorkerBench, on_bench

ROOT = Path(__file__).parents[2]


def example(name: str) -> str:
    """Run an example as a reader would, and return what it prints."""
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / name)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def printing() -> tuple[Report, io.StringIO]:
    """Return the report of a quick benchmark, and the text that it prints to."""
    printed = io.StringIO()
    return Report(Options(quick=True, check=False), Console(width=120, file=printed)), printed


def test_185_an_example_with_threads() -> None:
    """A pool of threads works on tasks of all tenants at once, small tenants first; `examples/webhook_threads.py`."""
    scheduler: Scheduler[None] = Scheduler()
    for tenant, count in (("large", 20), ("small", 4)):
        for _ in range(count):
            scheduler.enqueue(tenant, None)
    scheduler.close(drain=True)
    together, done = threading.Barrier(4), []

    def work() -> None:
        for task in scheduler:
            together.wait(PATIENCE_S)  # it passes only if four threads have a task
            done.append(task.key)

    with ThreadPoolExecutor(max_workers=4) as pool:
        for worker in [pool.submit(work) for _ in range(4)]:
            worker.result(PATIENCE_S)
    assert Counter(done[:8]) == {"large": 4, "small": 4}
    printed = example("webhook_threads.py")
    last = {name: int(at) for name, at in re.findall(r"([a-z-]+): all delivered after (\d+) of 315", printed)}
    assert sorted(last) == ["bakery", "florist", "mega-mart", "slow-shop"]
    assert max(last["bakery"], last["florist"]) < 100 < last["mega-mart"]
    assert "slow-shop had at most 1 call at a time" in printed


def test_186_an_example_with_asyncio() -> None:
    """A dispatcher fans tasks out to coroutines, as many at once as it may, in fair order;
    `examples/fan_out_asyncio.py`."""
    done: list[object] = []

    async def main() -> None:
        scheduler: AsyncScheduler[None] = AsyncScheduler()
        for tenant, count in (("large", 20), ("small", 4)):
            for _ in range(count):
                await scheduler.enqueue(tenant, None)
        scheduler.close(drain=True)
        together = asyncio.Barrier(4)

        async def handle(task: Task[None]) -> None:
            async with asyncio.timeout(PATIENCE_S), together:  # entered only if four tasks are there
                done.append(task.key)

        await scheduler.dispatch(handle, in_flight=4)

    asyncio.run(main())
    assert Counter(done[:8]) == {"large": 4, "small": 4}
    printed = example("fan_out_asyncio.py")
    last = {name: int(at) for name, at in re.findall(r"([a-z]+): all finished after (\d+) of", printed)}
    assert max(last["news"], last["shop"]) < 60 < last["crawler"]
    assert "Expired: crawler page of interest only now" in printed


def test_187_an_example_of_a_gate_per_route() -> None:
    """A gate can take turns by tenant and route, so that searches pass the reports that wait;
    `examples/fastapi_gate.py`."""
    clock = Clock()

    async def main() -> list[str]:
        stage = Stage()
        gate = FairGate(in_flight=1, clock=clock)
        by_route = FairQueue(stage, gate=gate, key=lambda scope: ("tenant", scope["path"][1:7]))
        there = FairService(by_route, stage)
        await there.send_waiting("report-1", "report-2", "report-3", "report-4", "search-1", "search-2")
        await there.drained()
        return stage.started

    assert run(clock, main()) == ["report-1", "report-2", "search-1", "report-3", "search-2", "report-4"]
    printed = example("fastapi_gate.py")
    started = re.findall(r"^ +\d+ +\d+  (noisy|quiet) +/(reports|search)", printed, re.MULTILINE)
    assert Counter(started) == {("noisy", "reports"): 20, ("noisy", "search"): 2, ("quiet", "search"): 3}
    assert started[-1] == ("noisy", "reports")
    assert max(at for at, start in enumerate(started) if start[1] == "search") < 15


def test_188_a_benchmark_of_throughput() -> None:
    """`python -m benchmarks.scheduler` measures tasks a second, for threads and for asyncio, and each task arrives."""
    assert through_scheduler(200) == asyncio.run(through_async_scheduler(200)) == 200
    report, printed = printing()
    compare_faces(report, report.options, tasks=200)
    measured = re.findall(r"\b(Scheduler|AsyncScheduler)\W+(\d+)", printed.getvalue())
    assert [name for name, _ in measured] == ["Scheduler", "AsyncScheduler"]
    assert all(int(rate) > 0 for _, rate in measured)


def test_189_a_benchmark_of_contention() -> None:
    """`python -m benchmarks.scheduler` compares 4 and 16 producers and consumers with one of each; no task is lost or
    taken twice."""
    assert [scheduler_crowd(threads, 160) for threads in CROWDS] == [160] * len(CROWDS)
    report, printed = printing()
    compare_contention(report, report.options, tasks=160)
    measured = re.findall(r" Scheduler\W+(\d+) \+ (\d+)\W+(\d+)", printed.getvalue())
    assert [(int(left), int(right)) for left, right, _ in measured] == [(threads, threads) for threads in CROWDS]
    assert all(int(rate) > 0 for *_, rate in measured)


def test_190_a_benchmark_with_a_hot_tenant() -> None:
    """`python -m benchmarks.neighbours` measures a quiet tenant behind a flood: of the flood, it waits for no more
    messages than it has itself."""
    flood = 3 * neighbours.BATCH
    waits = asyncio.run(neighbours.measure(is_fair=True, singles=3, flood=flood))
    assert (len(waits.burst), len(waits.singles)) == (neighbours.QUIET, 3)
    assert 0 < waits.meanwhile <= 2 * neighbours.QUIET + 10 * neighbours.CREDIT < flood


def test_191_a_benchmark_of_queue_time() -> None:
    """`python -m benchmarks.neighbours` prints p50, p95 and p99 of the quiet tenant's waits, and the longest, in fair
    order and first in, first out."""
    waits = [float(wait) for wait in range(1, 101)]
    assert neighbours.row("quiet", waits, 1_000) == [
        "quiet", "51.0 ms", "96.0 ms", "100.0 ms", "100.0 ms", "1,000/s",
    ]  # fmt: skip
    report, printed = printing()
    neighbours.compare(report, report.options, flood=neighbours.BATCH, singles=3)
    rows = re.findall(r"│ (\S[^│]*?) +│((?: +[0-9,.]+ ms │){4})", printed.getvalue())
    assert [name for name, _ in rows] == ["100 at once, fair", "one by one, fair", "100 at once, first in first out"]
    for _, row in rows:
        measured = [float(wait.replace(",", "")) for wait in re.findall(r"[0-9,.]+", row)]
        assert 0 < measured[0] <= measured[1] <= measured[2] <= measured[3]


def test_200_it_does_more_than_schedule(tmp_path: Path) -> None:
    """Firq does not persist, execute or distribute; here the broker, the worker and the cluster do."""
    with open_broker(tmp_path / "store") as broker:
        broker.create_queue("q")
        broker.enqueue("q", b"persisted")
    with open_broker(tmp_path / "store") as broker:
        assert payloads(broker.lease("q")) == [b"persisted"]

    async def execute(bench: WorkerBench) -> None:
        executed: list[bytes] = []

        @bench.app.handler("jobs")
        async def handle(message: WorkMessage) -> None:
            executed.append(message.payload)

        async with bench.app:
            await bench.enqueue(b"executed")
            await bench.settled("ack")
        assert executed == [b"executed"]

    async def distribute() -> None:
        async with cluster_of("ab") as cluster:
            for name, asked in (("one", "a"), ("two", "b")):
                await cluster[asked].done("queues/create", {"queue": name})
            await until(lambda: cluster.owner("one") is not cluster.owner("two"), "each node has a queue")

    on_bench(execute)
    asyncio.run(distribute())


def test_201_a_promise_of_stability() -> None:
    """What is public stays, or is deprecated first, as docs/stability.md promises; and a client reads an answer of a
    newer server that has fields and frames more."""
    promise = (ROOT / "docs" / "stability.md").read_text()
    assert "A deprecated name keeps working for at least one minor version" in promise
    for module, recorded in json.loads(RECORD.read_text())["python"].items():
        names = importlib.import_module(module).__all__
        assert f"`{module}" in promise
        assert [name for name in recorded if name not in names] == []
        assert [name for name in names if not hasattr(importlib.import_module(module), name)] == []
    reply: Future[Any] = Future()
    conversation = Conversation()
    conversation.call("queues", ListQueues(), reply, due=1.0)
    answer = broker_with({"quantum": 7}).call(ListQueues())
    newer = msgspec.to_builtins(answer) | {"added_in_2": 1}
    newer["queues"][0]["policy"]["added_in_2"] = True
    conversation.receive(msgspec.msgpack.encode([[77, "a frame of version 2"], [1, 1, newer]]))
    assert reply.result(0) == answer


def test_202_metrics_keep_their_names() -> None:
    """Names, types and labels of metrics stay: those on record are in the reference, and a server has only these."""
    assert "| metrics | names, labels and units in [Metrics]" in (ROOT / "docs" / "stability.md").read_text()
    recorded, documented = json.loads(RECORD.read_text())["metrics"], metrics()
    assert {name: documented.get(name) for name in recorded} == recorded

    async def exported() -> str:
        async with opened() as server:
            await server.broker.enqueue("orders", b"")
            return (await server.http.get("/metrics")).text

    found = dict(re.findall(r"^# TYPE (\S+) (\S+)$", asyncio.run(exported()), re.MULTILINE))
    assert {name: documented[name][0] for name in found} == found
    assert len(found) > 20
