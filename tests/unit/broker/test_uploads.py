"""Uploads: payloads in pieces that belong to no message until the enqueue, and are swept if it never comes."""

from __future__ import annotations

import random
from typing import Any

import pytest

from fairlane.broker.settings import Settings
from fairlane.errors import (
    FairlaneError,
    Forbidden,
    GlobalFull,
    InvalidArgument,
    LeaseMismatch,
    MessageNotFound,
    PayloadTooLarge,
    QueueFull,
    QueueNotFound,
    StoreFailed,
    TooManyUploads,
    TooManyWaiters,
    UploadMismatch,
    UploadNotFound,
)
from fairlane.model.limits import PIECES_WAITING_MAX
from fairlane.model.message import Delivery, NewMessage
from fairlane.testing.faulty_store import FaultyStore
from fairlane.testing.stepped import SteppedBroker
from fairlane.verbs.messages import Enqueue
from fairlane.verbs.uploads import BeginUpload, ReadPayload, UploadPiece
from tests.unit.broker.stepping import broker_with, lease_one, start_enqueue

PIECE = 10
PAYLOAD = bytes(range(65, 91))
"""Twenty-six letters: two full pieces and a short one."""
SMALL = Settings(piece_bytes=PIECE, payload_bytes_max=20)
"""A payload of more than 20 bytes is streamed."""


def uploaded(broker: SteppedBroker, payload: bytes = PAYLOAD, *, order: tuple[int, ...] = (), **how: Any) -> str:
    """Upload a payload to q, and return the id of the upload."""
    begun = broker.call(BeginUpload(queue="q", **how))
    pieces = [payload[at : at + PIECE] for at in range(0, len(payload), PIECE)]
    for index in order or range(len(pieces)):
        broker.upload_piece("q", begun.id, index, pieces[index])
    return begun.id


def enqueue(broker: SteppedBroker, upload: str, **terms: Any) -> str:
    return broker.enqueue("q", NewMessage(upload=upload, **terms))


def streamed(broker: SteppedBroker, delivery: Delivery) -> bytes:
    """Return a payload read piece by piece under its lease."""
    data = b""
    while piece := broker.read_payload(delivery.queue, delivery.id, token=delivery.token, offset=len(data)).data:
        data += piece
    return data


def bodies(broker: SteppedBroker) -> int:
    """Return how many bodies the store holds."""
    return len(broker.store._disk._bodies)  # type: ignore[attr-defined]  # a FaultyStore


def faulty(**settings: Any) -> SteppedBroker:
    """Return a broker whose store can fail, and shows what it holds."""
    small = {"piece_bytes": PIECE, "payload_bytes_max": 20}
    return broker_with(store=FaultyStore(random.Random(1)), settings=Settings(**(small | settings)))


# ------------------------------------------------------------------------------------------------------------- streams


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (0, 0, 2, 1, 1)])
def test_a_payload_that_came_in_pieces_is_read_in_pieces(order: tuple[int, ...]) -> None:
    """Pieces may come in any order and more than once; the delivery has the size, and a reader gets every byte."""
    broker = broker_with(settings=SMALL)
    message_id = enqueue(broker, uploaded(broker, order=order), headers={"kind": "alphabet"})
    delivery = lease_one(broker)
    assert (delivery.id, delivery.payload, delivery.payload_size) == (message_id, b"", len(PAYLOAD))
    assert delivery.headers == {"kind": "alphabet"}
    assert streamed(broker, delivery) == PAYLOAD
    assert broker.read_payload("q", message_id, offset=7, count=2).data == PAYLOAD[7:9]
    assert broker.read_payload("q", message_id, offset=26).data == b""
    view = broker.get("q", message_id)
    assert (view.size, view.payload, view.headers) == (26, None, {"kind": "alphabet"})


def test_a_payload_that_fits_into_one_request_arrives_as_a_whole() -> None:
    """Consumers need not know how a payload of up to payload_bytes_max was sent."""
    broker = broker_with(settings=SMALL)
    message_id = enqueue(broker, uploaded(broker, PAYLOAD[:20]))
    delivery = lease_one(broker)
    assert (delivery.payload, delivery.payload_size) == (PAYLOAD[:20], None)
    assert broker.get("q", message_id).payload == PAYLOAD[:20]
    assert broker.read_payload("q", message_id, offset=15).data == PAYLOAD[15:20]


