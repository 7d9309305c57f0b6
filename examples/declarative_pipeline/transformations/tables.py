"""All tables of the pipeline as a declarative pipeline: the same functions, made anew as a whole each time.

Export the journal of a broker to the folder that ``spark-pipeline.yml`` names, then:

    pip install 'pyspark[pipelines]' '.[spark]'
    spark-pipelines run --spec examples/declarative_pipeline/spark-pipeline.yml

Declarative pipelines run with Spark Connect, whose protocol cannot carry plans as deep as those of the fairness tables.
So what several tables are made of is cut off with a checkpoint. Spark computes it while it reads this file.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from fairlane.spark.pipeline import JournalFolder
from fairlane.spark.pipeline.gaps import gaps, marked
from fairlane.spark.pipeline.intake import footer_of
from fairlane.spark.pipeline.journals import Covered, JournalCoverage, accepted
from fairlane.spark.tables import TABLES, hourly
from fairlane.spark.tables.attempts import attempt_rows, attempts
from fairlane.spark.tables.dead_letters import dead_letters, deaths
from fairlane.spark.tables.fairness import entries, fairness, fairness_keys
from fairlane.spark.tables.messages import messages
from fairlane.spark.tables.news import ALL_NEW
from fairlane.spark.tables.noisy_neighbours import noisy_neighbours
from fairlane.spark.tables.partials import of_kind, waits_over
from fairlane.spark.tables.runs import runs
from fairlane.spark.tables.settings import settings_of
from fairlane.spark.tables.starvation import ends, merged_ends, starvation
from fairlane.spark.tables.table import shaped
from fairlane.spark.tables.turns import Days, pieces

Tables = Iterator[tuple[str, DataFrame]]


def read(spark: SparkSession, folder: str) -> tuple[DataFrame, list[JournalCoverage]]:
    """Return the events of all segments, each once, and what they cover of which journals."""
    source = JournalFolder(Path(folder))
    journals = accepted((), source.journals(), new_epoch=True)
    segments = source.new(journals)
    covered: dict[str, list[Covered]] = {journal.journal_id: [] for journal in journals}
    for segment in segments:
        footer = footer_of(segment.path) if segment.path is not None else None
        if footer is not None and footer.rows:
            stretches = [Covered(*stretch, footer.first_ms, footer.last_ms) for stretch in segment.wanted]
            covered[segment.journal_id] += stretches
    return source.read(spark, segments), [journal.plus(covered[journal.journal_id]) for journal in journals]


def plain_tables(told: DataFrame, tried: DataFrame, journals: list[JournalCoverage], horizon_ms: int) -> Tables:
    """Yield the tables that are sums over attempts."""
    newest_day = datetime.fromtimestamp(horizon_ms // 1000, UTC).date()
    yield "events", shaped(told, TABLES["events"])
    yield "attempts", attempt_rows(tried, newest_day=newest_day)
    yield "messages", messages(tried, newest_day=newest_day, groups={each.journal_id: each.group for each in journals})
    yield "tenant_usage", hourly.tenant_usage(tried, events=told)
    yield "latency", hourly.latency(tried)
    yield "throttle_waits", hourly.throttle_waits(tried)
    yield "sla", hourly.sla(tried)
    yield "dead_letters", dead_letters(deaths(tried))


def fairness_tables(told: DataFrame, settings: DataFrame, tried: DataFrame, span: Days) -> Tables:
    """Yield the tables of waits for turns."""
    waits = pieces(tried, settings, span).localCheckpoint()
    over = waits_over(waits, told, ALL_NEW, None).localCheckpoint()
    worked = runs(of_kind(over, "work").drop("day"), waits, settings, span).localCheckpoint()
    entered = entries(worked).localCheckpoint()
    ended = merged_ends(of_kind(over, "ends").unionByName(ends(waits.where("NOT is_final"))))
    starving = starvation(ended, of_kind(over, "leases"), span).localCheckpoint()
    yield "starvation", starving
    yield "fairness_keys", fairness_keys(worked, entered, starving)
    yield "fairness", fairness(worked, entered, starving, span)
    yield "noisy_neighbours", noisy_neighbours(worked)


def all_tables(spark: SparkSession, folder: str) -> Tables:
    """Yield a frame for each table."""
    told, journals = read(spark, folder)
    missing = [gap for journal in journals for gap in journal.gaps()]
    first_ms = min(each.first_ms for journal in journals for each in journal.covered if each.first_ms is not None)
    horizon_ms = max(journal.last_ms or 0 for journal in journals)
    ended = {journal.journal_id: journal.last_ms or 0 for journal in journals if journal.is_ended}
    settings = settings_of(told).localCheckpoint()
    tried = attempts(told, settings=settings, ended=ended).localCheckpoint()
    span = Days(datetime.fromtimestamp(first_ms // 1000, UTC).date(), horizon_ms)
    yield "gaps", gaps(spark, missing)
    for name, frame in (
        *plain_tables(told, tried, journals, horizon_ms),
        *fairness_tables(told, settings, tried, span),
    ):
        of_days = frame.where("day IS NOT NULL")  # what has not happened yet has no day
        yield name, marked(of_days, TABLES[name], missing)


def define(name: str, frame: DataFrame) -> None:
    """Define a table. Its frame is made before: Spark analyses nothing while it calls the function of a view."""
    dp.materialized_view(name=name, comment=TABLES[name].meaning, partition_cols=["day"])(lambda: frame)


session = SparkSession.active()
assert session is not None
made = dict(all_tables(session, session.conf.get("fairlane.journal") or ""))
for each, frame in made.items():
    define(each, frame)
