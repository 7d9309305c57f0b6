"""Payloads that take longer to read than their leases last."""

from __future__ import annotations

import pytest

from fairlane.broker.settings import Settings
from fairlane.client.message_fields import MessageFields
from fairlane.client.payload_reader import PayloadReader
from fairlane.errors import LeaseMismatch
from fairlane.model.message import Delivery
from fairlane.testing.stepped import SteppedBroker
from tests.kit.ids import numbered
from tests.unit.broker.stepping import broker_with, lease_one
from tests.unit.broker.test_uploads import PAYLOAD, PIECE, enqueue, uploaded

PIECES = 200
LONG = PAYLOAD[:PIECE] * PIECES
SPAN_MS = 500


def with_long_payload() -> SteppedBroker:
    """Return a broker with one message of two hundred pieces."""
    broker = broker_with(settings=Settings(piece_bytes=PIECE, payload_bytes_max=20))
    enqueue(broker, uploaded(broker, LONG))
    return broker


def expires_ms(broker: SteppedBroker, delivery: Delivery) -> int:
    """Return when the lease of a message ends."""
    return broker.engine.ledger.queues["q"].messages[numbered(delivery.id)].expires_ms


@pytest.mark.parametrize(("visibility_ms", "span_ms"), [(SPAN_MS, SPAN_MS), (None, 30_000), (60_000, 60_000)])
def test_a_payload_is_read_for_as_long_as_that_takes(visibility_ms: int | None, span_ms: int) -> None:
    """A reader that gets on keeps its lease, each time for as long as it was leased for, and a few commits do it."""
    broker = with_long_payload()
    delivery = lease_one(broker, visibility_ms=visibility_ms)
    begun, data = broker.engine.ledger.next_sequence, b""
    reader = PayloadReader(broker, MessageFields(delivery))
    while part := reader.read(PIECE):
        data += part
        assert span_ms / 2 <= expires_ms(broker, delivery) - broker.engine.now_ms() <= span_ms
        broker.advance(span_ms // 10)
    assert data == LONG
    assert broker.engine.ledger.next_sequence - begun <= PIECES // 3


def test_a_reader_that_stalls_loses_its_lease() -> None:
    """The lease ends when no bytes were read for its duration, and the message is delivered to another consumer."""
    broker = with_long_payload()
    reader = PayloadReader(broker, MessageFields(lease_one(broker, visibility_ms=SPAN_MS)))
    for _ in range(50):
        reader.read(PIECE)
        broker.advance(SPAN_MS // 4)
    broker.advance(SPAN_MS)
    with pytest.raises(LeaseMismatch):
        reader.read(PIECE)
    assert lease_one(broker).attempt == 2


def test_reading_the_same_bytes_again_keeps_no_lease() -> None:
    """Only a reader that gets further keeps its message from the others."""
    broker = with_long_payload()
    delivery = lease_one(broker, visibility_ms=SPAN_MS)
    for _ in range(5):
        broker.read_payload("q", delivery.id, token=delivery.token, offset=7 * PIECE)
        broker.advance(SPAN_MS // 5)
    with pytest.raises(LeaseMismatch):
        broker.read_payload("q", delivery.id, token=delivery.token, offset=7 * PIECE)


def test_reading_does_not_shorten_a_lease() -> None:
    """A consumer that has extended its lease for an hour keeps that hour."""
    broker = with_long_payload()
    delivery = lease_one(broker, visibility_ms=SPAN_MS)
    reader = PayloadReader(broker, MessageFields(delivery))
    reader.read(PIECE)
    until_ms = broker.extend(delivery, visibility_ms=3_600_000)
    broker.advance(SPAN_MS)
    reader.read()
    assert expires_ms(broker, delivery) == until_ms


def test_a_read_without_a_token_extends_nothing() -> None:
    """To look at a payload is nothing that the consumer does."""
    broker = with_long_payload()
    delivery = lease_one(broker, visibility_ms=SPAN_MS)
    for index in range(10):
        broker.read_payload("q", delivery.id, offset=index * PIECE)
        broker.advance(SPAN_MS // 5)
    assert lease_one(broker).attempt == 2


def test_a_lease_that_was_extended_for_long_is_read_at_the_usual_pace() -> None:
    """A reader that begins late gets the visibility timeout from then on, not all the time that it has held it."""
    broker = with_long_payload()
    delivery = lease_one(broker)
    for _ in range(100):
        broker.advance(20_000)
        broker.extend(delivery)
    reader = PayloadReader(broker, MessageFields(delivery))
    for _ in range(10):
        reader.read(PIECE)
        broker.advance(20_000)
    broker.advance(10_001)
    with pytest.raises(LeaseMismatch):
        reader.read(PIECE)
