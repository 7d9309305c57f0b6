"""Frames into queues: every row once, and nothing of a frame that can't be messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from fairlane.client import Client
from fairlane.model.message import MessageView
from tests.kit.waiting import PATIENCE_S
from tests.spark.queues import address, until
from tests.system.server_process import ServerProcess


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    """A client, with a queue ``orders``."""
    with Client(address(server)) as client:
        client.create_queue("orders")
        yield client


def write(frame: DataFrame, server: ServerProcess, **options: Any) -> None:
    """Write a frame to the queue."""
    frame.write.format("fairlane").options(server=address(server), queue="orders", **options).mode("append").save()


def seen(client: Client) -> list[MessageView]:
    """Return what is in the queue."""
    return client.peek("orders", 10_000, with_body=True)


def payloads(client: Client) -> Counter[str]:
    """Return the payloads in the queue, and how often each is there."""
    return Counter((view.payload or b"").decode() for view in seen(client))


def numbers(spark: SparkSession, count: int, *, parts: int = 4) -> DataFrame:
    """Return numbers as payloads."""
    return spark.range(0, count, 1, parts).selectExpr("cast(id as string) as payload")


def test_every_column_becomes_a_field(spark: SparkSession, server: ServerProcess, client: Client) -> None:
    """Rows become messages with all that a producer can say, and a null says nothing."""
    frame = spark.sql(
        """
        select cast('one' as binary) as payload, array('acme', 'mobile') as fairness_key, map('a', 'b') as headers,
               3 as weight, cast(7 as smallint) as cost, 'high' as priority, array('mail', 'sms') as throttles,
               3600000 as delay_ms, 7200000L as deadline_ms, 'c-1' as correlation_id
        union all
        select cast('two' as binary), null, null, null, null, null, null, null, null, null
        """
    )
    write(frame, server)
    one, two = sorted(seen(client), key=lambda view: view.payload or b"")
    assert (one.payload, one.fairness_key, one.headers) == (b"one", ("acme", "mobile"), {"a": "b"})
    assert (one.weight, one.cost, one.priority, one.throttles) == (3, 7, "high", ("mail", "sms"))
    assert (one.status, one.correlation_id) == ("delayed", "c-1")
    assert one.due_ms == one.enqueued_ms + 3_600_000
    assert one.deadline_ms == one.enqueued_ms + 7_200_000
    assert (two.payload, two.status, two.priority, two.cost) == (b"two", "waiting", "normal", 1)
    assert client.sinks("orders") == []


def test_a_batch_is_written_once_by_its_name(spark: SparkSession, server: ServerProcess, client: Client) -> None:
    """A job that is run again under the same sink and batch changes nothing; another batch is written."""
    write(numbers(spark, 2_000), server, sink="load", batch=1)
    write(numbers(spark, 2_000), server, sink="load", batch=1)
    assert payloads(client) == {str(number): 1 for number in range(2_000)}
    write(numbers(spark, 10, parts=1), server, sink="load", batch=2)
    assert sum(payloads(client).values()) == 2_010
    write(numbers(spark, 5), server)
    write(numbers(spark, 5), server)
    assert sum(payloads(client).values()) == 2_020


def test_tasks_that_fail_or_run_twice_write_nothing_twice(
    spark: SparkSession, server: ServerProcess, client: Client
) -> None:
    """A first attempt that stages and then dies leaves nothing behind in the queue."""

    def dies_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        task = TaskContext.get()
        if task is not None and task.attemptNumber() == 0:
            raise RuntimeError("the first attempt dies late")

    frame = numbers(spark, 9_000, parts=3).mapInArrow(dies_once, "payload string")
    write(frame, server)
    assert payloads(client) == {str(number): 1 for number in range(9_000)}


def test_a_job_that_fails_writes_nothing(spark: SparkSession, server: ServerProcess, client: Client) -> None:
    """When one task can't be done, none of the frame is in the queue."""
    bad = spark.sql("select if(id = 999, null, cast(id as string)) as payload from range(0, 1000, 1, 4)")
    with pytest.raises(PySparkException, match="A payload is null"):
        write(bad, server)
    assert seen(client) == []


