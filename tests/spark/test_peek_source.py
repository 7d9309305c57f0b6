"""Messages and dead letters as frames, without leasing any."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from fairlane.client import Client, NewMessage
from tests.spark.queues import address, fill
from tests.system.server_process import ServerProcess, serving


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    """A client, with a queue ``orders``."""
    with Client(address(server)) as client:
        client.create_queue("orders")
        yield client


def look(spark: SparkSession, server: ServerProcess, kind: str, **options: Any) -> DataFrame:
    """Return messages as a frame."""
    chosen = {"kind": kind, "server": address(server), "queue": "orders", **options}
    return spark.read.format("fairlane").options(**chosen).load()


def test_what_waits_is_seen_whole_and_stays(spark: SparkSession, server: ServerProcess, client: Client) -> None:
    """All messages come, in several parts, with payload and headers, and are still there for others."""
    sent = fill(client, 4_200)
    client.enqueue("orders", b"late", delay_ms=3_600_000, fairness_key=("acme", "mobile"), throttles=("mail",))
    client.lease("orders", 1, visibility_ms=3_600_000)  # longer than any machine takes to start Spark
    frame = look(spark, server, "peek", partitions=3)
    assert frame.rdd.getNumPartitions() == 3
    rows = {bytes(row.payload).decode(): row for row in frame.collect()}
    assert sorted(rows) == sorted([*sent, "late"])
    assert all(row.headers == {"n": payload} for payload, row in rows.items() if payload != "late")
    late = rows["late"]
    assert (late.status, late.fairness_key, late.throttles) == ("delayed", ["acme", "mobile"], ["mail"])
    assert late.due_ms >= late.enqueued_ms + 3_600_000
    assert sorted({row.status for row in rows.values()}) == ["delayed", "leased", "waiting"]
    assert client.queue("orders").waiting == 4_200


def test_what_goes_in_no_single_answer_is_seen_whole(spark: SparkSession, tmp_path: Path) -> None:
    """Where a server ends its answers after a few messages, each message still comes once."""
    with serving(tmp_path / "data", "--answer-bytes-max", "100") as server, Client(address(server)) as client:
        client.create_queue("orders")
        sent = fill(client, 700)
        assert len(client.peek("orders", 700, with_body=True)) < 20
        rows = look(spark, server, "peek", partitions=2).collect()
        assert sorted(bytes(row.payload).decode() for row in rows) == sent


def test_dead_letters_are_found_by_why_and_whose(spark: SparkSession, server: ServerProcess, client: Client) -> None:
    """Reason, key, id and error narrow what the broker sends; all else Spark filters by itself."""
    client.enqueue_many("orders", [NewMessage(payload=b"x", fairness_key=f"t{number % 3}") for number in range(30)])
    for number, message in enumerate(client.lease("orders", 30)):
        client.nack(message, error=f"boom {number % 2}", intent="dead")
    frame = look(spark, server, "dead_letters")
    first = frame.orderBy("id").first()
    assert first is not None
    assert (first.queue, first.origin, first.reason) == ("orders.dlq", "orders", "requested")
    assert [(error.attempt, error.reason, error.error[:4]) for error in first.errors] == [(1, "failure", "boom")]
    for condition, count in (
        ("reason = 'requested'", 30),
        ("reason = 'deadline'", 0),
        ("fairness_key = array('t1')", 10),
        ("fairness_key = array('t1') and fairness_key = array('t2')", 0),
        (f"id = '{first.id}'", 1),
        (f"id in ('{first.id}', 'none')", 1),
        ("exists(errors, failed -> failed.error = 'boom 1')", 15),
        ("attempts = 1 and reason = 'requested'", 30),
    ):
        assert frame.where(condition).count() == count, condition
        assert look(spark, server, "dead_letters", pushdown="true").where(condition).count() == count, condition
    for options, count in (
        ({"error": "boom 0"}, 15),
        ({"reason": "requested", "fairness_key": "t1"}, 10),
        ({"fairness_key": '["t1"]', "error": "boom 0"}, 5),
        ({"ids": first.id}, 1),
    ):
        assert look(spark, server, "dead_letters", **options).count() == count, options
    assert look(spark, server, "dead_letters", queue="orders.dlq").count() == 30
    assert client.queue("orders").dead == 30


def test_bodies_are_read_only_for_those_who_ask(spark: SparkSession, server: ServerProcess, client: Client) -> None:
    """A schema without body columns gets the others, and nulls for none of them."""
    fill(client, 5)
    reader = spark.read.format("fairlane").schema("status string, size_bytes long, id string")
    rows = reader.options(kind="peek", server=address(server), queue="orders").load().collect()
    assert [(row.status, row.size_bytes) for row in rows] == [("waiting", 6)] * 5


def test_nothing_to_see_is_an_empty_frame(
    spark: SparkSession, server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    """An empty queue has no rows, and a queue that is not there is an error."""
    assert client.queue("orders").waiting == 0
    assert look(spark, server, "peek").collect() == []
    with pytest.raises(PySparkException, match="Queue 'ordres' does not exist"):
        look(spark, server, "peek", queue="ordres").collect()
    with pytest.raises(AnalysisException, match="Option queue is missing"):
        spark.read.format("fairlane").options(kind="peek", server=address(server)).load()
    stream = spark.readStream.format("fairlane").options(kind="peek", server=address(server), queue="orders").load()
    with pytest.raises(PySparkException, match="cannot be streamed"):
        stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start().awaitTermination()
