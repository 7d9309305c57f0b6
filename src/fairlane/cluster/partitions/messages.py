"""Verbs about messages of a split queue: the partitions that have these messages, or will have them, are asked.

If one partition refuses, each of its items gets that error, and the others are done.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec

from fairlane.client.spread import carried_out
from fairlane.cluster.gateway import WholeQueue, WholeVerb
from fairlane.cluster.partitions.lease import lease
from fairlane.cluster.partitions.operations import OPERATING, each
from fairlane.errors import FairlaneError, QueueNotFound
from fairlane.model.message import MessageView, NewMessage
from fairlane.model.partitions import partition_name, partition_of_id
from fairlane.model.uploads import UploadView
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
    Results,
)
from fairlane.verbs.status import ReportProgress
from fairlane.verbs.uploads import BeginUpload, DropUpload, ListUploads, ReadPayload, UploadList, UploadPiece
from fairlane.verbs.verb import Request
from fairlane.wire.spread import (
    Piece,
    Settling,
    as_of,
    cancel_pieces,
    enqueue_pieces,
    for_partition,
    item_plan,
    of_rows,
    settling_pieces,
)

AboutOne: TypeAlias = GetMessage | Explain | GetState | UploadPiece | DropUpload | ReadPayload

# ---------------------------------------------------------------------------------------------------------- many items


async def _enqueue(whole: WholeQueue, request: Enqueue) -> EnqueueResults:
    """Enqueue each message where its fairness key belongs, in order within each partition."""
    places = await whole.gateway.keys.places(whole.queue, request.messages, whole.split.partitions)
    answer: EnqueueResults = await _spread(whole, request, enqueue_pieces(request, places))
    gone = [row for row, result in enumerate(answer.results) if result.error is not None and _is_gone(result.error)]
    if not gone or whole.gateway.split_of(whole.queue) == whole.split:
        return answer
    results = list(answer.results)
    for row, result in zip(gone, await _enqueue_again(whole, request, gone), strict=True):
        results[row] = result
    return EnqueueResults(results=results)


def _is_gone(error: ErrorBody) -> bool:
    return error.code == QueueNotFound.code


async def _enqueue_again(whole: WholeQueue, request: Enqueue, rows: list[int]) -> list[EnqueueResult]:
    """Enqueue the messages whose partition is gone as the queue is split by now. The others are in it already."""
    try:
        answer: Any = await whole.gateway.call(of_rows(request, rows), whole.caller, whole.context)
    except FairlaneError as error:
        return [EnqueueResult(error=body_of(error))] * len(rows)
    results: list[EnqueueResult] = answer.results
    return results


async def _settle(whole: WholeQueue, request: Settling) -> Results:
    """Acknowledge, return or extend each message where it is."""
    return await _results(whole, request, settling_pieces(request))


async def _cancel(whole: WholeQueue, request: Cancel) -> Results:
    """Remove each message where it is."""
    return await _results(whole, request, cancel_pieces(request))


async def _results(whole: WholeQueue, request: Settling | Cancel, pieces: list[Piece]) -> Results:
    if not pieces:
        pieces = [Piece(0, for_partition(request, 0), [])]  # the first partition checks the request
    answer: Results = await _spread(whole, request, [_known(whole, piece) for piece in pieces])
    return answer


async def _spread(whole: WholeQueue, request: Enqueue | Settling | Cancel, pieces: list[Piece]) -> Any:  # noqa: ANN401 - by verb
    return await carried_out(item_plan(request, pieces), lambda piece: whole.ask(piece.request))


def _known(whole: WholeQueue, piece: Piece) -> Piece:
    """Return a piece for a partition that exists: the first knows no message of one that does not, either."""
    if piece.at < whole.split.made:
        return piece
    first = partition_name(whole.queue, 0)
    return Piece(0, msgspec.structs.replace(piece.request, queue=first), piece.rows)


# ---------------------------------------------------------------------------------------------------------- one message


async def _of_message(whole: WholeQueue, request: AboutOne) -> Any:  # noqa: ANN401 - by verb
    """Return something about a message or an upload from the partition that has it."""
    return await _at_message(whole, request, request.id)


async def _begin_upload(whole: WholeQueue, request: BeginUpload) -> UploadView:
    """Begin an upload at the partition that its message will go to."""
    message = NewMessage(fairness_key=request.fairness_key)
    (at,) = await whole.gateway.keys.places(whole.queue, [message], whole.split.partitions)
    begun: UploadView = await whole.ask(for_partition(request, at))
    return msgspec.structs.replace(begun, queue=whole.queue)


async def _uploads(whole: WholeQueue, request: ListUploads) -> UploadList:
    """Return the open uploads of all partitions."""
    found = [view for answer in (await each(whole, request)).values() for view in answer.uploads]
    return UploadList(uploads=[msgspec.structs.replace(view, queue=whole.queue) for view in found])


async def _under_lease(whole: WholeQueue, request: SetState | ReportProgress) -> Any:  # noqa: ANN401 - by verb
    """Write workflow state, or report progress, at the partition that has the message."""
    return await _at_message(whole, request, request.receipt.id)


async def _at_message(whole: WholeQueue, request: Request[Any], message_id: str) -> Any:  # noqa: ANN401 - by verb
    at = partition_of_id(message_id)
    answer = await whole.ask(for_partition(request, at if at < whole.split.made else 0))
    if isinstance(answer, MessageView):
        return as_of(answer, whole.queue)
    return msgspec.structs.replace(answer, queue=whole.queue) if isinstance(answer, Explained) else answer


async def _peek(whole: WholeQueue, request: Peek) -> MessageList:
    """Return messages partition by partition, because ids of a later partition are greater.

    A partition may end its answer early because the payloads are large enough. Then the caller asks again for the rest.
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
    "set_state": _under_lease,
    "report_progress": _under_lease,
    "peek": _peek,
    "begin_upload": _begin_upload,
    "upload_piece": _of_message,
    "drop_upload": _of_message,
    "read_payload": _of_message,
    "uploads": _uploads,
    **OPERATING,
}
"""The verbs that can be asked of a split queue as a whole."""
