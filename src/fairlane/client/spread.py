"""Asks the partitions of a split queue: runs the plans of ``wire.spread`` with what the client knows of the split.

The SDK repeats every piece on its own where that is safe. So what was done is never done again, nor reported as failed,
because of another partition that does not answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias, TypeVar

from fairlane.client.batching import Asked
from fairlane.client.retries import is_passing
from fairlane.errors import FairlaneError, QueueNotFound, QueueSplit
from fairlane.model.partitions import Split, partition_of_id
from fairlane.verbs.leases import Forward, Lease, LeasedMessages
from fairlane.verbs.messages import Enqueue
from fairlane.verbs.verb import AnyAnswer, Shape
from fairlane.wire.spread import (
    SETTLING,
    Piece,
    Plan,
    asking_order,
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
FRESH_S: Final = 2.0
"""How long a split is used without asking again."""
KEPT_S: Final = 6.0
"""After this time a split is not used any more."""


async def carried_out(plan: Plan[T], ask: Callable[[Piece], Awaitable[Any]]) -> T:
    """Return the answer that a plan finds, by asking all pieces that it yields at the same time."""
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


async def spread(asked: Asked, known: Known, ask: Ask) -> AnyAnswer:
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


class Known:
    """How a queue is split.

    Attributes:
        split: what a node said.
        is_asked: whether a node is being asked again.
    """

    __slots__ = ("_doubtful", "_since_s", "is_asked", "split")

    def __init__(self, split: Split, since_s: float) -> None:
        self.split = split
        self._since_s = since_s
        self._doubtful: frozenset[int] = frozenset()
        self.is_asked = False

    def is_due(self, now_s: float) -> bool:
        """Return whether it is time to ask again."""
        return now_s - self._since_s >= FRESH_S and not self.is_asked

    def is_over(self, now_s: float) -> bool:
        """Return whether it is too old to be used."""
        return now_s - self._since_s >= KEPT_S

    def renew(self, split: Split, now_s: float) -> None:
        """Replace it with the newer answer of a node."""
        self.split, self._since_s, self.is_asked = split, now_s, False

    def order(self, turn: int) -> list[int]:
        """Return the order in which to ask the partitions: those that did not answer last time come last."""
        return sorted(asking_order(self.split.made, turn), key=self._doubtful.__contains__)

    def doubt(self, at: int) -> None:
        """Ask a partition last from now on."""
        self._doubtful |= {at}

    def trust(self, at: int) -> None:
        """Ask a partition in its normal order again."""
        if self._doubtful:
            self._doubtful -= {at}


class Splits:
    """The queues that are known to be split, by name.

    A node tells a client that follows how a queue is split, and the client then asks the partitions. A split changes
    rarely, and a client that knows an old one loses nothing, so it is relied on for a while. After that the next call
    still uses it, so that no message overtakes those sent before, while the client asks a node in the background.
    """

    def __init__(self) -> None:
        self._known: dict[str, Known] = {}

    def __bool__(self) -> bool:
        return bool(self._known)

    def of(self, queue: str, now_s: float) -> Known | None:
        """Return how a queue is split; None if that is not known."""
        known = self._known.get(queue)
        if known is not None and known.is_over(now_s):
            del self._known[queue]
            return None
        return known

    def note(self, queue: str, error: QueueSplit, now_s: float) -> Known:
        """Remember what a node has said."""
        known, split = self._known.get(queue), split_of(error)
        if known is None:
            known = self._known[queue] = Known(split, now_s)
        else:
            known.renew(split, now_s)
        return known

    def forget(self, queue: str) -> None:
        """Forget how a queue is split."""
        self._known.pop(queue, None)


def split_of(error: QueueSplit) -> Split:
    """Return how a queue is split, from the error that says so."""
    return Split(partitions=error.partitions, made=error.made, by_message=error.by_message)
