"""Verbs about messages of a queue that is split: asked of the partitions that have these messages, or will have them.

What one partition refuses is told of each item that is its own; the others are done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from fairlane.cluster.gateway import WholeQueue, WholeVerb
from fairlane.cluster.partitions.lease import lease
from fairlane.cluster.partitions.operations import OPERATING
from fairlane.errors import FairlaneError, QueueNotFound
from fairlane.model.message import MessageView
from fairlane.model.partitions import partition_name, partition_of_id
from fairlane.model.views import Explained
from fairlane.verbs.errors import ErrorBody, body_of
from fairlane.verbs.leases import SetState
from fairlane.verbs.messages import (
    Cancel,
    Enqueue,
    EnqueueResult,
    EnqueueResults,
    Explain,
    GetMessage,
    GetState,
    MessageList,
    Peek,
    Result,
    Results,
)
from fairlane.verbs.verb import Request
from fairlane.wire.spreading import (
    Piece,
    Settling,
    as_of,
    cancel_pieces,
    enqueue_pieces,
    for_partition,
    in_order,
    settling_pieces,
)

T = TypeVar("T")


# ---------------------------------------------------------------------------------------------------------- many items


async def _enqueue(whole: WholeQueue, request: Enqueue) -> EnqueueResults:
    """Enqueue each message where its fairness key belongs, in order within each partition."""
    places = whole.gateway.keys.places(whole.queue, request.messages, whole.split.partitions)
    pieces = enqueue_pieces(request, places)
    outcomes = await _outcomes(whole, pieces)
    results = _together(pieces, outcomes, lambda error: EnqueueResult(error=error))
    gone = [piece for piece, outcome in zip(pieces, outcomes, strict=True) if isinstance(outcome, QueueNotFound)]
    if gone and whole.gateway.split_of(whole.queue) != whole.split:
        rows = sorted(row for piece in gone for row in piece.rows)
        for row, result in zip(rows, await _enqueued_anew(whole, request, rows), strict=True):
            results[row] = result
    return EnqueueResults(results=results)


async def _enqueued_anew(whole: WholeQueue, request: Enqueue, rows: list[int]) -> list[EnqueueResult]:
    """Enqueue some messages of a request as the queue is split by now; the others are in it already."""
    rest = msgspec.structs.replace(request, messages=[request.messages[row] for row in rows])
    try:
        answer: Any = await whole.gateway.call(rest, whole.caller, whole.context)
    except FairlaneError as error:
        return [EnqueueResult(error=body_of(error))] * len(rows)
    results: list[EnqueueResult] = answer.results
    return results


async def _settle(whole: WholeQueue, request: Settling) -> Results:
    """Ack, nack or extend each message where it is."""
    return await _results(whole, settling_pieces(request), request)


async def _cancel(whole: WholeQueue, request: Cancel) -> Results:
    """Take out each message where it is."""
    return await _results(whole, cancel_pieces(request), request)


async def _results(whole: WholeQueue, pieces: list[Piece], request: Request[Any]) -> Results:
    known = [_known(whole, piece) for piece in pieces]
    if not known:
        return Results(results=(await whole.ask(for_partition(request, 0))).results)
    outcomes = await _outcomes(whole, known)
    return Results(results=_together(known, outcomes, lambda error: Result(error=error)))


def _known(whole: WholeQueue, piece: Piece) -> Piece:
    """Return a piece; one for a partition that there is not, for the first, which knows of no such message either."""
    if piece.at < whole.split.made:
        return piece
    first = partition_name(whole.queue, 0)
    return Piece(0, msgspec.structs.replace(piece.request, queue=first), piece.rows)


async def _outcomes(whole: WholeQueue, pieces: Sequence[Piece]) -> list[Any]:
    """Return what came of each piece: an answer or an error.

    Raises:
        FairlaneError: all have been refused.
    """
    if len(pieces) == 1:
        return [await whole.ask(pieces[0].request)]
    outcomes = await asyncio.gather(*(whole.ask(piece.request) for piece in pieces), return_exceptions=True)
    faults = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    for fault in faults:
        if not isinstance(fault, FairlaneError) or len(faults) == len(pieces):
            raise fault
    return outcomes


def _together(pieces: Sequence[Piece], outcomes: Sequence[Any], refused: Callable[[ErrorBody], T]) -> list[T]:
    """Return what came of each item, in the order of the whole request."""
    results = [
        [refused(body_of(outcome))] * len(piece.rows) if isinstance(outcome, FairlaneError) else outcome.results
        for piece, outcome in zip(pieces, outcomes, strict=True)
    ]
    return in_order(pieces, results)


# ---------------------------------------------------------------------------------------------------------- one message


async def _of_message(whole: WholeQueue, request: GetMessage | Explain | GetState) -> Any:  # noqa: ANN401 - by verb
    """Look at a message where it is."""
    return await _at_message(whole, request, request.id)


async def _set_state(whole: WholeQueue, request: SetState) -> Any:  # noqa: ANN401 - by verb
    """Write workflow state where the message is."""
    return await _at_message(whole, request, request.receipt.id)


async def _at_message(whole: WholeQueue, request: Request[Any], message_id: str) -> Any:  # noqa: ANN401 - by verb
    at = partition_of_id(message_id)
    answer = await whole.ask(for_partition(request, at if at < whole.split.made else 0))
    if isinstance(answer, MessageView):
        return as_of(answer, whole.queue)
    return msgspec.structs.replace(answer, queue=whole.queue) if isinstance(answer, Explained) else answer


async def _peek(whole: WholeQueue, request: Peek) -> MessageList:
    """Look at messages, partition by partition: ids of a later one are greater.

    What one has with bodies may have ended early, because it was large enough; so the next is asked another time.
    """
    begin = 0 if request.after is None else partition_of_id(request.after)
    found: list[MessageView] = []
    for at in range(begin, whole.split.made):
        after = request.after if at == begin else None
        part = msgspec.structs.replace(request, after=after, count=request.count - len(found))
        try:
            found += (await whole.ask(for_partition(part, at))).messages
        except QueueNotFound:
            if not whole.may_be_gone(at):
                raise
        if len(found) >= request.count or (found and request.with_body):
            break
    return MessageList(messages=[as_of(view, whole.queue) for view in found])


SPREAD: Final[Mapping[str, WholeVerb]] = {
    "enqueue": _enqueue,
    "lease": lease,
    "ack": _settle,
    "nack": _settle,
    "extend": _settle,
    "cancel": _cancel,
    "get": _of_message,
    "explain": _of_message,
    "get_state": _of_message,
    "set_state": _set_state,
    "peek": _peek,
    **OPERATING,
}
"""The verbs that can be asked of a queue as a whole when it is split."""
