"""Asks the partitions of a queue that is split, each for its part, and makes one answer of what they say.

Every part is repeated on its own where that is safe, so what was done is never done again, nor reported as failed,
because of another partition that does not answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from fairlane.client.gathering import OF_ALL, Asked
from fairlane.client.retrying import is_passing
from fairlane.client.splits import Known
from fairlane.errors import FairlaneError, QueueNotFound, RequestError
from fairlane.model.partitions import partition_of_id
from fairlane.verbs.errors import body_of
from fairlane.verbs.leases import Forward, Lease, LeasedMessages
from fairlane.verbs.messages import Enqueue, EnqueueResult, EnqueueResults, Result, Results
from fairlane.verbs.verb import Shape
from fairlane.wire.spreading import (
    SETTLING,
    Piece,
    enqueue_pieces,
    for_partition,
    in_order,
    of_whole,
    places_by_message,
    settling_pieces,
)

SPREAD: Final = (Enqueue, Lease, Forward, *SETTLING)
"""What clients ask the partitions themselves; all else a node asks them."""
Ask: TypeAlias = Callable[[Asked], Awaitable[Any]]


def is_spread(request: Shape, known: Known) -> bool:
    """Tell whether we know enough to ask the partitions ourselves."""
    return isinstance(request, SPREAD) and (known.split.by_message or not isinstance(request, Enqueue))


async def spread(asked: Asked, known: Known, ask: Ask) -> Any:  # noqa: ANN401 - depends on the verb
    """Return the answer to anything but a lease; ``ask`` repeats what may be repeated.

    Raises:
        FairlaneError: nothing of it was done.
    """
    request = asked.request
    if isinstance(request, Forward):
        return await ask(asked.of_partition(partition_of_id(request.receipt.id)))
    pieces = _pieces(request, known)
    if len(pieces) == 1:
        return await ask(asked.of_partition(pieces[0].at))
    answers = await asyncio.gather(*(_results(asked, piece, ask) for piece in pieces), return_exceptions=True)
    return _joined(request, pieces, answers)


def _pieces(request: Shape, known: Known) -> list[Piece]:
    if isinstance(request, Enqueue):
        return enqueue_pieces(request, places_by_message(request, known.split.partitions))
    assert isinstance(request, SETTLING)  # noqa: S101 - there is nothing else
    return settling_pieces(request)


async def _results(asked: Asked, piece: Piece, ask: Ask) -> list[Any]:
    """Return what came of each item of a piece; where one may be at fault for all, each is asked for on its own."""
    part = asked._replace(request=piece.request, whole=asked.request.queue)  # type: ignore[attr-defined] # it has one
    try:
        results: list[Any] = (await ask(part)).results
    except OF_ALL:
        raise
    except RequestError as error:
        if len(piece.rows) == 1:
            return [_failed(asked.request, error)]
    else:
        return results
    return [await _alone(asked, part, row, ask) for row in range(len(piece.rows))]


async def _alone(asked: Asked, part: Asked, row: int, ask: Ask) -> Any:  # noqa: ANN401 - depends on the verb
    try:
        return (await ask(part.of_rows([row]))).results[0]
    except FairlaneError as error:
        return _failed(asked.request, error)


def _failed(request: Shape, error: FairlaneError) -> EnqueueResult | Result:
    return (EnqueueResult if isinstance(request, Enqueue) else Result)(error=body_of(error))


def _joined(request: Shape, pieces: Sequence[Piece], answers: Sequence[list[Any] | BaseException]) -> Any:  # noqa: ANN401
    """Return one answer; if nothing was done anywhere, and waiting does not mend it, what is in the way is raised."""
    faults = [answer for answer in answers if isinstance(answer, BaseException)]
    for fault in faults:
        if not isinstance(fault, FairlaneError) or (len(faults) == len(pieces) and not is_passing(fault)):
            raise fault
    results = [
        [_failed(request, answer)] * len(piece.rows) if isinstance(answer, FairlaneError) else answer
        for piece, answer in zip(pieces, answers, strict=True)
    ]
    placed: list[Any] = in_order(pieces, results)  # type: ignore[arg-type] # what is not ours was raised
    return EnqueueResults(results=placed) if isinstance(request, Enqueue) else Results(results=placed)


async def lease_in_turn(asked: Asked, known: Known, turn: int, call: Ask) -> LeasedMessages | FairlaneError:
    """Return what the first partition has that has anything, without waiting; an error if none has answered.

    Args:
        asked: a lease of the whole queue.
        known: how it is split.
        turn: which of the partitions is asked first.
        call: asks once.

    Raises:
        FairlaneError: it is refused, for all of them.
    """
    request = asked.request
    assert isinstance(request, Lease)  # noqa: S101 - it is told
    at_once = msgspec.structs.replace(request, wait_ms=0)
    failed: FairlaneError | None = None
    is_answered = False
    for at in known.order(turn):
        try:
            leased: LeasedMessages = await call(asked._replace(request=for_partition(at_once, at), wait_ms=0))
        except FairlaneError as error:
            if not is_passing(error) and not isinstance(error, QueueNotFound):
                raise
            known.doubt(at)
            failed = error
            continue
        known.trust(at)
        is_answered = True
        if leased.deliveries:
            return LeasedMessages(deliveries=of_whole(request.queue, leased.deliveries))
    return failed if failed is not None and not is_answered else LeasedMessages(deliveries=[])
