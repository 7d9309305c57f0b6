"""Journals to read, and the ways to read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from fairlane.assembly import BrokerConfig, NewMessage, Settings, export_journal, open_broker
from fairlane.broker.handlers.internal import ListSegments, ReadSlice

SEGMENT = 500


def make_journal(data: Path, *, messages: int, exports: Path | None = None) -> int:
    """Enqueue, lease and ack messages of two queues in a server's store, and return the journal's last sequence."""
    config = BrokerConfig(path=data / "store", durability="os", settings=Settings(segment_events=SEGMENT))
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
        return broker.call(ReadSlice(after=0, count=1_000_000)).position


def make_trimmed_journal(data: Path) -> None:
    """Fill a journal until the broker lets go of its beginning."""
    settings = Settings(segment_events=100_000, journal_retention_ms=1, journal_bytes_max=1)
    with open_broker(BrokerConfig(path=data / "store", durability="os", settings=settings)) as broker:
        broker.create_queue("bulk")
        while broker.call(ListSegments())[:1] == [] or broker.call(ListSegments())[0].first <= 1:
            broker.enqueue_many("bulk", [NewMessage()] * 10_000)
            broker.purge("bulk")


def journal(spark: SparkSession, **options: Any) -> DataFrame:
    """Return a journal as a frame."""
    return spark.read.format("fairlane").options(kind="journal", **options).load()


def journal_stream(spark: SparkSession, **options: Any) -> DataFrame:
    """Return a journal as a stream."""
    return spark.readStream.format("fairlane").options(kind="journal", **options).load()


def sequences(frame: DataFrame) -> list[int]:
    """Return the sequences of a frame, in order."""
    return sorted(row.sequence for row in frame.select("sequence").collect())
