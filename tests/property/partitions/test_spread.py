"""Requests in pieces: every item is in one piece, where it belongs, and the answers come back in order."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.model.limits import PARTITIONS_MAX
from fairlane.model.message import NewMessage, Receipt
from fairlane.verbs.leases import Ack, Extend, Lease, Nack
from fairlane.verbs.messages import Cancel, Enqueue
from fairlane.verbs.queues import PauseQueue, PurgeQueue
from fairlane.wire.spread import (
    Piece,
    asking_order,
    cancel_pieces,
    enqueue_pieces,
    for_partition,
    in_order,
    places_by_message,
    settling_pieces,
)

counts = st.integers(1, PARTITIONS_MAX)
places = st.lists(st.integers(0, 7), max_size=30)
names = st.sampled_from((None, "acme", "globex", "initech", ("acme", "mobile"), ("globex", "web", "x")))


def check_pieces(pieces: list[Piece], items: list[Any], expected: list[int], field: str) -> None:
    """Compare pieces with what a search from end to end says of each partition."""
    assert [piece.at for piece in pieces] == sorted(set(expected))
    for piece in pieces:
        rows = [row for row, at in enumerate(expected) if at == piece.at]
        assert piece.rows == rows
        assert getattr(piece.request, field) == [items[row] for row in rows]
        assert piece.request.queue == f"orders~{piece.at}"  # type: ignore[attr-defined] # those of pieces have one


@given(places)
def test_an_enqueue_is_in_pieces_by_place(where: list[int]) -> None:
    """Every message is in the piece of its partition, in order, and what holds for all holds for each piece."""
    messages = [NewMessage(payload=b"%d" % at) for at in range(len(where))]
    pieces = enqueue_pieces(Enqueue(queue="orders", messages=messages, wait_ms=7), where)
    check_pieces(pieces, messages, where, "messages")
    assert all(isinstance(piece.request, Enqueue) and piece.request.wait_ms == 7 for piece in pieces)


@given(st.lists(names, max_size=30), st.sampled_from((2, 8)))
def test_the_key_that_a_producer_gives_says_the_place(found: list[Any], count: int) -> None:
    """Messages of one top key are together, and those without a key where the default key is."""
    known = {2: {"acme": 0, "globex": 1, "initech": 1, None: 1}, 8: {"acme": 4, "globex": 1, "initech": 6, None: 1}}
    request = Enqueue(queue="orders", messages=[NewMessage(fairness_key=key) for key in found])
    tops = [key[0] if isinstance(key, tuple) else key for key in found]
    assert places_by_message(request, count) == [known[count][top] for top in tops]


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(1, 999)), max_size=30))
def test_what_settles_is_in_pieces_by_id(found: list[tuple[int, int]]) -> None:
    """Each receipt and each id goes to the partition that the id tells, whatever is done with it."""
    ids = [f"{(at << 47) + number:016x}" for at, number in found]
    receipts = [Receipt(id=each, token=row) for row, each in enumerate(ids)]
    expected = [at for at, _ in found]
    for request in (
        Ack(queue="orders", receipts=receipts),
        Nack(queue="orders", receipts=receipts, intent="dead", error="no", delay_ms=5),
        Extend(queue="orders", receipts=receipts, visibility_ms=9),
    ):
        pieces = settling_pieces(request)
        check_pieces(pieces, receipts, expected, "receipts")
        for piece in pieces:
            assert msgspec.structs.replace(piece.request, queue="orders", receipts=receipts) == request
    check_pieces(cancel_pieces(Cancel(queue="orders", ids=ids)), ids, expected, "ids")


@given(places)
def test_answers_come_back_in_the_order_of_the_request(where: list[int]) -> None:
    """What came of each item is at the item's row, whichever piece it was in."""
    ids = [f"{(at << 47) + row + 1:016x}" for row, at in enumerate(where)]
    pieces = cancel_pieces(Cancel(queue="orders", ids=ids))
    assert in_order(pieces, [[f"row {row}" for row in piece.rows] for piece in pieces]) == [
        f"row {row}" for row in range(len(where))
    ]


def test_an_answer_that_lacks_an_item_is_not_taken_for_a_whole_one() -> None:
    """A partition that answers for fewer items than it was asked about would leave the others to the wrong rows."""
    pieces = cancel_pieces(Cancel(queue="orders", ids=["0" * 15 + "1", "0" * 15 + "2"]))
    with pytest.raises(ValueError, match="shorter"):
        in_order(pieces, [["one"]])
    with pytest.raises(ValueError, match="shorter"):
        in_order(pieces, [])


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        (Lease(queue="orders", count=3, wait_ms=5), "orders~2"),
        (PurgeQueue(queue="orders.dlq"), "orders~2.dlq"),
        (PauseQueue(queue="orders", key="acme"), "orders~2"),
    ],
)
def test_a_request_can_be_made_of_one_partition(request_: Any, name: str) -> None:
    """Only the name of the queue is another."""
    made = for_partition(request_, 2)
    assert made.queue == name
    assert msgspec.structs.replace(made, queue=request_.queue) == request_


@given(counts, st.integers(0, 1_000))
def test_all_partitions_are_asked_and_take_turns_in_being_first(made: int, turn: int) -> None:
    """Each asking is of all of them; in as many askings as there are partitions each is first once, and last once."""
    orders = [asking_order(made, turn + at) for at in range(made)]
    assert all(sorted(order) == list(range(made)) for order in orders)
    assert {order[0] for order in orders} == {order[-1] for order in orders} == set(range(made))