def test_a_stream_writes_every_row_once(
    spark: SparkSession, server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    """A batch that Spark repeats, since its note was lost, is known to the broker; a new checkpoint is a new query."""
    folder = tmp_path / "in"
    for first in (0, 100):
        numbers(spark, 100).selectExpr(f"cast(payload + {first} as string) as payload").write.mode("append").json(
            str(folder)
        )
    stream = spark.readStream.schema("payload string").option("maxFilesPerTrigger", 4).json(str(folder))

    def run(checkpoint: Path) -> list[int]:
        writer = stream.writeStream.format("fairlane").options(server=address(server), queue="orders")
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()
        return [progress.batchId for progress in query.recentProgress if progress.numInputRows]

    assert len(run(tmp_path / "cp")) >= 2
    assert payloads(client) == {str(number): 1 for number in range(200)}
    for note in (tmp_path / "cp" / "commits").iterdir():
        if note.name.strip(".").split(".")[0] != "0":
            note.unlink()
    assert run(tmp_path / "cp") != []
    assert payloads(client) == {str(number): 1 for number in range(200)}
    run(tmp_path / "cp2")
    assert payloads(client) == {str(number): 2 for number in range(200)}


def test_a_full_queue_slows_the_task(spark: SparkSession, server: ServerProcess, client: Client) -> None:
    """While the queue is full the sink waits for consumers; with no patience it says that the queue is full."""
    client.update_queue("orders", {"waiting_max": 50})
    write(numbers(spark, 50, parts=1), server)
    with pytest.raises(PySparkException, match="and waiting_max is"):
        write(numbers(spark, 10, parts=1), server, patience_s=0.2)
    assert len(seen(client)) == 50

    def refusals() -> int:
        lines = httpx.get(f"{address(server)}/metrics").text.splitlines()
        return sum(int(line.split()[-1]) for line in lines if 'code="queue_full"' in line)

    before = refusals()

    def make_room() -> None:
        until(lambda: refusals() > before)
        client.ack_many("orders", client.lease("orders", 50))

    with ThreadPoolExecutor(1) as consumer:  # Spark finds the format only in the thread that made the session
        consuming = consumer.submit(make_room)
        write(numbers(spark, 20, parts=1), server)
        consuming.result(PATIENCE_S)
    assert len(seen(client)) == 20


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ("'x' as payload, 1 as prioritty", "column 'prioritty'.*Did you mean priority"),
        ("'x' as payload, 'x' as something", "column 'something'.*Known columns: payload"),
        ("1 as payload", "payload must be binary or string, not int"),
        ("'x' as body", "column 'body'"),
        ("'k' as fairness_key", "Column payload is missing"),
        ("'x' as payload, array(1) as fairness_key", "fairness_key must be string or array<string>, not array<int>"),
        ("'x' as payload, 1 as delay_ms, 2 as due_ms", "exclude each other"),
        ("'x' as payload, 'd' as dedup_id", "column 'dedup_id'"),
    ],
)
def test_frames_that_are_no_messages_are_refused(
    spark: SparkSession, server: ServerProcess, columns: str, told: str
) -> None:
    """A column that is unknown, missing or of a wrong type is refused before any task runs, with what to do."""
    with pytest.raises(AnalysisException, match=told):
        write(spark.sql(f"select {columns}"), server)


def test_what_a_sink_can_not_do_is_refused(spark: SparkSession, server: ServerProcess, tmp_path: Path) -> None:
    """Overwriting, an unknown queue, and options that make no sense have errors of their own."""
    frame = numbers(spark, 10)
    writer = frame.write.format("fairlane").options(server=address(server), queue="orders")
    with pytest.raises(AnalysisException, match="mode append"):
        writer.mode("overwrite").save()
    with pytest.raises(PySparkException, match="Queue 'none' does not exist"):
        frame.write.format("fairlane").options(server=address(server), queue="none").mode("append").save()
    with pytest.raises(AnalysisException, match="needs the option sink"):
        write(frame, server, batch=3)
    stream = spark.readStream.format("rate").load().selectExpr("cast(value as string) as payload")
    query = stream.writeStream.format("fairlane").options(server=address(server), queue="orders", batch=1)
    with pytest.raises((AnalysisException, StreamingQueryException), match="not allowed for streams"):
        query.option("checkpointLocation", str(tmp_path / "cp")).start().awaitTermination()
