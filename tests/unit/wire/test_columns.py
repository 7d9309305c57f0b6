"""Batches cross the stream as columns and arrive as they were; what columns cannot hold is sent as it is."""

from __future__ import annotations

import struct
from concurrent.futures import Future
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.client.message_aio import AsyncMessage
from fairlane.client.transport.protocol import Conversation
from fairlane.errors import InvalidArgument
from fairlane.model.ids import NUMBER_END, MessageIds
from fairlane.model.message import Delivery, NewMessage, Receipt
from fairlane.verbs.columns import (
    COLUMNS_FROM,
    DeliveryColumns,
    EnqueuedIds,
    MessageColumns,
    ReceiptColumns,
    receipt_columns,
)
from fairlane.verbs.leases import Ack, Lease
from fairlane.verbs.messages import Enqueue
from fairlane.verbs.methods.conversions import receipts_of
from fairlane.wire.columns import (
    AckEither,
    EnqueuedEither,
    EnqueueEither,
    LeaseColumns,
    LeasedEither,
    NewColumns,
    ack_of,
    deliveries_in,
    encode_columns,
    enqueue_of,
    request_in_columns,
    request_in_rows,
    results_in,
)

encode = msgspec.msgpack.Encoder(enc_hook=encode_columns).encode
JOURNAL = "0123456789abcdef"
IDS = MessageIds([(0, JOURNAL)])
JOURNAL_BITS = int(IDS.id_of(0)[19:].replace("-", ""), 16)
wholes = st.integers(0, (1 << 64) - 1)
numbers = st.integers(0, NUMBER_END - 1)
plain = st.builds(NewMessage, payload=st.binary(max_size=40), fairness_key=st.none() | st.text(max_size=8))
keys = st.text(min_size=1, max_size=8) | st.lists(st.text(max_size=4), min_size=2, max_size=3).map(tuple)
leased = st.tuples(numbers, keys, st.integers(1, (1 << 32) - 1), st.integers(0, 1 << 50), st.binary(max_size=40))


def sent(request: Enqueue | Ack, shape: type[Any]) -> Any:
    """Return a request as the server decodes it."""
    return msgspec.msgpack.decode(encode(request_in_columns(request)), type=shape)


def batch(rows: list[tuple[int, Any, int, int, bytes]], *, token: int = 7) -> DeliveryColumns:
    """Return leased messages as the broker has them."""
    return DeliveryColumns(
        "orders",
        journal=JOURNAL_BITS,
        numbers=[row[0] for row in rows],
        token=token,
        expires_ms=99,
        keys=[row[1] for row in rows],
        attempts=[row[2] for row in rows],
        enqueued_ms=[row[3] for row in rows],
        payloads=[row[4] for row in rows],
    )


def received(columns: DeliveryColumns) -> DeliveryColumns:
    """Return leased messages as the client has them."""
    answer = msgspec.msgpack.decode(encode({"deliveries": columns}), type=LeasedEither)
    found = deliveries_in(answer.deliveries)
    assert isinstance(found, DeliveryColumns)
    return found


@given(st.lists(plain, min_size=COLUMNS_FROM, max_size=20), st.none() | st.just("p"))
def test_new_messages_arrive_as_they_were(messages: list[NewMessage], producer: str | None) -> None:
    """Payloads, keys and the other fields of an enqueue are the same on the other side, message by message."""
    request = Enqueue(queue="orders", messages=messages, wait_ms=5, producer=producer, numbers=(3,))
    arrived = enqueue_of(sent(request, EnqueueEither))
    assert isinstance(arrived.messages, MessageColumns)
    assert list(arrived.messages) == messages
    assert arrived.messages[-1] == messages[-1]
    assert arrived.messages[1:3] == messages[1:3]
    assert (arrived.queue, arrived.wait_ms, arrived.producer, arrived.numbers) == ("orders", 5, producer, (3,))


