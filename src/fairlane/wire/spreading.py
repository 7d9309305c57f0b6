"""Requests about a queue that is split: into one for each partition they concern, and the answers together again.

Nodes do this for whoever asks for the queue as a whole, and clients that know how it is split do it themselves. Nothing
here sends anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from fairlane.model.message import Delivery, MessageView
from fairlane.model.partitions import partition_name, partition_of_id, partition_of_key, queue_of
from fairlane.verbs.leases import Ack, Extend, Nack
from fairlane.verbs.messages import Cancel, Enqueue
from fairlane.verbs.verb import Request

T = TypeVar("T")
M = TypeVar("M", Delivery, MessageView)
Settling: TypeAlias = Ack | Nack | Extend
SETTLING: Final = (Ack, Nack, Extend)


class Piece(NamedTuple):
    """What one partition is asked."""

    at: int
    """The partition."""
    request: Request[Any]
    """The request, under the name of the partition."""
    rows: list[int]
    """Which items of the whole request these are."""


def enqueue_pieces(request: Enqueue, places: Sequence[int]) -> list[Piece]:
    """Return an enqueue by partition, in order within each.

    Args:
        request: the whole.
        places: of each message the partition it belongs to.
    """
    return [
        Piece(at, _renamed(request, at, messages=[request.messages[row] for row in rows]), rows)
        for at, rows in _rows_by_partition(places)
    ]


def places_by_message(request: Enqueue, partitions: int) -> list[int]:
    """Return the partition of each message, by the fairness keys that its producer has given them."""
    known: dict[object, int] = {}
    places = []
    for message in request.messages:
        key = message.fairness_key
        at = known.get(key)
        if at is None:
            at = known[key] = partition_of_key(key, partitions)
        places.append(at)
    return places


def settling_pieces(request: Settling) -> list[Piece]:
    """Return an ack, nack or extend by partition, which the ids of messages tell."""
    places = [partition_of_id(receipt.id) for receipt in request.receipts]
    return [
        Piece(at, _renamed(request, at, receipts=[request.receipts[row] for row in rows]), rows)
        for at, rows in _rows_by_partition(places)
    ]


def cancel_pieces(request: Cancel) -> list[Piece]:
    """Return a cancel by partition, which the ids of messages tell."""
    return [
        Piece(at, _renamed(request, at, ids=[request.ids[row] for row in rows]), rows)
        for at, rows in _rows_by_partition(map(partition_of_id, request.ids))
    ]


def for_partition(request: T, at: int) -> T:
    """Return a request about a queue as one about one partition of it."""
    return msgspec.structs.replace(request, queue=partition_name(request.queue, at))  # type: ignore[type-var, attr-defined] # all have one


def in_order(pieces: Iterable[Piece], results: Iterable[Sequence[T]]) -> list[T]:
    """Return what came of each item, in the order of the whole request."""
    placed = sorted(
        (pair for piece, some in zip(pieces, results, strict=True) for pair in zip(piece.rows, some, strict=True)),
        key=lambda pair: pair[0],
    )
    return [result for _, result in placed]


def asking_order(made: int, turn: int) -> list[int]:
    """Return in which order a consumer asks the partitions, which take turns in being first.

    Args:
        made: how many partitions there are.
        turn: one more with each asking; consumers do well to begin at different numbers.
    """
    begin = turn % made
    return [*range(begin, made), *range(begin)]


def of_whole(queue: str, deliveries: Sequence[Delivery]) -> list[Delivery]:
    """Return deliveries of a partition as those of the queue, or dead-letter queue, that was asked for."""
    return [as_of(delivery, queue) for delivery in deliveries]


def as_of(message: M, queue: str) -> M:
    """Return a message of a partition as one of the queue that was asked for."""
    if message.dead is not None:
        dead = msgspec.structs.replace(message.dead, origin=queue_of(message.dead.origin))
        return msgspec.structs.replace(message, queue=queue, dead=dead)
    return message if message.queue == queue else msgspec.structs.replace(message, queue=queue)


def _renamed(request: Request[Any], at: int, **changes: object) -> Request[Any]:
    return msgspec.structs.replace(for_partition(request, at), **changes)


def _rows_by_partition(places: Iterable[int]) -> list[tuple[int, list[int]]]:
    rows: dict[int, list[int]] = {}
    for row, at in enumerate(places):
        rows.setdefault(at, []).append(row)
    return sorted(rows.items())
