"""A queue as a stream of Spark: every batch is a claim, which the broker keeps until the batch is done.

Spark may read a batch again, after a task, an executor or the driver has died, and must find the same rows. So what a
batch has is leased under a numbered *claim* of a registered consumer, and can be read any number of times. An offset is
the number of a claim. Whenever Spark asks for the next batch, the one before is in its log of finished batches, and its
messages are acknowledged in the commit that makes the next claim. Each query registers its consumer again, which fences
the query that ran under that name before.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from fairlane.client import Client
from fairlane.errors import ClaimNotFound, FairlaneError, InvalidArgument, PayloadTooLarge
from fairlane.model.claims import Claim
from fairlane.model.message import Delivery
from fairlane.spark.executors import Versions, check_versions, versions
from fairlane.spark.source.message_columns import deliveries_batch
from fairlane.spark.source.options import QueueOptions
from fairlane.spark.source.ranges import split

CLAIM: Final = "claim"
_IDLE_S: Final = 0.1
_FIRST_PAGE: Final = 200
"""The number of messages to read first, before their sizes are known."""
_PAGE_BYTES: Final = 4 << 20
_PAGE_MAX: Final = 5_000
_BEATS: Final = 3
PAYLOAD_BYTES_MAX: Final = 1 << 30
"""The largest payload in a row: Spark holds a row in memory several times, and no value above 2 GiB."""
"""How many times within ``idle_ms`` the driver of a long batch contacts the broker."""


@dataclass(frozen=True)
class ClaimPartition(InputPartition):
    """A part of a claim, how many messages to read first, the address, and the versions the task must run."""

    claim: int
    start: int
    end: int
    page: int
    at: str
    driver: Versions


class QueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Consumes a queue."""

    def __init__(self, options: QueueOptions, layout: pa.Schema) -> None:
        self._options = options
        self._layout = layout
        self._seat: _Seat | None = None
        self._left: int | None = None
        """With ``availableNow``: how many messages remain to be claimed."""
        self._last = Claim(number=0, count=0, size_bytes=0)

    # ----------------------------------------------------------------------------------------------- what Spark calls

    def initialOffset(self) -> dict[str, int]:
        """Return the start of a new query, which must never change: the open claim, or a new one."""
        return {CLAIM: 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of one batch."""
        return ReadMaxRows(self._options.rows_max)

    def prepareForTriggerAvailableNow(self) -> None:
        """Limit the stream to the messages that wait now."""
        seat = self._seated()
        self._left = seat.client.queue(self._options.queue).waiting + seat.open_messages

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Acknowledge everything up to ``start``, which is done, and claim the next batch."""
        number = self._claim(start[CLAIM], limit)
        if number == start[CLAIM] and self._left is None:
            threading.Event().wait(_IDLE_S)
            number = self._claim(start[CLAIM], limit)
        return {CLAIM: number}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Return the claim of a batch in parts. A consumer has one open claim at a time, so ``end`` is all of it."""
        number = end[CLAIM]
        if start[CLAIM] == number:
            return []
        seat, options, page = self._seated(), self._options, _FIRST_PAGE
        if self._last.number == number:
            total, page = self._last.count, _page(self._last.size_bytes // max(1, self._last.count))
        else:
            try:
                total = seat.client.read_claim(options.queue, options.consumer, claim=number, count=1).total
            except ClaimNotFound:
                if options.on_released == "skip":
                    return []
                raise
        seat.keep_alive(number)
        at, parts = seat.client.address_of(options.queue), split(0, total, least=options.partitions)
        return [ClaimPartition(number, part.after, part.until, page, at, versions()) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a part of a claim. Repeated calls, anywhere, give the same messages."""
        if not isinstance(partition, ClaimPartition):
            return
        check_versions(partition.driver)
        queue, consumer, number = self._options.queue, self._options.consumer, partition.claim
        start, page = partition.start, partition.page
        with self._options.place.near(partition.at).working() as client:
            while start < partition.end:
                count = min(page, partition.end - start)
                claimed = client.read_claim(queue, consumer, claim=number, start=start, count=count).deliveries
                found = [_whole(client, delivery) for delivery in claimed]
                if found:
                    yield deliveries_batch(found, claim=number, layout=self._layout)
                    page = _page(sum(len(delivery.payload) for delivery in found) // len(found))
                start += count

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing: the batch was acknowledged when Spark asked for the next one, which is earlier."""

    def stop(self) -> None:
        """Close the connection. The claim stays open for the next query."""
        seat, self._seat = self._seat, None
        if seat is not None:
            seat.leave()

    # ---------------------------------------------------------------------------------------------------------- claims

    def _claim(self, done: int, limit: ReadLimit) -> int:
        """Acknowledge what is done, and return the number of the open or a new claim; ``done`` without messages."""
        seat, options = self._seated(), self._options
        seat.check(done)
        most = min(options.rows_max, limit.max_rows) if isinstance(limit, ReadMaxRows) else options.rows_max
        count = most if self._left is None else min(most, self._left)
        claim = seat.client.claim(
            options.queue,
            options.consumer,
            epoch=seat.epoch,
            done=done,
            count=count,
            size_bytes=options.bytes_max,
        )
        if claim.number > self._last.number:
            self._last = claim
            if self._left is not None:
                self._left = max(0, self._left - claim.count)
        return claim.number if claim.count else done

    def _seated(self) -> _Seat:
        """Return the driver's registration, created on first use, since executors have a copy of this object."""
        if self._seat is None:
            self._seat = _Seat(self._options)
        return self._seat

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_seat": None}


def _whole(client: Client, delivery: Delivery) -> Delivery:
    """Return a claimed message with its payload, which is read piece by piece if it was uploaded and is large.

    Raises:
        PayloadTooLarge: a row can't hold it.
    """
    size = delivery.payload_size
    if size is None:
        return delivery
    if size > PAYLOAD_BYTES_MAX:
        raise PayloadTooLarge(
            f"Message {delivery.id} of queue {delivery.queue!r} has {size} bytes; a row holds {PAYLOAD_BYTES_MAX}. "
            "Let another consumer process it before Spark does."
        )
    payload = bytearray()
    while len(payload) < size:
        payload += client.read_payload(delivery.queue, delivery.id, token=delivery.token, offset=len(payload)).data
    return msgspec.structs.replace(delivery, payload=bytes(payload), payload_size=None)


def _page(size_bytes: int) -> int:
    """Return how many messages of a size to read at once."""
    return max(1, min(_PAGE_MAX, _PAGE_BYTES // (size_bytes + 200)))


class _Seat:
    """A registration of the consumer, and the connection of the driver."""

    def __init__(self, options: QueueOptions) -> None:
        self._options = options
        self._left = threading.Event()
        self._open_claim = 0
        self.client: Client = options.place.client()
        self.client.connect()
        view = self.client.register_consumer(options.queue, options.consumer, idle_ms=options.idle_ms)
        self.epoch, self._claimed = view.epoch, view.claimed
        self.open_messages = view.open_messages
        if options.idle_ms is not None:
            threading.Thread(target=self._beat, args=(options.idle_ms / 1000 / _BEATS,), daemon=True).start()

    def check(self, done: int) -> None:
        """Refuse a checkpoint that knows more claims than the broker: the consumer was released meanwhile."""
        if self._claimed >= done:
            self._claimed = 1 << 62  # it was right once, and only we claim from now on
            return
        raise InvalidArgument(
            f"The checkpoint is at claim {done} of consumer {self._options.consumer!r}, but the broker knows only "
            f"{self._claimed}: the consumer was released, and its claimed messages wait again. Use a new checkpoint."
        )

    def keep_alive(self, claim: int) -> None:
        """Keep the consumer registered while its claim is being processed."""
        self._open_claim = claim

    def leave(self) -> None:
        """Close the connection."""
        self._left.set()
        with suppress(FairlaneError):
            self.client.close()

    def _beat(self, pause_s: float) -> None:
        while not self._left.wait(pause_s):
            with suppress(FairlaneError):
                self.client.read_claim(self._options.queue, self._options.consumer, claim=self._open_claim, count=1)
