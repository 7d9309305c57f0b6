"""One meaning of *attempt*: what Spark makes of a journal for the tables, and what-if in NumPy, are the same."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from fairlane.adapters.parquet_export import export_segment
from fairlane.journal.identity import JournalIdentity
from fairlane.journal.records import SegmentImage
from fairlane.spark import spark_session
from fairlane.spark.pipeline import JournalFolder, run_pipeline
from fairlane.spark.tables.attempts import attempts, in_queues
from fairlane.spark.tables.events import JOURNAL_SCHEMA, events
from fairlane.spark.whatif.attempts import ACKED, DEAD, EXPIRED, EXPIRED_DEAD, RETURNED, Leases
from fairlane.spark.whatif.files import journal_files, read_events, survey
from fairlane.spark.whatif.recording import is_of_message
from fairlane.spark.whatif.rows import MessageRows, Parts
from tests.kit.simulation.simulation import Simulation
from tests.spark.table_rows import enqueued
from tests.spark.test_pipeline import FOR_MANY_EVENTS, write_segment

JOURNAL = JournalIdentity(journal_id="00000000000000aa")
KINDS = {ACKED: "acked", RETURNED: "returned", EXPIRED: "returned", DEAD: "dead", EXPIRED_DEAD: "dead"}

Attempt = tuple[int, int, int, str]
"""The number of the message, when it was leased, for how long, and how that ended."""


def journal_of(seed: int, folder: Path) -> list[Path]:
    """Simulate a broker, with crashes and everything that operators do, and export its journal."""
    simulation = Simulation(seed, steps=150)
    simulation.run()
    books = simulation.auditor.books
    assert books.trimmed == 1, "few attempts are left of a journal that was trimmed: choose another seed"
    segment = SegmentImage(books.trimmed, books.next_sequence, 0, 0, 0)
    export_segment(segment, simulation.disk.pages(books.trimmed - 1), folder, journal=JOURNAL)
    return journal_files(folder)


def in_spark(spark: SparkSession, files: list[Path]) -> set[Attempt]:
    """Return the attempts that the tables are made of."""
    journal = events(spark.read.schema(JOURNAL_SCHEMA).parquet(*map(str, files)))
    ended = in_queues(attempts(journal)).where(
        "leased_ms IS NOT NULL AND begun_ms IS NOT NULL AND ended_by IN ('acked', 'returned', 'dead')"
    )
    return {tuple(row) for row in ended.select("message", "leased_ms", "service_ms", "ended_by").collect()}


def in_numpy(files: list[Path]) -> set[Attempt]:
    """Return the attempts that what-if replays."""
    queues = tuple(survey(files))
    table = read_events(files, queues=queues)
    rows = MessageRows(table.filter(is_of_message(table)), queues, 0)
    parts = Parts(rows)
    leases = Leases(rows, parts)
    return {
        (
            int(rows.number[row]),
            int(rows.at_ms[row]),
            int(rows.at_ms[after] - rows.at_ms[row]),
            KINDS[int(end)],
        )
        for row, after, end, is_closed in zip(leases.row, leases.after, leases.end, leases.is_closed, strict=True)
        if is_closed
    }


def test_the_attempts_in_a_file_are_in_order(spark: SparkSession, tmp_path: Path) -> None:
    """In each file of a run with several tasks, attempts are sorted by queue and by the event that began them."""
    assert spark is not None  # the session below shares its JVM
    rows = [enqueued(number, number, queue=f"queue-{number % 3}") for number in range(1, 91)]
    write_segment(tmp_path / "journal", rows)
    conf = {**FOR_MANY_EVENTS, "spark.sql.adaptive.coalescePartitions.enabled": "false"}
    run_pipeline(spark_session(conf=conf), JournalFolder(tmp_path / "journal"), tmp_path / "tables", few_events=0)
    files = [
        pq.ParquetFile(file).read(["queue", "number"]) for file in (tmp_path / "tables/attempts").rglob("*.parquet")
    ]
    found = [list(zip(*(column.to_pylist() for column in file.columns), strict=True)) for file in files]
    assert sum(map(len, found)) == 90
    assert found == [sorted(file) for file in found]


@pytest.mark.parametrize("seed", [3, 8])
def test_spark_and_what_if_find_the_same_attempts(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """Every attempt of a random journal that ended has the same lease, length and end in both."""
    files = journal_of(seed, tmp_path)
    found = in_numpy(files)
    assert len(found) > 20
    assert in_spark(spark, files) == found
