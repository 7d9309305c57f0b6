"""Frames into a queue, each row once: tasks stage their messages, and the driver publishes them all in one commit.

A task stages under a name that no other attempt has, so one that is repeated or run twice leaves parts that no driver
publishes. The driver publishes the parts of the attempts that Spark counts, once per batch of a sink: when it dies
after that and before Spark has noted it, the batch is written again, and the broker knows it by its number.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from fairlane.client import Client, NewMessage
from fairlane.errors import FairlaneError, GlobalFull, InvalidArgument, KeyFull, QueueFull, WaitTimedOut
from fairlane.spark.executors import Versions, check_versions, versions
from fairlane.spark.source.options import SinkOptions
from fairlane.spark.source.rows import messages_of

_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"
_CHUNK: Final = 2_000
_CHUNK_BYTES: Final = 4 << 20
_PAUSE_S: Final = 0.1
_WAIT_MS: Final = 1_000


@dataclass(frozen=True)
class StagedPart(WriterCommitMessage):
    """What one task has staged, and the node."""

    sink: str
    batch: int
    part: str
    partition: int
    count: int
    at: str


class BatchWriter(DataSourceArrowWriter):
    """Writes a frame to a queue: all of its rows, or on failure none."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._name = options.sink or f"spark-{secrets.token_hex(8)}"
        self._driver = versions()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a task."""
        return _staged(iterator, self._options, self._driver, sink=self._name, batch=self._options.batch)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what the tasks have staged. A batch that was published before stays as it is."""
        _publish(messages, self._options, is_last=self._options.sink is None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Keep what was staged: some of it may be published. The broker drops the rest later."""


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes a stream to a queue: every batch once, whatever fails."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._driver = versions()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a task. The sink is the query's own: a new checkpoint restarts the batch numbers."""
        task = _task()
        query, batch = task.getLocalProperty(_QUERY), task.getLocalProperty(_BATCH)
        if query is None or batch is None:
            raise InvalidArgument(
                "This Spark does not tell tasks which query and batch they belong to. Use PySpark 4.2 or 4.3."
            )
        sink = f"{self._options.sink or 'spark'}-{query}"
        return _staged(iterator, self._options, self._driver, sink=sink, batch=int(batch), is_first=batch == "0")

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Publish a batch, once. Without rows there is nothing to publish."""
        if any(isinstance(part, StagedPart) and part.batch != batchId for part in messages):
            raise InvalidArgument(f"Batch {batchId} was staged under another number.")
        _publish(messages, self._options, is_last=False)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Keep what was staged: Spark calls this even after a commit that published it."""


# --------------------------------------------------------------------------------------------------------------- tasks


def _task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise InvalidArgument("Messages can only be staged inside a Spark task.")
    return task


def _staged(
    batches: Iterator[pa.RecordBatch],
    options: SinkOptions,
    driver: Versions,
    *,
    sink: str,
    batch: int,
    is_first: bool = False,
) -> StagedPart:
    check_versions(driver)
    task = _task()
    part = f"{task.partitionId()}-{task.taskAttemptId()}-{secrets.token_hex(8)}"
    staged = 0
    with options.place.client() if is_first else options.place.working() as client:
        staging = _Staging(client, options, sink=sink, batch=batch, part=part)
        for messages in _chunks(message for rows in batches for message in messages_of(rows)):
            staging.send(messages, at=staged)
            staged += len(messages)
        at = client.address_of(options.queue)
    return StagedPart(sink, batch, part, task.partitionId(), staged, at)


def _chunks(messages: Iterator[NewMessage]) -> Iterator[list[NewMessage]]:
    """Yield messages in requests of limited number and size."""
    while chunk := list(islice(messages, _CHUNK)):
        start = size = 0
        for at, message in enumerate(chunk):
            size += len(message.payload)
            if size > _CHUNK_BYTES and at > start:
                yield chunk[start:at]
                start, size = at, len(message.payload)
        yield chunk[start:]


@dataclass(frozen=True, slots=True)
class _Staging:
    """Sends the messages of one task, at the pace of the broker."""

    client: Client
    options: SinkOptions
    sink: str
    batch: int
    part: str

    def send(self, messages: Sequence[NewMessage], *, at: int) -> None:
        """Stage messages, and wait while the queue is full.

        Raises:
            QueueFull, KeyFull, GlobalFull, WaitTimedOut: there was none within the sink's patience.
            FairlaneError: a message, or all, can't be accepted.
        """
        left_s = self.options.patience_s
        while True:
            try:
                self.client.stage(
                    self.options.queue,
                    self.sink,
                    batch=self.batch,
                    part=self.part,
                    at=at,
                    messages=messages,
                    wait_ms=_WAIT_MS,
                )
            except (QueueFull, KeyFull, GlobalFull, WaitTimedOut) as error:
                pause_s = max(_PAUSE_S, (error.retry_after_ms or 0) / 1000)
                left_s -= pause_s + (_WAIT_MS / 1000 if isinstance(error, WaitTimedOut) else 0)
                if left_s <= 0:
                    raise
                threading.Event().wait(pause_s)
            else:
                return


# -------------------------------------------------------------------------------------------------------------- driver


def _publish(messages: list[WriterCommitMessage | None], options: SinkOptions, *, is_last: bool) -> None:
    """Publish the parts of a batch in the order of their partitions."""
    parts = sorted((part for part in messages if isinstance(part, StagedPart)), key=lambda part: part.partition)
    if not parts:
        return
    sink, batch = parts[0].sink, parts[0].batch
    named = [part.part for part in parts if part.count]
    with options.place.near(parts[0].at).working() as client:
        client.publish(options.queue, sink, batch=batch, parts=named)
        if is_last:
            with suppress(FairlaneError):  # without the right to remove sinks, an empty one stays behind
                client.drop_sink(options.queue, sink)