def test_a_payload_in_one_request_can_be_read_in_ranges_too() -> None:
    """``read_payload`` works for every message, so a reader needs no second way."""
    broker = broker_with(settings=SMALL)
    message_id = broker.enqueue("q", b"0123456789")
    found = broker.read_payload("q", message_id, offset=4, count=3)
    assert (found.data, found.size) == (b"456", 10)


def test_an_empty_upload_is_an_empty_payload() -> None:
    """Nothing was sent, and nothing arrives."""
    broker = broker_with(settings=SMALL)
    enqueue(broker, uploaded(broker, b""))
    assert lease_one(broker).payload == b""


def test_reading_under_a_lease_ends_with_it() -> None:
    """A consumer that has lost its message does not go on with half of it."""
    broker = broker_with(settings=SMALL)
    enqueue(broker, uploaded(broker))
    first = lease_one(broker)
    broker.advance(31_000)
    with pytest.raises(LeaseMismatch):
        streamed(broker, first)
    again = lease_one(broker)
    assert streamed(broker, again) == PAYLOAD
    broker.ack(again)
    with pytest.raises(MessageNotFound):
        broker.read_payload("q", again.id, token=again.token)


def test_a_streamed_message_is_a_message_like_all_others() -> None:
    """It is retried, becomes a dead letter, is redriven and forwarded, and survives restarts on the way."""
    broker = broker_with({"max_attempts": 1}, settings=SMALL)
    broker.create_queue("next")
    enqueue(broker, uploaded(broker), fairness_key="acme")
    broker.nack(lease_one(broker), error="no")
    broker.reopen()
    dead = lease_one(broker, "q.dlq")
    assert streamed(broker, dead) == PAYLOAD
    broker.nack(dead, intent="defer")
    broker.redrive("q.dlq")
    broker.advance(1_000)
    broker.reopen()
    delivery = lease_one(broker)
    assert streamed(broker, delivery) == PAYLOAD
    begun = broker.begin_upload("next")
    broker.upload_piece("next", begun.id, 0, b"result")
    broker.ack(delivery, forward={"next": [NewMessage(upload=begun.id)]})
    forwarded = lease_one(broker, "next")
    assert (forwarded.payload, forwarded.fairness_key) == (b"result", "acme")


def test_registered_consumers_claim_streamed_messages() -> None:
    """The claim has the size and the token with which the payload is read."""
    broker = broker_with(settings=SMALL)
    enqueue(broker, uploaded(broker))
    consumer = broker.register_consumer("q", "etl")
    claim = broker.claim("q", "etl", epoch=consumer.epoch, done=0)
    (delivery,) = broker.read_claim("q", "etl", claim=claim.number).deliveries
    assert delivery.payload_size == 26
    assert streamed(broker, delivery) == PAYLOAD


# -------------------------------------------------------------------------------------------------- nothing left behind


def test_pieces_belong_to_no_message_before_the_enqueue() -> None:
    """The queue is empty until then, and afterwards the upload is gone and its payload is the message's."""
    broker = broker_with(settings=SMALL)
    upload = uploaded(broker)
    view = broker.queue("q")
    assert (view.waiting, view.size) == (0, 0)
    (open_upload,) = broker.uploads("q")
    assert (open_upload.id, open_upload.size, open_upload.pieces) == (upload, 26, 3)
    enqueue(broker, upload)
    assert broker.uploads("q") == []
    assert broker.queue("q").size == 26


@pytest.mark.parametrize("restarts", [False, True])
def test_an_upload_that_falls_silent_is_swept(*, restarts: bool) -> None:
    """Its pieces leave the store, also if the broker was restarted meanwhile; the silence then counts from there."""
    broker = faulty(upload_silence_ms=5_000)
    upload = uploaded(broker, order=(0, 1))
    if restarts:
        broker.reopen()
    broker.advance(4_999)
    broker.upload_piece("q", upload, 2, PAYLOAD[20:])
    broker.advance(4_999)
    assert bodies(broker) == 3
    broker.advance(1)
    assert (broker.uploads("q"), bodies(broker)) == ([], 0)
    with pytest.raises(UploadNotFound):
        enqueue(broker, upload)


