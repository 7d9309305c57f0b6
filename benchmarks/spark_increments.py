"""A day of 50 million events that grows: how long the next thousand events take, and what an idle run costs.

    python -m benchmarks.spark_increments [--check] [--quick]

The journal of a stretch of traffic is repeated, five million events at a time, with a run of the pipeline after each.
Then come a thousand events more, twice, because the first of these runs compiles plans that the second one finds, and
a run without any. Each of these is the whole run in a warm session with Spark's memory as the command has it; its steps
are printed with their times. ``--quick`` measures nothing: a small day says nothing about a large one.
The last rows are first builds of five million events, with few tenants and with many, each with a thousand more, twice.
After each part the tables must have all messages and as many tenants as the part is named after.
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
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import SparkSession

from benchmarks.report import Options, Report, parse_options
from benchmarks.spark_tables import STRETCH, TRAFFIC, in_less_time, make_stretch, repeat, write_segment
from fairlane.lakehouse import open_tables
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
_MANY = 300_000
"""How many tenants "many" are."""
_MANY_PER_STRETCH = 14_000
"""A stretch meets some 3,100 of them, since most send seldom. Five million events are a hundred stretches."""


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
    for again in range(2):
        _write_next(stretch, journal, begin, length_ms, again=again)
        rows.append(_measured(spark, journal, tables, f"and {NEW_EVENTS:,} more"))
    _check_tables(journal, tables, tenants=1)
    jobs = _jobs(spark)
    rows.append(_measured(spark, journal, tables, "nothing new"))
    idle_jobs = _jobs(spark) - jobs
    _report_runs(report, rows)
    report.goal(f"{what}, the first time", measured=rows[-3].seconds, most=GOAL_S, unit=" s")
    report.goal(f"{what}, the second time", measured=rows[-2].seconds, most=GOAL_S, unit=" s")
    report.goal("jobs of a run without new events", measured=idle_jobs, most=0, unit="")


def _length_ms(events: int) -> int:
    """Return the time from one stretch to the next with which all of them, and the next one's beginning, are one day.

    A stretch lasts longer than that, because its last messages are retried: hence room for two more.
    """
    return _DAY_MS // (events // STRETCH + 2)


def _write_next(
    stretch: pa.Table, journal: Path, begin: int, length_ms: int, *, again: int = 0, own_tenants: bool = False
) -> None:
    """Write the first events of the next stretch, or those that follow if the first have been written already."""
    with tempfile.TemporaryDirectory() as folder:
        repeat(stretch, Path(folder), times=1, begin=begin, length_ms=length_ms, own_tenants=own_tenants)
        rows = ds.dataset(folder).to_table().sort_by("sequence")
    write_segment(rows.slice(again * NEW_EVENTS, NEW_EVENTS).combine_chunks(), journal)


def _report_builds(report: Report, spark: SparkSession, folder: Path) -> None:
    """Build five million events at once, and then a thousand more."""
    goals = {"300 tenants": (TRAFFIC.tenants, 1, FEW_GOAL_S), "300,000": (_MANY_PER_STRETCH, _MANY, MANY_GOAL_S)}
    times, length_ms = STEP // STRETCH, _length_ms(STEP)
    for name, (tenants, tenants_min, goal_s) in goals.items():
        place, own_tenants = folder / name, tenants_min == _MANY
        journal, tables = place / "journal", place / "tables"
        make_journal(place / "stretch", replace(TRAFFIC, tenants=tenants))
        stretch = ds.dataset(place / "stretch").to_table().sort_by("sequence").combine_chunks()
        repeat(stretch, journal, times=times, length_ms=length_ms, own_tenants=own_tenants)
        runs = [_measured(spark, journal, tables, f"first build of {STEP:,} events with {name}")]
        for again in range(2):
            _write_next(stretch, journal, times, length_ms, again=again, own_tenants=own_tenants)
            runs.append(_measured(spark, journal, tables, f"{NEW_EVENTS:,} events on top of them"))
        _check_tables(journal, tables, tenants=tenants_min)
        shutil.rmtree(place)
        _report_runs(report, runs)
        report.goal(runs[0].name, measured=runs[0].seconds, most=goal_s, unit=" s")
        for run, nth in zip(runs[1:], ("first", "second"), strict=True):
            what = f"{run.name}, with {name}, the {nth} time"
            report.goal(what, measured=run.seconds, most=GOAL_S, unit=" s")


def _report_runs(report: Report, runs: Sequence[_Measured]) -> None:
    rows = [[run.name, f"{run.seconds:.1f} s", f"{run.cpu_s:.1f} s"] for run in runs]
    report.table(["", "time of the run", "CPU time"], rows)


def _check_tables(journal: Path, tables: Path, *, tenants: int) -> None:
    """Check that the tables have all messages, enough tenants, and one day: events of a new day cost less."""
    manifest = read_manifest(tables)
    assert manifest is not None
    assert len(manifest.days) == 1, manifest.days
    wanted = ds.dataset(journal).count_rows(filter=ds.field("kind") == "enqueued")
    usage = open_tables(tables).dataset("tenant_usage").to_table(columns=["top_key", "enqueued"])
    found, known = pc.sum(usage["enqueued"]).as_py(), pc.count_distinct(usage["top_key"]).as_py()
    assert found == wanted, f"the tables have {found:,} messages of {wanted:,}"
    assert known >= tenants, f"the tables have {known:,} tenants, not {tenants:,}"


def _measured(spark: SparkSession, journal: Path, tables: Path, name: str) -> _Measured:
    print(f"{name}:", flush=True)
    began, cpu_s = time.perf_counter(), _cpu_s()
    run_pipeline(spark, JournalFolder(journal), tables, tell=lambda line: print(f"  {line}", flush=True))
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