@pytest.mark.parametrize(
    "special",
    [
        NewMessage(headers={"a": "b"}),
        NewMessage(fairness_key=("acme", "mobile")),
        NewMessage(payload=bytearray(b"x")),  # type: ignore[arg-type] # callers pass what they have
        NewMessage(weight=2),
        NewMessage(cost=2),
        NewMessage(priority="high"),
        NewMessage(throttles=("mail",)),
        NewMessage(delay_ms=1),
        NewMessage(deadline_ms=1),
        NewMessage(dedup_id="a"),
        NewMessage(correlation_id="a"),
        NewMessage(max_attempts=1),
        NewMessage(visibility_timeout_ms=1),
        NewMessage(result_ttl_ms=1),
        NewMessage(upload="a"),
        NewMessage(order_key="a"),
        NewMessage(unique_key="a"),
    ],
    ids=repr,
)
def test_messages_with_more_than_columns_hold_go_as_they_are(special: NewMessage) -> None:
    """One message with any other field keeps the whole request in rows."""
    request = Enqueue(queue="orders", messages=[NewMessage()] * COLUMNS_FROM + [special])
    assert request_in_columns(request) is request


def test_every_field_of_a_message_is_plain_or_special() -> None:
    """A field that is added to messages must be added to the columns, or to the test above."""
    assert NewMessage.__struct_fields__[:3] == ("payload", "headers", "fairness_key")
    assert len(NewMessage.__struct_fields__) == 17


def test_a_few_messages_go_as_they_are() -> None:
    """Columns of one message would cost more than the message."""
    request = Enqueue(queue="orders", messages=[NewMessage()] * (COLUMNS_FROM - 1))
    assert request_in_columns(request) is request
    assert enqueue_of(sent(request, EnqueueEither)) == request


@given(st.lists(st.tuples(numbers, wholes), max_size=20))
def test_receipts_arrive_as_they_were(receipts: list[tuple[int, int]]) -> None:
    """Ids and tokens are the same on the other side, and in the rows that an older server gets."""
    columns: Any = ReceiptColumns(JOURNAL_BITS, [number for number, _ in receipts], [token for _, token in receipts])
    rows = [Receipt(IDS.id_of(number), token) for number, token in receipts]
    request = Ack(queue="orders", receipts=columns)
    assert list(ack_of(sent(request, AckEither)).receipts) == rows
    assert request_in_rows(request) == Ack(queue="orders", receipts=rows)


@given(st.lists(leased, min_size=1, max_size=20))
def test_leased_messages_arrive_as_they_were(rows: list[tuple[int, Any, int, int, bytes]]) -> None:
    """Each row has the fields of the delivery that the same message would have been on its own."""
    arrived = received(batch(rows))
    for at, (number, key, attempt, enqueued_ms, payload) in enumerate(rows):
        alone = Delivery(
            id=IDS.id_of(number),
            queue="orders",
            token=7 + at,
            payload=payload,
            headers={},
            fairness_key=key,
            attempt=attempt,
            expires_ms=99,
            enqueued_ms=enqueued_ms,
            correlation_id=IDS.id_of(number),
        )
        row = arrived[at]
        assert row.delivery() == alone
        assert all(getattr(row, name) == getattr(alone, name) for name in Delivery.__struct_fields__)
    assert arrived.ids() == [IDS.id_of(row[0]) for row in rows]
    assert arrived.payload_bytes == sum(len(row[4]) for row in rows)


@given(st.integers(0, 1 << 53), st.integers(1, 20))
def test_ids_of_new_messages_arrive_as_they_were(first: int, count: int) -> None:
    """The ids follow each other from the first on, and each result has its own as its correlation id."""
    data = encode({"results": EnqueuedIds(JOURNAL_BITS, first, count)})
    results = results_in(msgspec.msgpack.decode(data, type=EnqueuedEither))
    expected = [IDS.id_of(number) for number in range(first, first + count)]
    assert isinstance(results, EnqueuedIds)
    assert results.ids() == expected
    assert [(result.id, result.correlation_id) for result in results] == [(each, each) for each in expected]


def test_large_batches_are_not_kept_for_one_message() -> None:
    """Of more than a megabyte each payload is on its own, so that one message does not keep the others in memory."""
    rows = [(number, "a", 1, 0, bytes(600_000)) for number in range(2)]
    arrived = received(batch(rows))
    assert isinstance(arrived.payloads, list)
    assert [len(payload) for payload in arrived.payloads] == [600_000, 600_000]


def test_receipts_of_one_batch_become_columns() -> None:
    """In any order; messages of two batches, or on their own, are acknowledged in rows."""
    client: Any = None
    one, other = (received(batch([(at, "a", 1, 0, b"") for at in range(6)], token=token)) for token in (7, 50))
    messages = [AsyncMessage(row, client) for row in one]
    columns = receipt_columns([messages[5], *messages[:4]])
    assert columns is not None
    assert list(columns) == [Receipt(IDS.id_of(at), 7 + at) for at in (5, 0, 1, 2, 3)]
    assert receipt_columns([*messages, AsyncMessage(other[0], client)]) is None
    assert receipt_columns(messages[:2]) is None
    assert messages[0].delivery.token == 7  # from here on it is on its own
    assert receipt_columns(messages) is None
    assert receipt_columns("text") is None


