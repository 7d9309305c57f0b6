"""A day of 50 million events that grows: how long the next thousand events take, and what an idle run costs.

    python -m benchmarks.spark_increments [--check] [--quick]

The journal of a stretch of traffic is repeated, five million events at a time, with a run of the pipeline after each.
Then come a thousand events more, and a run without any. Each of these is the whole run in a warm session with Spark's
memory as the command has it. ``--quick`` measures nothing: a small day says nothing about a large one.
The last rows are first builds of five million events, with few tenants and with many.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql import SparkSession

from benchmarks.report import Options, Report, parse_options
from benchmarks.spark_tables import STRETCH, TRAFFIC, in_less_time, make_stretch, repeat, write_segment
from fairlane.spark import spark_session
from fairlane.spark.pipeline import CONF, JournalFolder, run_pipeline
from fairlane.testing.traffic_drive import make_journal

EVENTS, STEP = 50_000_000, 5_000_000
NEW_EVENTS = 1_000
GOAL_S, FEW_GOAL_S, MANY_GOAL_S = 15.0, 60.0, 80.0
SESSION = {**CONF, "spark.driver.memory": "2g"}
_FASTER = 10
"""Traffic of ten days fits into one."""
_LENGTH_MS = 86_400
"""The time from one stretch to the next."""
_MANY_PER_STRETCH = 3_000
"""With tenants of its own in each stretch, five million events have 300,000."""


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
    rows, begin = [], 0
    for _ in range(EVENTS // STEP):
        repeat(stretch, journal, times=STEP // STRETCH, begin=begin, length_ms=_LENGTH_MS)
        begin += STEP // STRETCH
        rows.append(_measured(spark, journal, tables, f"{begin * len(stretch):,} events"))
    _write_next(stretch, journal, begin)
    rows.append(_measured(spark, journal, tables, f"and {NEW_EVENTS:,} more"))
    jobs = _jobs(spark)
    rows.append(_measured(spark, journal, tables, "nothing new"))
    idle_jobs = _jobs(spark) - jobs
    report.table(["", "time of the run"], [[name, f"{seconds:.1f} s"] for name, seconds in rows])
    report.goal(what, measured=rows[-2][1], most=GOAL_S, unit=" s")
    report.goal("jobs of a run without new events", measured=idle_jobs, most=0, unit="")


def _write_next(stretch: pa.Table, journal: Path, begin: int) -> None:
    """Write the first events of the next stretch."""
    with tempfile.TemporaryDirectory() as folder:
        repeat(stretch, Path(folder), times=1, begin=begin, length_ms=_LENGTH_MS)
        rows = ds.dataset(folder).to_table().sort_by("sequence")
    write_segment(rows.slice(0, NEW_EVENTS).combine_chunks(), journal)


def _report_builds(report: Report, spark: SparkSession, folder: Path) -> None:
    """Build five million events at once."""
    goals = {"300 tenants": (TRAFFIC.tenants, False, FEW_GOAL_S), "300,000": (_MANY_PER_STRETCH, True, MANY_GOAL_S)}
    for name, (tenants, own_tenants, goal_s) in goals.items():
        place = folder / name
        make_journal(place / "stretch", replace(TRAFFIC, tenants=tenants))
        stretch = ds.dataset(place / "stretch").to_table().sort_by("sequence").combine_chunks()
        repeat(stretch, place / "journal", times=STEP // STRETCH, own_tenants=own_tenants)
        _, seconds = _measured(spark, place / "journal", place / "tables", name)
        shutil.rmtree(place)
        report.goal(f"first build of {STEP:,} events with {name}", measured=seconds, most=goal_s, unit=" s")


def _measured(spark: SparkSession, journal: Path, tables: Path, name: str) -> tuple[str, float]:
    began = time.perf_counter()
    run_pipeline(spark, JournalFolder(journal), tables)
    return name, time.perf_counter() - began


def _jobs(spark: SparkSession) -> int:
    """Return how many Spark jobs there have been."""
    return int(spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs())


if __name__ == "__main__":
    main()
