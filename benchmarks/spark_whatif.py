"""What-if: how fast the broker's own scheduler replays a journal, and how much a second core speeds up a sweep.

    python -m benchmarks.spark_whatif [--quick] [--check]

The journal is that of a real broker on a fake clock, under traffic that uses everything: weights, true costs,
priorities, throttles, a cap, delays, deadlines and retries. A sweep of 16 policies runs in one task and in two.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.report import Options, Report, parse_options, rates
from benchmarks.spark_traffic import FULL, PLAIN
from fairlane.spark import spark_session
from fairlane.spark.whatif.comparison import Journal
from fairlane.spark.whatif.fleet import play
from fairlane.spark.whatif.messages import messages_of
from fairlane.spark.whatif.recording import record
from fairlane.spark.whatif.reproduction import reproduce
from fairlane.spark.whatif.scenario import ORIGINAL, Scenario
from fairlane.spark.whatif.spark_runs import run_in_spark
from fairlane.spark.whatif.sweeps import sweep
from fairlane.spark.whatif.tasks import RunPlan
from fairlane.testing.traffic_drive import make_journal

CONFIG = {"throttle:api:rate": "60", "throttle:db:rate": "40", "weight:work:acme": "2", "cap:work:bakery": "16"}


def main() -> None:
    options = parse_options(__doc__ or "")
    report = Report(options)
    spark = spark_session("benchmark", master="local[2]")
    report_to(report, options, spark)
    spark.stop()
    report.finish()


def report_to(report: Report, options: Options, spark: SparkSession) -> None:
    count = 10_000 if options.quick else 60_000
    with tempfile.TemporaryDirectory() as folder:
        plain, full = Path(folder) / "plain", Path(folder) / "full"
        for place, traffic, config in ((plain, PLAIN, {}), (full, FULL, CONFIG)):
            make_journal(place, replace(traffic, messages=count, span_ms=count), config=config)
        report.heading("What-if: messages played a second, on one core")
        speeds = rates([_player(plain), _player(full)], options.repeats)
        exact = reproduce(full)
        rows = [["weights and keys alone", f"{speeds[0]:,.0f}"], ["all features", f"{speeds[1]:,.0f}"]]
        report.table(["", "messages/s"], rows)
        verdict = "all" if exact.is_exact else f"all but {len(exact.differences)}"
        report.console.print(f"  of {exact.hand_outs:,} journalled hand-outs {verdict} come out in the same order")
        report.goal("what-if, all features", measured=speeds[1], least=150_000, unit=" messages/s")
        _report_sweep(report, spark, full, count)


def _player(folder: Path) -> Callable[[], int]:
    journal = Journal(folder)
    recording = record(journal.files, journal.groups[0])
    items = messages_of(recording)
    original = Scenario(name=ORIGINAL)

    def work() -> int:
        play(recording, original, items)
        return len(items)

    return work


def _report_sweep(report: Report, spark: SparkSession, folder: Path, count: int) -> None:
    journal = Journal(folder)
    axes = ["weight:acme=1,2,4,8", "cap:bakery=4,8,16,none"]
    scenarios = sweep(Scenario(name=ORIGINAL), axes, journal.queues, journal.policies)
    work = RunPlan(files=[str(path) for path in journal.files], groups=journal.groups, scenarios=scenarios)
    run_in_spark(spark, work, sizes=journal.sizes, tasks=2)  # so that Python workers are there
    seconds = {tasks: _timed(spark, work, journal, tasks) for tasks in (1, 2)}
    report.heading("What-if: a sweep of 16 policies")
    rows = [
        [f"{tasks} core{'s' if tasks > 1 else ''}", f"{taken:.1f} s", f"{16 * count / taken:,.0f}"]
        for tasks, taken in seconds.items()
    ]
    report.table(["", "time", "messages/s"], rows)
    report.goal("sweep on two cores", measured=seconds[1] / seconds[2], least=1.7, unit="x")


def _timed(spark: SparkSession, work: RunPlan, journal: Journal, tasks: int) -> float:
    start = time.perf_counter()
    run_in_spark(spark, work, sizes=journal.sizes, tasks=tasks)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