def test_an_upload_that_its_caller_drops_leaves_nothing() -> None:
    """Dropping it again is no error, since the answer may have been lost."""
    broker = faulty()
    upload = uploaded(broker)
    broker.drop_upload("q", upload)
    broker.drop_upload("q", upload)
    broker.step()
    assert (broker.uploads("q"), bodies(broker)) == ([], 0)


@pytest.mark.parametrize("end", ["ack", "purge", "delete", "cancel"])
def test_the_pieces_of_a_message_that_is_gone_leave_the_store(end: str) -> None:
    """Little by little, over as many cycles as there are pieces to delete, and also across a restart."""
    broker = faulty()
    payload = PAYLOAD * 20
    message_id = enqueue(broker, uploaded(broker, payload))
    assert bodies(broker) == 53
    if end == "ack":
        broker.ack(lease_one(broker))
    elif end == "purge":
        broker.purge("q")
    elif end == "cancel":
        broker.cancel("q", message_id)
    else:
        broker.delete_queue("q")
    broker.reopen()
    broker.step()
    assert bodies(broker) == 0


def test_a_piece_whose_commit_failed_can_be_sent_again() -> None:
    """The store is recovered, the upload is still open, and the payload is complete in the end."""
    broker = faulty()
    begun = broker.begin_upload("q")
    broker.upload_piece("q", begun.id, 0, PAYLOAD[:10])
    broker.store.faults.arm("sync")  # type: ignore[attr-defined]  # a FaultyStore
    with pytest.raises(StoreFailed):
        broker.upload_piece("q", begun.id, 1, PAYLOAD[10:20])
    broker.advance(5_000)
    broker.upload_piece("q", begun.id, 1, PAYLOAD[10:20])
    broker.upload_piece("q", begun.id, 2, PAYLOAD[20:])
    enqueue(broker, begun.id)
    assert streamed(broker, lease_one(broker)) == PAYLOAD


def test_an_upload_is_kept_while_its_enqueue_waits_for_capacity() -> None:
    """Waiting for a full queue is no silence."""
    settings = Settings(piece_bytes=PIECE, payload_bytes_max=20, upload_silence_ms=2_000)
    broker = broker_with({"waiting_max": 1, "backpressure": "wait"}, settings=settings)
    broker.enqueue("q", b"first")
    upload = uploaded(broker)
    waiting = start_enqueue(broker, [NewMessage(upload=upload)])
    broker.advance(10_000)
    broker.ack(lease_one(broker))
    broker.step()
    assert [isinstance(result, str) for result in waiting.get()] == [True]
    assert streamed(broker, lease_one(broker)) == PAYLOAD


# ------------------------------------------------------------------------------------------------------------ refusals


def test_half_a_payload_is_never_enqueued() -> None:
    """A missing piece, or fewer bytes than announced, keep a message from taking an upload."""
    broker = broker_with(settings=SMALL)
    with pytest.raises(UploadMismatch, match="Piece 1 has not arrived"):
        enqueue(broker, uploaded(broker, order=(0, 2)))
    with pytest.raises(UploadMismatch, match="20 bytes of 26"):
        enqueue(broker, uploaded(broker, order=(0, 1), size=26))


def test_a_piece_has_to_fit() -> None:
    """All pieces but the last have one size, or it would be unclear which piece holds which byte."""
    broker = broker_with(settings=SMALL)
    begun = broker.begin_upload("q")
    for index, data, reason in ((0, b"x" * 11, "1 to 10 bytes"), (0, b"", "1 to 10 bytes")):
        with pytest.raises(UploadMismatch, match=reason):
            broker.upload_piece("q", begun.id, index, data)
    broker.upload_piece("q", begun.id, 1, b"short")
    with pytest.raises(UploadMismatch, match="piece 2 can't follow"):
        broker.upload_piece("q", begun.id, 2, b"x" * 10)
    with pytest.raises(UploadMismatch, match="not the last"):
        broker.upload_piece("q", begun.id, 0, b"short")
    with pytest.raises(InvalidArgument):
        broker.upload_piece("q", begun.id, -1, b"x")


