"""Runs the plans of ``wire.spread``: asks the partitions of a split queue, and returns one answer.

The SDK repeats every piece on its own where that is safe. So what was done is never done again, nor reported as failed,
because of another partition that does not answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias, TypeVar

from fairlane.client.batching import Asked
from fairlane.client.retries import is_passing
from fairlane.client.splits import Known
from fairlane.errors import FairlaneError, QueueNotFound
from fairlane.model.partitions import partition_of_id
from fairlane.verbs.leases import Forward, Lease, LeasedMessages
from fairlane.verbs.messages import Enqueue
from fairlane.verbs.verb import Shape
from fairlane.wire.spread import (
    SETTLING,
    Piece,
    Plan,
    enqueue_pieces,
    item_plan,
    lease_plan,
    places_by_message,
    settling_pieces,
)

T = TypeVar("T")
SPREAD: Final = (Enqueue, Lease, Forward, *SETTLING)
"""What clients ask the partitions themselves. A node asks them everything else."""
Ask: TypeAlias = Callable[[Asked], Awaitable[Any]]


async def carried_out(plan: Plan[T], ask: Callable[[Piece], Awaitable[Any]]) -> T:
    """Return the answer that a plan finds, by asking all pieces that it yields at the same time.

    Raises:
        FairlaneError: the plan raised it.
    """
    pieces = next(plan)
    while True:
        outcomes = await _outcomes(pieces, ask)
        try:
            pieces = plan.send(outcomes)
        except StopIteration as end:
            answer: T = end.value
            return answer


async def _outcomes(pieces: list[Piece], ask: Callable[[Piece], Awaitable[Any]]) -> list[Any]:
    if len(pieces) == 1:  # without a task
        try:
            return [await ask(pieces[0])]
        except FairlaneError as error:
            return [error]
    outcomes = await asyncio.gather(*map(ask, pieces), return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException) and not isinstance(outcome, FairlaneError):
            raise outcome
    return outcomes


def is_spread(request: Shape, known: Known) -> bool:
    """Return whether the client knows enough to ask the partitions itself."""
    return isinstance(request, SPREAD) and (known.split.by_message or not isinstance(request, Enqueue))


async def spread(asked: Asked, known: Known, ask: Ask) -> Any:  # noqa: ANN401 - depends on the verb
    """Return the answer to anything but a lease; ``ask`` repeats what may be repeated.

    Raises:
        FairlaneError: no part of it was done.
    """
    request = asked.request
    if isinstance(request, Forward):
        return await ask(asked.of_partition(partition_of_id(request.receipt.id)))
    assert isinstance(request, (Enqueue, *SETTLING))  # noqa: S101 - SPREAD has nothing else
    if isinstance(request, Enqueue):
        pieces = enqueue_pieces(request, places_by_message(request, known.split.partitions))
    else:
        pieces = settling_pieces(request)
    plan = item_plan(request, pieces, isolates=True, reports=is_passing)
    return await carried_out(plan, lambda piece: ask(asked._replace(request=piece.request, whole=request.queue)))


async def lease_in_turn(asked: Asked, known: Known, turn: int, call: Ask) -> LeasedMessages | FairlaneError:
    """Return the messages of the first partition that has any, without waiting; an error if none has answered.

    Args:
        asked: a lease of the whole queue.
        known: how it is split.
        turn: which of the partitions is asked first.
        call: asks once.

    Raises:
        FairlaneError: all of it is refused.
    """
    request = asked.request
    assert isinstance(request, Lease)  # noqa: S101 - the caller has checked
    plan = lease_plan(request, known.order(turn), passes_over=lambda _at, error: _may_pass(error))
    found = await carried_out(plan, lambda piece: call(asked._replace(request=piece.request, wait_ms=0)))
    for at in found.failed:
        known.doubt(at)
    for at in found.answered:
        known.trust(at)
    if found.leased is not None:
        return found.leased
    if found.failed and not found.answered:
        return list(found.failed.values())[-1]
    return LeasedMessages(deliveries=[])


def _may_pass(error: FairlaneError) -> bool:
    return is_passing(error) or isinstance(error, QueueNotFound)
