"""Producers keep pace with consumers that keep up, and are not held up by those that don't."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.broker.handlers import submission_of
from fairlane.broker.pace import PAUSE, WAIT_MS, ProducerPace
from fairlane.broker.requests import Call
from fairlane.broker.waiting.room import Room
from fairlane.model.message import NewMessage, Receipt
from fairlane.testing.stepped import SteppedBroker
from fairlane.verbs.leases import Ack, Lease, LeasedMessages
from fairlane.verbs.messages import Enqueue

BATCH = 100
IN_FLIGHT = 8


class Client:
    """A caller on a connection, with one answer at a time."""

    def __init__(self) -> None:
        self.source = self
        self.room = Room(1 << 30)
        self.answer: Any = None

    def done(self) -> bool:
        return False

    def set_result(self, result: object, /) -> None:
        self.answer = result

    def set_exception(self, exception: BaseException, /) -> None:
        raise exception


class Flood:
    """A producer with eight batches in flight, and a consumer with one request, on virtual time.

    A cycle takes a millisecond, and so does an answer on its way to the producer and back.
    """

    def __init__(self, *, count: int, work_ms: int) -> None:
        self.broker = SteppedBroker()
        self.broker.create_queue("jobs")
        self.acked = 0
        self._count, self._work_ms = count, work_ms
        self._producers = [Client() for _ in range(IN_FLIGHT)]
        for producer in self._producers:
            producer.source = self._producers[0]
            self._enqueue(producer)
        self._consumer = Client()
        self._asks_ms: int | None = self.broker.clock.now_ms()

    @property
    def enqueued(self) -> int:
        """How many messages are or were in the queue."""
        return len(self.broker.engine.ledger.queues["jobs"].messages) + self.acked

    def run(self, duration_ms: int) -> None:
        """Go on for a while."""
        clock, engine = self.broker.clock, self.broker.engine
        end_ms = clock.now_ms() + duration_ms
        while clock.now_ms() < end_ms:
            if self._asks_ms is not None and clock.now_ms() >= self._asks_ms:
                self._ask()
            if engine.has_requests():
                self.broker.cycle()
            clock.advance(1)
            self._answered()

    def _enqueue(self, producer: Client) -> None:
        producer.answer = None
        request = Enqueue(queue="jobs", messages=[NewMessage()] * BATCH)
        self.broker.engine.submit(Call(request, producer))

    def _answered(self) -> None:
        for producer in self._producers:
            if producer.answer is not None:
                self._enqueue(producer)
        if self._consumer.answer is not None and self._asks_ms is None:
            is_lease = isinstance(self._consumer.answer, LeasedMessages)
            self._asks_ms = self.broker.clock.now_ms() + (self._work_ms if is_lease else 0)

    def _ask(self) -> None:
        answer, self._consumer.answer, self._asks_ms = self._consumer.answer, None, None
        if isinstance(answer, LeasedMessages) and answer.deliveries:
            receipts = [Receipt(delivery.id, delivery.token) for delivery in answer.deliveries]
            self.acked += len(receipts)
            self.broker.engine.submit(Call(Ack(queue="jobs", receipts=receipts), self._consumer))
            return
        request = Lease(queue="jobs", count=self._count, wait_ms=1_000)
        self.broker.engine.submit(submission_of(self.broker.engine, request, self._consumer))


def test_a_consumer_that_keeps_up_gets_what_a_flood_enqueues() -> None:
    """With one request in flight it acknowledges at least 0.8 of what eight batches in flight enqueue."""
    flood = Flood(count=BATCH, work_ms=1)
    flood.run(200)
    assert flood.acked > 4_000
    assert flood.acked >= 0.8 * flood.enqueued


@pytest.mark.parametrize(("count", "work_ms"), [(1, 1), (1, 5), (5, 1), (BATCH, 40)])
def test_a_consumer_that_takes_little_holds_up_no_producer(count: int, work_ms: int) -> None:
    """One that takes a few messages at a time, or works for long, takes at most a tenth of a producer's rate."""
    flood = Flood(count=count, work_ms=work_ms)
    flood.run(200)
    assert (
        flood.enqueued >= 0.9 * 200 * BATCH
    )  # while consumers ask, a commit has a hundred messages, whatever the pace


def test_a_wait_ends_by_itself() -> None:
    """Enqueues wait some milliseconds for a consumer that does not come back, and then not for twenty times as long."""
    pace = ProducerPace()
    pace.note(enqueued=0, taken=50, now_ms=0)
    pace.note(enqueued=150, taken=0, now_ms=1)
    assert not pace.waits(1, lead_max=151)
    assert [at for at in range(1, 60) if pace.waits(at, lead_max=150)] == list(range(1, 1 + WAIT_MS))
    pace.note(enqueued=0, taken=1, now_ms=60)
    assert next(at for at in range(60, 200) if pace.waits(at, lead_max=100)) == 1 + WAIT_MS + PAUSE * WAIT_MS


def test_a_broker_that_closes_makes_nothing_wait() -> None:
    """What was asked before is decided at once."""
    pace = ProducerPace()
    pace.note(enqueued=0, taken=1, now_ms=0)
    pace.note(enqueued=1_000, taken=0, now_ms=1)
    assert pace.waits(1, lead_max=100)
    pace.release()
    assert not pace.waits(1, lead_max=100)
    assert pace.until_ms == 0