def test_an_upload_is_for_one_message_of_its_own_caller() -> None:
    """Neither a second message nor another API key gets it."""
    broker = broker_with(settings=SMALL)
    begun = broker.call(BeginUpload(queue="q"), by="ann")
    piece = UploadPiece(queue="q", id=begun.id, index=0, data=b"x")
    with pytest.raises(Forbidden):
        broker.call(piece, by="bob")
    broker.call(piece, by="ann")
    message = NewMessage(upload=begun.id)
    (refused,) = broker.call(Enqueue(queue="q", messages=[message]), by="bob").results
    assert refused.error is not None
    assert refused.error.code == "forbidden"
    taken, second = broker.call(Enqueue(queue="q", messages=[message, message]), by="ann").results
    assert taken.id is not None
    assert second.error is not None
    assert second.error.code == "upload_mismatch"
    (late,) = broker.call(Enqueue(queue="q", messages=[message]), by="ann").results
    assert late.error is not None
    assert late.error.code == "upload_not_found"


def test_an_enqueue_by_upload_that_is_repeated_counts_once() -> None:
    """A dedup id is recognised although the upload is gone since."""
    broker = broker_with({"dedup_window_ms": 60_000}, settings=SMALL)
    upload = uploaded(broker)
    first = enqueue(broker, upload, dedup_id="once")
    assert enqueue(broker, upload, dedup_id="once") == first


LIMITS: list[tuple[dict[str, Any], dict[str, Any], type[FairlaneError], str]] = [
    ({"upload_bytes_max": 25}, {}, PayloadTooLarge, "upload_bytes_max is 25"),
    ({}, {"waiting_bytes_max": 25}, PayloadTooLarge, "waiting_bytes_max of queue 'q' is 25"),
    ({}, {"key_waiting_bytes_max": 25}, PayloadTooLarge, "key_waiting_bytes_max of queue 'q' is 25"),
    ({"upload_bytes_max": 25, "uploads_bytes_max": 25}, {}, PayloadTooLarge, "upload_bytes_max is 25"),
    ({"waiting_bytes_max": 25}, {}, PayloadTooLarge, "waiting_bytes_max of all queues together is 25"),
]


@pytest.mark.parametrize(("settings", "policy", "error", "cause"), LIMITS)
def test_a_limit_is_named_as_soon_as_it_is_met(
    settings: dict[str, Any], policy: dict[str, Any], error: type[FairlaneError], cause: str
) -> None:
    """At the first piece too many, and at the beginning if the caller says how large the payload is."""
    broker = broker_with(policy, settings=Settings(**({"piece_bytes": PIECE} | settings)))
    with pytest.raises(error, match=cause):
        uploaded(broker)
    with pytest.raises(error, match=cause):
        broker.begin_upload("q", size=26)


def test_open_uploads_count_towards_the_limit_of_the_broker() -> None:
    """One that would fit by itself is refused while the bytes of another are there."""
    broker = broker_with(settings=Settings(piece_bytes=PIECE, waiting_bytes_max=30))
    uploaded(broker, PAYLOAD[:20])
    with pytest.raises(GlobalFull, match="waiting_bytes_max is 30"):
        uploaded(broker, PAYLOAD[:20])


def test_open_uploads_of_a_caller_are_bounded() -> None:
    """In number and in bytes, for each API key by itself; what is enqueued or dropped does not count."""
    settings = Settings(piece_bytes=PIECE, uploads_max=2, upload_bytes_max=30, uploads_bytes_max=30)
    broker = broker_with(settings=settings)
    first, second = uploaded(broker, PAYLOAD[:10]), uploaded(broker, PAYLOAD[:20])
    with pytest.raises(TooManyUploads, match="2 open uploads; uploads_max is 2"):
        broker.begin_upload("q")
    with pytest.raises(TooManyUploads, match="30 bytes in open uploads; uploads_bytes_max is 30"):
        broker.upload_piece("q", first, 1, b"x")
    broker.call(BeginUpload(queue="q"), by="ann")
    enqueue(broker, second)
    broker.upload_piece("q", first, 1, b"x")


def test_a_full_queue_takes_no_streamed_message_and_keeps_the_upload() -> None:
    """The bytes count for the broker already, and for the queue when they enter it."""
    broker = broker_with({"waiting_bytes_max": 30}, settings=SMALL)
    broker.enqueue("q", b"x" * 10)
    upload = uploaded(broker)
    with pytest.raises(QueueFull):
        enqueue(broker, upload)
    broker.ack(lease_one(broker))
    enqueue(broker, upload)
    assert broker.queue("q").size == 26


