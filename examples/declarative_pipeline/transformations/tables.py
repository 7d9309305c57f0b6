"""The pipeline's tables as a declarative pipeline: the same functions, made anew as a whole each time.

Export the journal of a broker to the folder that ``spark-pipeline.yml`` names, then:

    pip install 'pyspark[pipelines]' '.[spark]'
    spark-pipelines run --spec examples/declarative_pipeline/spark-pipeline.yml
"""

from __future__ import annotations

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

import fairlane.spark.tables.attempts as attempting
import fairlane.spark.tables.dead_letters as dying
import fairlane.spark.tables.events as happening
from fairlane.spark.tables import hourly


def _session() -> SparkSession:
    session = SparkSession.active()
    assert session is not None
    return session


@dp.materialized_view
def events() -> DataFrame:
    """Return the journal as it is."""
    spark = _session()
    journal = spark.read.schema(happening.JOURNAL_SCHEMA).parquet(spark.conf.get("fairlane.journal") or "")
    return happening.events(journal)


@dp.temporary_view
def attempts() -> DataFrame:
    """Return each time a message waited."""
    return attempting.attempts(_session().table("events"))


@dp.materialized_view
def tenant_usage() -> DataFrame:
    """Return what each tenant used."""
    return hourly.tenant_usage(_session().table("attempts"))


@dp.materialized_view
def latency() -> DataFrame:
    """Return how long messages waited."""
    return hourly.latency(_session().table("attempts"))


@dp.materialized_view
def dead_letters() -> DataFrame:
    """Return why messages died."""
    return dying.dead_letters(_session().table("attempts"))
