"""Queues to consume, and the ways to consume them with Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from fairlane.client import Client, NewMessage
from tests.kit.waiting import wait_until
from tests.system.server_process import ServerProcess


def address(server: ServerProcess) -> str:
    """Return where a server is."""
    return f"{server.scheme}://{server.address}"


def fill(client: Client, count: int, *, queue: str = "orders", keys: int = 5) -> list[str]:
    """Enqueue messages whose payloads are their numbers, and return these."""
    payloads = [f"{number:06}" for number in range(count)]
    for first in range(0, count, 1_000):
        news = [
            NewMessage(payload=payload.encode(), fairness_key=f"t{int(payload) % keys}", headers={"n": payload})
            for payload in payloads[first : first + 1_000]
        ]
        assert all(isinstance(answer, str) for answer in client.enqueue_many(queue, news))
    return payloads


def queue_stream(spark: SparkSession, server: ServerProcess, **options: Any) -> DataFrame:
    """Return a queue as a stream."""
    chosen = {"kind": "queue", "server": address(server), "queue": "orders", "consumer": "etl", **options}
    return spark.readStream.format("fairlane").options(**chosen).load()


def each_batch(
    stream: DataFrame, take: Callable[[DataFrame, int], None], checkpoint: Path, *, now: bool = True
) -> StreamingQuery:
    """Start a query that hands each batch to a function: all that is there, or on and on."""
    writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    return (writer.trigger(availableNow=True) if now else writer.trigger(processingTime="0 seconds")).start()


def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    wait_until(holds, what="the condition")
