"""How a request for a split queue is spread over its partitions, without I/O.

A node does this for callers that ask for the queue as a whole, and the SDK does it itself once it knows how the queue
is split. Both run the same *plans*: a plan is a generator that yields the pieces to ask, gets the outcome of each, and
returns the answer. An outcome is the partition's answer, or the error with which it was refused. How pieces are sent,
repeated and timed out is the driver's business.

Where the items of a request go follows from the items alone. New messages go to the partition of their fairness key. A
message that exists is named by an id that tells its partition, so that it need not be looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from fairlane.errors import Closed, FairlaneError, QueueElsewhere, QueueNotFound, QueueSplit, RequestError
from fairlane.model.message import Delivery, MessageView
from fairlane.model.partitions import partition_name, partition_of_id, partition_of_key, queue_of
from fairlane.verbs.errors import body_of
from fairlane.verbs.leases import Ack, Extend, Lease, LeasedMessages, Nack
from fairlane.verbs.messages import Cancel, Enqueue, EnqueueResult, EnqueueResults, Result, Results
from fairlane.verbs.verb import Request

T = TypeVar("T")
M = TypeVar("M", Delivery, MessageView)
Settling: TypeAlias = Ack | Nack | Extend
SETTLING: Final = (Ack, Nack, Extend)
ItemRequest: TypeAlias = Enqueue | Cancel | Settling
WHOLE_REFUSALS: Final = (Closed, QueueNotFound, QueueElsewhere, QueueSplit)
"""Refusals of a whole request that no single item can have caused."""


class Piece(NamedTuple):
    """What one partition is asked.

    Attributes:
        at: the number of the partition.
        request: the request, under the name of the partition.
        rows: which items of the whole request these are.
    """

    at: int
    request: Request[Any]
    rows: list[int]


Plan: TypeAlias = Generator[list[Piece], list[Any], T]
"""Yields pieces that may be asked at the same time, gets their outcomes in order, and returns the answer."""


# --------------------------------------------------------------------------------------------------------------- pieces


def enqueue_pieces(request: Enqueue, places: Sequence[int]) -> list[Piece]:
    """Return an enqueue by partition, in order within each.

    Args:
        request: the whole request.
        places: the partition of each message.
    """
    return _pieces(request, places)


def places_by_message(request: Enqueue, partitions: int) -> list[int]:
    """Return the partition of each message: that of its upload, or by the fairness key that its producer gave it."""
    known: dict[object, int] = {}
    places = []
    for message in request.messages:
        if message.upload is not None:
            places.append(partition_of_id(message.upload))
            continue
        key = message.fairness_key
        at = known.get(key)
        if at is None:
            at = known[key] = partition_of_key(key, partitions)
        places.append(at)
    return places


def settling_pieces(request: Settling) -> list[Piece]:
    """Return an ack, nack or extend by partition, which the ids of messages tell."""
    return _pieces(request, [partition_of_id(receipt.id) for receipt in request.receipts])


def cancel_pieces(request: Cancel) -> list[Piece]:
    """Return a cancel by partition, which the ids of messages tell."""
    return _pieces(request, map(partition_of_id, request.ids))


def _pieces(request: ItemRequest, places: Iterable[int]) -> list[Piece]:
    rows: dict[int, list[int]] = {}
    for row, at in enumerate(places):
        rows.setdefault(at, []).append(row)
    return [Piece(at, of_rows(for_partition(request, at), some), some) for at, some in sorted(rows.items())]


def for_partition(request: T, at: int) -> T:
    """Return a request about a queue as one about one partition of it."""
    return msgspec.structs.replace(request, queue=partition_name(request.queue, at))  # type: ignore[type-var, attr-defined]  # all have one


def of_rows(request: ItemRequest, rows: Sequence[int]) -> ItemRequest:
    """Return a request for some of its items."""
    if isinstance(request, Enqueue):
        return request.of_rows(rows)
    field = "ids" if isinstance(request, Cancel) else "receipts"
    items = getattr(request, field)
    return msgspec.structs.replace(request, **{field: [items[row] for row in rows]})


# ---------------------------------------------------------------------------------------------------------------- plans


def item_plan(
    request: ItemRequest,
    pieces: list[Piece],
    *,
    isolates: bool = False,
    reports: Callable[[FairlaneError], bool] = lambda _error: False,
) -> Plan[Any]:
    """Ask each partition for its items, and join the results.

    Args:
        request: the whole request.
        pieces: what each partition is asked.
        isolates: whether a piece that is refused is asked again item by item, because one item may be at fault and the
            others belong to callers of their own.
        reports: which errors are reported for each item even if every partition failed with one.

    Raises:
        FairlaneError: every partition refused its piece.
    """
    outcomes = yield pieces
    if len(pieces) == 1:
        # Nothing was divided, so the partition's answer or refusal is that of the whole request.
        if isinstance(outcomes[0], FairlaneError):
            raise outcomes[0]
        return outcomes[0]
    if isolates:
        outcomes = yield from _isolated(request, pieces, outcomes)
    faults = [outcome for outcome in outcomes if isinstance(outcome, FairlaneError)]
    if len(faults) == len(pieces):
        for fault in faults:
            if not reports(fault):
                raise fault
    # Where some partitions did their part, the request as a whole can't fail any more: each item has its own result.
    return _answer_of(
        request, in_order(pieces, [_results_of(request, *pair) for pair in zip(pieces, outcomes, strict=True)])
    )


def _isolated(request: ItemRequest, pieces: list[Piece], outcomes: list[Any]) -> Plan[list[Any]]:
    """Ask again, item by item, for the pieces that were refused because of what is in them."""
    found = []
    for piece, outcome in zip(pieces, outcomes, strict=True):
        if not isinstance(outcome, RequestError) or isinstance(outcome, WHOLE_REFUSALS):
            found.append(outcome)
            continue
        results = []
        for at, row in enumerate(piece.rows):
            one = outcome
            if len(piece.rows) > 1:  # one by one, so that messages stay in order
                (one,) = yield [Piece(piece.at, of_rows(piece.request, [at]), [row])]  # type: ignore[arg-type]  # it has items
            results += _results_of(request, Piece(piece.at, piece.request, [row]), one)
        found.append(_answer_of(request, results))
    return found


def _results_of(request: ItemRequest, piece: Piece, outcome: Any) -> list[Any]:  # noqa: ANN401 - an answer or an error
    if isinstance(outcome, FairlaneError):
        result = EnqueueResult if isinstance(request, Enqueue) else Result
        return [result(error=body_of(outcome))] * len(piece.rows)
    results: list[Any] = outcome.results
    return results


def _answer_of(request: ItemRequest, results: list[Any]) -> EnqueueResults | Results:
    return EnqueueResults(results=results) if isinstance(request, Enqueue) else Results(results=results)


def in_order(pieces: Iterable[Piece], results: Iterable[Sequence[T]]) -> list[T]:
    """Return the result of each item, in the order of the whole request."""
    placed = sorted(
        (pair for piece, some in zip(pieces, results, strict=True) for pair in zip(piece.rows, some, strict=True)),
        key=lambda pair: pair[0],
    )
    return [result for _, result in placed]


class LeaseRound(NamedTuple):
    """What came of asking partitions for messages, one after the other.

    Attributes:
        leased: the messages of the first partition that had any; None if none had.
        answered: the partitions that answered.
        failed: the partitions that could not be asked, and why.
    """

    leased: LeasedMessages | None
    answered: list[int]
    failed: dict[int, FairlaneError]


def lease_plan(
    request: Lease, order: Iterable[int], *, passes_over: Callable[[int, FairlaneError], bool]
) -> Plan[LeaseRound]:
    """Ask partitions in an order, without waiting at any, until one has messages.

    Partitions are asked one after the other. Asking all at once would lease more than the caller wants.

    Args:
        request: the whole request.
        order: the partitions.
        passes_over: whether the next partition is asked after one failed with an error.

    Raises:
        FairlaneError: one failed with an error that concerns the whole request.
    """
    at_once = msgspec.structs.replace(request, wait_ms=0)
    answered, failed = list[int](), dict[int, FairlaneError]()
    for at in order:
        (outcome,) = yield [Piece(at, for_partition(at_once, at), [])]
        if isinstance(outcome, FairlaneError):
            if not passes_over(at, outcome):
                raise outcome
            failed[at] = outcome
            continue
        answered.append(at)
        if outcome.deliveries:
            leased = LeasedMessages(deliveries=of_whole(request.queue, outcome.deliveries))
            return LeaseRound(leased, answered, failed)
    return LeaseRound(None, answered, failed)


def asking_order(made: int, turn: int) -> list[int]:
    """Return the order in which a consumer asks the partitions, which take turns in being first.

    Args:
        made: how many partitions there are.
        turn: one more with each request. Consumers should start at different numbers.
    """
    begin = turn % made
    return [*range(begin, made), *range(begin)]


# ---------------------------------------------------------------------------------------------------------------- names


def of_whole(queue: str, deliveries: Sequence[Delivery]) -> list[Delivery]:
    """Return deliveries of a partition as those of the queue, or dead-letter queue, that the caller named."""
    return [as_of(delivery, queue) for delivery in deliveries]


def as_of(message: M, queue: str) -> M:
    """Return a message of a partition as one of the queue that the caller named."""
    if message.dead is not None:
        dead = msgspec.structs.replace(message.dead, origin=queue_of(message.dead.origin))
        return msgspec.structs.replace(message, queue=queue, dead=dead)
    return message if message.queue == queue else msgspec.structs.replace(message, queue=queue)
