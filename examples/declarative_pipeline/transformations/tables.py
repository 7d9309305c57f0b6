"""Tables of the pipeline as a declarative pipeline: the same functions, made anew as a whole each time.

Export the journal of a broker to the folder that ``spark-pipeline.yml`` names, then:

    pip install 'pyspark[pipelines]' '.[spark]'
    spark-pipelines run --spec examples/declarative_pipeline/spark-pipeline.yml

Two kinds of tables are not here. The plans of the fairness tables are deeper than Spark Connect, which runs declarative
pipelines, can send. And ``gaps`` needs to know which segments there are. ``fairlane pipeline`` makes all of them.
"""

from __future__ import annotations

from datetime import UTC, date, datetime

import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from fairlane.spark.tables import TABLES, hourly
from fairlane.spark.tables.attempts import attempt_rows, attempts
from fairlane.spark.tables.dead_letters import dead_letters, deaths
from fairlane.spark.tables.events import JOURNAL_SCHEMA, events
from fairlane.spark.tables.messages import messages


def last_day(folder: str) -> date:
    """Return the day of the last event."""
    last_ms = pc.max(ds.dataset(folder).to_table(columns=["at_ms"])["at_ms"]).as_py()
    return datetime.fromtimestamp(last_ms // 1000, UTC).date()


def frames(spark: SparkSession, folder: str) -> dict[str, DataFrame]:
    """Return a frame for each table."""
    told = events(spark.read.schema(JOURNAL_SCHEMA).parquet(folder))
    tried = attempts(told)
    newest_day = last_day(folder)
    return {
        "events": told,
        "attempts": attempt_rows(tried, newest_day=newest_day),
        "messages": messages(tried, newest_day=newest_day),
        "tenant_usage": hourly.tenant_usage(tried, events=told),
        "latency": hourly.latency(tried),
        "throttle_waits": hourly.throttle_waits(tried),
        "sla": hourly.sla(tried),
        "dead_letters": dead_letters(deaths(tried)),
    }


def define(name: str, frame: DataFrame) -> None:
    """Define a table. Its frame is made before: Spark analyses nothing while it calls the function of a view."""
    dp.materialized_view(name=name, comment=TABLES[name].meaning, partition_cols=["day"])(lambda: frame)


session = SparkSession.active()
assert session is not None
for each, made in frames(session, session.conf.get("fairlane.journal") or "").items():
    define(each, made)
