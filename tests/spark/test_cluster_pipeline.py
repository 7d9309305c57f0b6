"""The tables of a whole cluster, made by one pipeline from live nodes."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fairlane.spark.pipeline import RunReport, Verification, live_source, read_table, run_pipeline, verify
from tests.spark.table_rows import told
from tests.spark.test_cluster_journals import place
from tests.unit.cluster.in_process import Cluster, cluster_of
from tests.unit.cluster.test_serving import made
from tests.unit.server.local_server import run
from tests.unit.server.test_partitions import TENANTS, everybody_knows, message, split


async def enqueue(cluster: Cluster, queue: str) -> None:
    """Enqueue a message of each tenant."""
    messages = [message(key) for key in TENANTS]
    await cluster["a"].done("queue/enqueue", {"queue": queue, "messages": messages})


@pytest.mark.long
def test_the_tables_of_a_cluster_are_made_from_all_its_journals(spark: SparkSession, tmp_path: Path) -> None:
    """Two partitions and another group are one set of tables, which a second run continues and the cluster confirms."""

    def update(cluster: Cluster) -> RunReport:
        return run_pipeline(spark, live_source(place(cluster)), tmp_path / "tables")

    def compare(cluster: Cluster) -> Verification:
        with place(cluster).client() as client:
            return verify(spark, client, tmp_path / "tables")

    async def main() -> tuple[RunReport, RunReport, Verification]:
        async with cluster_of("ab") as cluster:
            await split(cluster, "orders", 2)
            await everybody_knows(cluster, "orders", 2)
            await made(cluster, "mails")
            await enqueue(cluster, "orders")
            await enqueue(cluster, "mails")
            first = await asyncio.to_thread(partial(update, cluster))
            await enqueue(cluster, "orders")
            second = await asyncio.to_thread(partial(update, cluster))
            await enqueue(cluster, "orders")
            return first, second, await asyncio.to_thread(partial(compare, cluster))

    first, second, found = run(main())
    assert (found.mismatches, found.gaps, found.totals_since_ms) == ([], (), 0)
    assert (set(found.positions), found.queues) == ({each.journal_id for each in second.journals}, 6)
    assert found.followed > 0
    assert found.keys == 2 * len(TENANTS)
    assert (len(first.journals), first.gaps, len(second.journals), second.gaps) == (3, (), 3, ())
    usage = read_table(spark, tmp_path / "tables", "tenant_usage").groupBy("queue", "top_key").sum("enqueued")
    assert told(usage, "queue", "top_key", "sum(enqueued)") == sorted(
        [("mails", key, 1) for key in TENANTS] + [("orders", key, 2) for key in TENANTS]
    )
    groups = read_table(spark, tmp_path / "tables", "messages").groupBy("queue", "group").count()
    assert told(groups, "queue", "group") == [("mails", "mails"), ("orders", "orders"), ("orders", "orders~1")]
