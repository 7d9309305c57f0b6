"""A day of 50 million events that grows: how long the next thousand events take, and what an idle run costs.

    python -m benchmarks.spark_increments [--check] [--quick]

The journal of a stretch of traffic is repeated, five million events at a time, with a run of the pipeline after each.
Then come a thousand events more, and a run without any. Each of these is the whole run in a warm session with Spark's
memory as the command has it. ``--quick`` measures nothing: a small day says nothing about a large one.
The last rows are first builds of five million events, with few tenants and with many, each with a thousand more.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql import SparkSession

from benchmarks.report import Options, Report, parse_options
from benchmarks.spark_tables import STRETCH, TRAFFIC, in_less_time, make_stretch, repeat, write_segment
from fairlane.spark import spark_session
from fairlane.spark.pipeline import CONF, JournalFolder, read_manifest, run_pipeline
from fairlane.testing.traffic_drive import make_journal

EVENTS, STEP = 50_000_000, 5_000_000
NEW_EVENTS = 1_000
GOAL_S, FEW_GOAL_S, MANY_GOAL_S = 15.0, 60.0, 80.0
SESSION = {**CONF, "spark.driver.memory": "2g"}
_FASTER = 10
"""Traffic of ten days fits into one."""
_DAY_MS = 86_400_000
_MANY_PER_STRETCH = 3_000
"""With tenants of its own in each stretch, five million events have 300,000."""


@dataclass(frozen=True, slots=True)
class _Measured:
    """What a run took."""

    name: str
    seconds: float
    cpu_s: float


def main() -> None:
    options = parse_options(__doc__ or "")
    report = Report(options)
    spark = spark_session("benchmark", master="local[2]", conf=SESSION)
    report_to(report, options, spark)
    spark.stop()
    report.finish()


def report_to(report: Report, options: Options, spark: SparkSession) -> None:
    """Measure, and tell what was found."""
    what = f"{NEW_EVENTS:,} events on top of {EVENTS:,} on one day"
    report.heading("Tables that grow", repeats=1)
    if options.quick:
        report.not_run(what)
        return
    with tempfile.TemporaryDirectory() as folder:
        _report_growth(report, spark, Path(folder), what)
    with tempfile.TemporaryDirectory() as folder:
        _report_builds(report, spark, Path(folder))


def _report_growth(report: Report, spark: SparkSession, folder: Path, what: str) -> None:
    stretch = in_less_time(make_stretch(folder / "stretch"), _FASTER)
    journal, tables = folder / "journal", folder / "tables"
    rows, begin, length_ms = [], 0, _length_ms(EVENTS)
    for _ in range(EVENTS // STEP):
        repeat(stretch, journal, times=STEP // STRETCH, begin=begin, length_ms=length_ms)
        begin += STEP // STRETCH
        rows.append(_measured(spark, journal, tables, f"{begin * len(stretch):,} events"))
    _write_next(stretch, journal, begin, length_ms)
    rows.append(_measured(spark, journal, tables, f"and {NEW_EVENTS:,} more"))
    _check_day(tables)
    jobs = _jobs(spark)
    rows.append(_measured(spark, journal, tables, "nothing new"))
    idle_jobs = _jobs(spark) - jobs
    _report_runs(report, rows)
    report.goal(what, measured=rows[-2].seconds, most=GOAL_S, unit=" s")
    report.goal("jobs of a run without new events", measured=idle_jobs, most=0, unit="")


def _length_ms(events: int) -> int:
    """Return the time from one stretch to the next with which all of them, and the next one's beginning, are one day.

    A stretch lasts longer than that, because its last messages are retried: hence room for two more.
    """
    return _DAY_MS // (events // STRETCH + 2)


def _write_next(stretch: pa.Table, journal: Path, begin: int, length_ms: int, *, own_tenants: bool = False) -> None:
    """Write the first events of the next stretch."""
    with tempfile.TemporaryDirectory() as folder:
        repeat(stretch, Path(folder), times=1, begin=begin, length_ms=length_ms, own_tenants=own_tenants)
        rows = ds.dataset(folder).to_table().sort_by("sequence")
    write_segment(rows.slice(0, NEW_EVENTS).combine_chunks(), journal)


def _report_builds(report: Report, spark: SparkSession, folder: Path) -> None:
    """Build five million events at once, and then a thousand more."""
    goals = {"300 tenants": (TRAFFIC.tenants, False, FEW_GOAL_S), "300,000": (_MANY_PER_STRETCH, True, MANY_GOAL_S)}
    times, length_ms = STEP // STRETCH, _length_ms(STEP)
    for name, (tenants, own_tenants, goal_s) in goals.items():
        place = folder / name
        journal, tables = place / "journal", place / "tables"
        make_journal(place / "stretch", replace(TRAFFIC, tenants=tenants))
        stretch = ds.dataset(place / "stretch").to_table().sort_by("sequence").combine_chunks()
        repeat(stretch, journal, times=times, length_ms=length_ms, own_tenants=own_tenants)
        first = _measured(spark, journal, tables, f"first build of {STEP:,} events with {name}")
        _write_next(stretch, journal, times, length_ms, own_tenants=own_tenants)
        more = _measured(spark, journal, tables, f"{NEW_EVENTS:,} events on top of them")
        _check_day(tables)
        shutil.rmtree(place)
        _report_runs(report, [first, more])
        report.goal(first.name, measured=first.seconds, most=goal_s, unit=" s")
        report.goal(f"{more.name}, with {name}", measured=more.seconds, most=GOAL_S, unit=" s")


def _report_runs(report: Report, runs: Sequence[_Measured]) -> None:
    rows = [[run.name, f"{run.seconds:.1f} s", f"{run.cpu_s:.1f} s"] for run in runs]
    report.table(["", "time of the run", "CPU time"], rows)


def _check_day(tables: Path) -> None:
    """Check that all events are on one day: those of a new day cost less."""
    manifest = read_manifest(tables)
    assert manifest is not None
    assert len(manifest.days) == 1, manifest.days


def _measured(spark: SparkSession, journal: Path, tables: Path, name: str) -> _Measured:
    began, cpu_s = time.perf_counter(), _cpu_s()
    run_pipeline(spark, JournalFolder(journal), tables)
    return _Measured(name, time.perf_counter() - began, _cpu_s() - cpu_s)


def _cpu_s() -> float:
    """Return the CPU time of this session of processes: of Java and Spark's Python workers too.

    On a machine that is busy with other work, it tells more than the time on the clock.
    """
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # the process has ended
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == os.getsid(0):
                ticks += sum(map(int, fields[11:15]))  # with those of processes that ended
    return ticks / os.sysconf("SC_CLK_TCK")


def _jobs(spark: SparkSession) -> int:
    """Return how many Spark jobs there have been."""
    return int(spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs())


if __name__ == "__main__":
    main()
