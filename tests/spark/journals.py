"""Journals to read, and the ways to read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from fairlead.assembly import BrokerConfig, NewMessage, Settings, export_journal, open_broker

SEGMENT = 500


def make_journal(data: Path, *, messages: int, exports: Path | None = None, **settings: int) -> int:
    """Enqueue, lease and ack messages of two queues in a server's store, and return the journal's last sequence."""
    config = BrokerConfig(path=data / "store", durability="os", settings=Settings(segment_events=SEGMENT, **settings))
    with open_broker(config) as broker:
        for queue in ("orders", "mails"):
            broker.create_queue(queue)
            for first in range(0, messages // 2, 100):
                news = [
                    NewMessage(payload=b"x", fairness_key=("acme", str(number % 7)), throttles=("mail",))
                    for number in range(first, min(first + 100, messages // 2))
                ]
                broker.enqueue_many(queue, news)
            while leased := broker.lease(queue, 100):
                broker.ack_many(queue, leased)
        if exports is not None:
            export_journal(broker, exports)
        return broker.read_journal(0, count=1_000_000).position


def journal(spark: SparkSession, **options: Any) -> DataFrame:
    """Return a journal as a frame."""
    return _with(spark.read.format("fairlead"), options).load()


def journal_stream(spark: SparkSession, **options: Any) -> DataFrame:
    """Return a journal as a stream."""
    return _with(spark.readStream.format("fairlead"), options).load()


def _with(reader: Any, options: dict[str, Any]) -> Any:
    return reader.options(kind="journal", **options)


def sequences(frame: DataFrame) -> list[int]:
    """Return the sequences of a frame, in order."""
    return sorted(row.sequence for row in frame.select("sequence").collect())