def test_what_is_not_there_is_not_found() -> None:
    """Queues, uploads and messages."""
    broker = broker_with(settings=SMALL)
    with pytest.raises(QueueNotFound):
        broker.begin_upload("nowhere")
    with pytest.raises(UploadNotFound):
        broker.upload_piece("q", "00000000000000ff", 0, b"x")
    with pytest.raises(MessageNotFound):
        broker.read_payload("q", "00000000000000ff")


def test_a_message_has_a_payload_or_an_upload() -> None:
    """Both would be ambiguous; and a staged message, which may wait for long, has its payload with it."""
    broker = broker_with(settings=SMALL)
    with pytest.raises(InvalidArgument, match="not both"):
        broker.enqueue("q", NewMessage(payload=b"x", upload=uploaded(broker)))
    with pytest.raises(InvalidArgument, match="use enqueue"):
        broker.stage("q", "s", batch=1, part="p", at=0, messages=[NewMessage(upload=uploaded(broker))])


# ------------------------------------------------------------------------------------------------------------ fairness


def test_a_cycle_stores_few_pieces_and_everything_else() -> None:
    """However many pieces wait, each commit has one, and one with a small request has none, as long as few come."""
    broker = broker_with(settings=Settings(piece_bytes=PIECE, cycle_bytes_max=PIECE))
    begun = broker.begin_upload("q")
    pending = [broker.start(UploadPiece(queue="q", id=begun.id, index=index, data=b"x" * PIECE)) for index in range(5)]
    small = broker.start(Enqueue(queue="q", messages=[NewMessage(payload=b"small")]))
    broker.cycle()
    assert small.done()
    assert [piece.done() for piece in pending] == [False] * 5
    broker.cycle()
    assert [piece.done() for piece in pending] == [True, False, False, False, False]
    broker.step()
    assert all(piece.done() for piece in pending)


def test_pieces_are_stored_however_busy_the_broker_is() -> None:
    """Of four cycles with other requests one has a piece."""
    broker = broker_with(settings=Settings(piece_bytes=PIECE, cycle_bytes_max=PIECE))
    begun = broker.begin_upload("q")
    pieces = [broker.start(UploadPiece(queue="q", id=begun.id, index=index, data=b"x" * PIECE)) for index in range(3)]
    stored = []
    for _ in range(8):
        broker.start(Enqueue(queue="q", messages=[NewMessage(payload=b"small")]))
        broker.cycle()
        stored.append(sum(piece.done() for piece in pieces))
    assert stored == [0, 0, 0, 1, 1, 1, 1, 2]


def test_callers_take_turns_however_many_pieces_each_has() -> None:
    """The second caller's only piece is stored in the second cycle."""
    broker = broker_with(settings=Settings(piece_bytes=PIECE, cycle_bytes_max=PIECE))
    many, one = (broker.call(BeginUpload(queue="q"), by=name).id for name in ("ann", "bob"))
    pieces = [
        broker.start(UploadPiece(queue="q", id=many, index=index, data=b"x" * PIECE), by="ann") for index in range(9)
    ]
    single = broker.start(UploadPiece(queue="q", id=one, index=0, data=b"x" * PIECE), by="bob")
    broker.cycle()
    broker.cycle()
    assert (single.done(), sum(piece.done() for piece in pieces)) == (True, 1)


def test_a_caller_that_does_not_wait_for_its_pieces_is_refused() -> None:
    """Memory is bounded by the pieces that may wait, and what was refused can be sent again."""
    broker = broker_with(settings=Settings(piece_bytes=PIECE, cycle_bytes_max=PIECE))
    begun = broker.begin_upload("q")
    pending = [
        broker.start(UploadPiece(queue="q", id=begun.id, index=index, data=b"x" * PIECE))
        for index in range(PIECES_WAITING_MAX + 1)
    ]
    broker.step()
    with pytest.raises(TooManyWaiters, match="PIECES_WAITING_MAX"):
        pending[-1].get()
    assert all(piece.get() is not None for piece in pending[:-1])


def test_one_cycle_answers_one_large_read() -> None:
    """Readers of large payloads share the loop with everyone else."""
    broker = broker_with(settings=SMALL)
    message_id = enqueue(broker, uploaded(broker))
    reads = [broker.start(ReadPayload(queue="q", id=message_id)) for _ in range(3)]
    broker.cycle()
    assert [read.done() for read in reads] == [True, False, False]
