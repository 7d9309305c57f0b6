"""All tables of the pipeline from a large journal: how long it takes, and how that grows.

    python -m benchmarks.spark_tables [--check]

A stretch of traffic goes through a real broker on a fake clock. Its journal is repeated until it has the wanted length,
a day at most. A first run over one stretch warms Spark up, as a running pipeline is warm. The time is that of a whole
run: taking in segments, building all tables and publishing them. ``--quick`` measures nothing, because on a journal
that small the time goes into compiling plans and not into events.
"""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks.report import Options, Report, parse_options
from benchmarks.spark_traffic import EVENTFUL
from fairlane.spark import spark_session
from fairlane.spark.pipeline import CONF, JournalFolder, run_pipeline
from fairlane.testing.traffic_drive import make_journal

SIZES = (500_000, 5_000_000)
GOAL_S = 90.0
SESSION = {**CONF, "spark.driver.memory": "3g"}
"""Settings of the Spark session."""
TRAFFIC = replace(EVENTFUL, messages=15_750, span_ms=740_000)
STRETCH = 50_000
"""The approximate number of events per stretch."""
STRETCH_MS = 864_000
_START_MS = 1_767_225_600_000  # 2026-01-01
_SEGMENT = 250_000
_NUMBERED = ("sequence", "record", "token")
_INSTANTS = ("at_ms", "due_ms", "deadline_ms", "expires_ms")


@dataclass(frozen=True, slots=True)
class Result:
    """The time for all tables of a journal."""

    events: int
    seconds: float


def main() -> None:
    options = parse_options(__doc__ or "")
    report = Report(options)
    spark = spark_session("benchmark", master="local[2]", conf=SESSION)
    report_to(report, options, spark)
    spark.stop()
    report.finish()


def report_to(report: Report, options: Options, spark: SparkSession) -> None:
    what = f"all tables from {SIZES[-1]:,} events"
    report.heading("Tables: all of them, from a journal in files", repeats=1)
    if options.quick:
        report.not_run(f"{what}, and how the time grows up to them")
        return
    with tempfile.TemporaryDirectory() as folder:
        results = measure(spark, (STRETCH, *SIZES), Path(folder))[1:]
    rows = [
        [f"{each.events:,} events", f"{each.seconds:.1f} s", f"{each.events / each.seconds:,.0f}"] for each in results
    ]
    report.table(["", "time", "events/s"], rows)
    report.console.print(f"  grows with exponent {exponent(results):.2f} from the first to the last; 1 is linear")
    report.goal(what, measured=results[-1].seconds, most=GOAL_S, unit=" s")


def measure(spark: SparkSession, sizes: Sequence[int], folder: Path) -> list[Result]:
    """Build all tables of journals of several sizes, and return the times."""
    stretch = make_stretch(folder / "stretch")
    found = []
    for events in sizes:
        journal, tables = folder / f"journal-{events}", folder / f"tables-{events}"
        repeat(stretch, journal, times=events // STRETCH)
        began = time.perf_counter()
        done = run_pipeline(spark, JournalFolder(journal), tables)
        found.append(Result(done.events, time.perf_counter() - began))
        shutil.rmtree(tables)
        shutil.rmtree(journal)
    return found


def exponent(results: Sequence[Result]) -> float:
    """Return the exponent with which time grows with the events; 1 is linear."""
    least, most = results[0], results[-1]
    return math.log(most.seconds / least.seconds) / math.log(most.events / least.events)


# ------------------------------------------------------------------------------------------------------- the journal


def make_stretch(folder: Path) -> pa.Table:
    """Return the journal of a stretch of traffic; it takes seconds."""
    make_journal(folder, TRAFFIC)
    return ds.dataset(folder).to_table().sort_by("sequence").combine_chunks()


def repeat(
    stretch: pa.Table,
    folder: Path,
    *,
    times: int,
    begin: int = 0,
    length_ms: int = STRETCH_MS,
    own_tenants: bool = False,
) -> None:
    """Write the journal of several stretches as sealed segments.

    Args:
        stretch: the journal of one.
        folder: where to.
        times: how many.
        begin: how many there are already.
        length_ms: the time from one to the next.
        own_tenants: whether each has tenants of its own.
    """
    folder.mkdir(parents=True, exist_ok=True)
    held: list[pa.Table] = []
    for at, part in enumerate(_repeated(stretch, range(begin, begin + times), length_ms)):
        held.append(_with_suffix(part, f"-{begin + at}") if own_tenants else part)
        if sum(map(len, held)) >= _SEGMENT or at == times - 1:
            write_segment(pa.concat_tables(held), folder)
            held = []


def write_segment(rows: pa.Table, folder: Path) -> None:
    """Write a sealed segment of the journal."""
    journal_id, first, last = rows["journal_id"][0], rows["sequence"][0].as_py(), rows["sequence"][-1].as_py()
    pq.write_table(rows, folder / f"journal-{journal_id}-{first:020}-{last:020}.parquet", compression="zstd")


def _repeated(stretch: pa.Table, numbers: range, length_ms: int) -> Iterator[pa.Table]:
    """Yield the events of each stretch, shifted in time and with their own sequence numbers."""
    known = stretch["message_id"]
    messages = pa.array([None if each is None else int(each, 16) for each in known.to_pylist()], pa.int64())
    began_ms = pc.min(stretch["at_ms"]).as_py()
    for at in numbers:
        part, offset = stretch, at * len(stretch)
        moved = dict.fromkeys(_NUMBERED, offset)
        moved |= dict.fromkeys(_INSTANTS, _START_MS + at * length_ms - began_ms)
        for name, by in moved.items():
            part = _with(part, name, pc.add(part[name], by))
        yield _with(part, "message_id", _ids(pc.add(messages, offset)))


def in_less_time(stretch: pa.Table, times: int) -> pa.Table:
    """Return the same events in a fraction of the time."""
    for name in _INSTANTS:
        stretch = _with(stretch, name, pc.divide(stretch[name], times))
    return stretch


def _with_suffix(part: pa.Table, suffix: str) -> pa.Table:
    """Return events whose fairness keys have other names."""
    keys = part["fairness_key"].combine_chunks()
    names = pc.binary_join_element_wise(keys.values, suffix, "")
    renamed = pa.ListArray.from_arrays(keys.offsets, names, mask=pc.is_null(keys))
    return _with(part, "fairness_key", renamed.cast(part.schema.field("fairness_key").type))


def _with(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    at = table.schema.get_field_index(name)
    return table.set_column(at, table.schema.field(at), values)


def _ids(numbers: pa.Array) -> pa.Array:
    """Return the ids of messages: eight bytes in hexadecimal."""
    digits = pc.fill_null(numbers, 0).to_numpy().astype(">u8").tobytes().hex()
    texts = pa.array([digits[at : at + 16] for at in range(0, len(digits), 16)])
    return pc.if_else(pc.is_valid(numbers), texts, None)


if __name__ == "__main__":
    main()
