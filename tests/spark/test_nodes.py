"""Spark and a cluster of real nodes: streams go on where their queues go, and every row counts once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fairlane.client import Client, NewMessage
from tests.kit.servers.nodes import Cluster
from tests.kit.servers.stores import PostgresServer
from tests.spark.journals import journal, journal_stream, sequences
from tests.spark.queues import until

ROUND = 50
LEASE = ("--heartbeat-timeout-ms", "1000")


class Copying:
    """Two queries on a cluster: messages of one queue are copied to another, and the journal of the first is kept."""

    def __init__(self, spark: SparkSession, cluster: Cluster, client: Client, folder: Path) -> None:
        self._client = client
        self._sent = 0
        place = {"server": cluster.addresses}
        options = {"kind": "queue", "queue": "orders", "consumer": "etl", "partitions": "1", "rows_max": "60"}
        orders = spark.readStream.format("fairlane").options(**place, **options).load().select("payload")
        copies = orders.writeStream.format("fairlane").options(**place, queue="copies")
        kept = journal_stream(spark, **place, queue="orders", reader="audit", partitions=1).writeStream
        kept = kept.format("parquet").option("path", str(folder / "kept"))
        self.queries = [
            writer.option("checkpointLocation", str(folder / name)).start()
            for name, writer in (("cp-copies", copies), ("cp-kept", kept))
        ]

    def begin(self) -> None:
        """Enqueue some more messages."""
        numbers = range(self._sent, self._sent + ROUND)
        answers = self._client.enqueue_many("orders", [NewMessage(payload=b"%d" % number) for number in numbers])
        assert all(isinstance(answer, str) for answer in answers)
        self._sent += ROUND

    def end(self) -> None:
        """Wait until all messages have arrived, and what has happened up to now is kept."""
        until(lambda: self._goes_on() and self._client.queue("copies").waiting >= self._sent)
        events = self._client.read_journal(0, count=100_000, queue="orders").events
        end = max(event["sequence"] for event in events if event["kind"] != "reader_set")  # which is no news to it
        until(lambda: self._goes_on() and self._kept() >= end)

    def copied(self) -> Counter[int]:
        """Return what has arrived, and how often."""
        return Counter(int(view.payload or b"") for view in self._client.peek("copies", 10_000, with_body=True))

    def sent(self) -> Counter[int]:
        """Return what should have arrived."""
        return Counter(range(self._sent))

    def _goes_on(self) -> bool:
        for query in self.queries:
            if (error := query.exception()) is not None:
                raise error
        return True

    def _kept(self) -> int:
        readers = self._client.readers(queue="orders")
        return next((reader.position for reader in readers if reader.name == "audit"), -1)


@pytest.fixture
def cluster(postgres: PostgresServer, tmp_path: Path) -> Cluster:
    """Two nodes that are soon taken for dead."""
    return Cluster.of(2, f"{postgres.url}&namespace={tmp_path.name}", tmp_path, flags=LEASE)


@pytest.mark.long
def test_streams_go_on_when_queues_move_and_their_owner_dies(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    """A queue is copied to another and its journal kept, each row once, while both move and a node is killed."""
    with cluster, Client(cluster.addresses) as client:
        for queue in ("orders", "copies"):
            client.create_queue(queue)
        copying = Copying(spark, cluster, client, tmp_path)
        try:
            copying.begin()
            copying.end()
            copying.begin()
            for queue in ("orders", "copies"):
                to = next(node for node in cluster.nodes if node is not cluster.owner(queue))
                client.move_queue(queue, to.name)
                cluster.wait_for(queue, to)
            copying.end()
            copying.begin()
            cluster.owner("orders").kill()
            copying.end()
            assert copying.copied() == copying.sent()
        finally:
            for query in copying.queries:
                query.stop()
        kept = sequences(spark.read.parquet(str(tmp_path / "kept")))
        events = client.read_journal(0, count=10_000, queue="orders").events
        assert kept == [event["sequence"] for event in events if event["sequence"] <= kept[-1]]
        live = journal(spark, server=cluster.addresses, queue="orders", until=kept[-1], kinds="opened")
        assert len(sequences(live)) >= 3