def test_leased_messages_of_a_caller_that_is_gone_are_returned() -> None:
    """They are handed on as a list, from which receipts are made, whether they came as columns or not."""
    late: list[list[Delivery]] = []
    conversation = Conversation(on_late=late.append)
    reply: Future[Any] = Future()
    conversation.call("lease", Lease(queue="orders", count=5), reply, due=1.0)
    reply.cancel()
    rows = [(number, "a", 1, 0, b"x") for number in range(5)]
    assert conversation.receive(encode((1, 1, {"deliveries": batch(rows)}))) == []
    (deliveries,) = late
    assert receipts_of(deliveries) == [Receipt(IDS.id_of(number), 7 + number) for number in range(5)]


def test_columns_of_a_server_must_fit_together() -> None:
    """Otherwise the message counts as malformed, which ends the connection."""
    short = batch([(number, "a", 1, 0, b"x") for number in range(5)])
    short.keys = short.keys[:4]
    with pytest.raises(msgspec.DecodeError):
        received(short)


def u32(*found: int) -> bytes:
    return struct.pack(f"<{len(found)}I", *found)


def u64(*found: int) -> bytes:
    return struct.pack(f"<{len(found)}Q", *found)


@pytest.mark.parametrize(
    ("given_keys", "sizes", "payloads"),
    [
        (["a"], b"", b""),
        (["a"], u32(1, 1), b"xx"),
        (["a"], u32(2), b"x"),
        (["a"], u32(0), b"x"),
        (["a"], u32(1)[:3], b"x"),
        ([], u32(1), b"x"),
        (["a", "b"], u32(1, (1 << 32) - 1), b"x"),
    ],
)
def test_messages_that_do_not_fit_together_are_refused(
    given_keys: list[str | None], sizes: bytes, payloads: bytes
) -> None:
    """One key and one size for each message, and sizes that add up to the payloads."""
    messages = NewColumns(keys=given_keys, sizes=sizes, payloads=memoryview(payloads))
    with pytest.raises(InvalidArgument, match="sizes"):
        enqueue_of(EnqueueEither(queue="orders", messages=messages))


@pytest.mark.parametrize(
    ("journal", "of_messages", "tokens"),
    [
        (0, u64(1), b""),
        (0, u64(1)[:7], u64(1)),
        (0, u64(1), u64(1) + b"x"),
        (0, u64(NUMBER_END), u64(1)),
        (-1, u64(1), u64(1)),
        (1 << 64, u64(1), u64(1)),
    ],
)
def test_receipts_that_do_not_fit_together_are_refused(journal: int, of_messages: bytes, tokens: bytes) -> None:
    """One token for each number, and only numbers that messages have."""
    receipts = LeaseColumns(journal=journal, numbers=of_messages, tokens=tokens)
    with pytest.raises(InvalidArgument, match="receipts"):
        ack_of(AckEither(queue="orders", receipts=receipts))


@pytest.mark.parametrize("name", ["keys", "sizes"])
def test_a_longer_column_than_a_list_may_be_is_not_decoded(name: str) -> None:
    """A decoder refuses it by its length, before it creates anything."""
    columns: dict[str, Any] = {"keys": [], "sizes": b"", "payloads": b""}
    columns[name] = [None] * 10_001 if name == "keys" else bytes(4 * 10_001)
    with pytest.raises(msgspec.ValidationError, match="of length <="):
        msgspec.msgpack.decode(encode({"queue": "orders", "messages": columns}), type=EnqueueEither)


@given(st.lists(numbers, min_size=1, max_size=10))
def test_ids_are_the_same_one_by_one_and_together(found: list[int]) -> None:
    """For numbers in any order, under one journal id and under two."""
    renamed = MessageIds([(0, JOURNAL), (1 << 40, "f" * 16)])
    assert IDS.ids_of(found) == [IDS.id_of(number) for number in found]
    assert renamed.ids_of(iter(found)) == [renamed.id_of(number) for number in found]
    assert (renamed.journal_of(found) is None) == (min(found) < 1 << 40)
