"""Leasing from a split queue: from whichever partition has messages, or has them first.

A wait is a wait at every partition at once. When one has messages the other waits end, and what they had leased in the
same moment goes back: a broker of this node takes it back itself, and other nodes are told to withdraw it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

import msgspec

from fairlane.client.spread import carried_out
from fairlane.cluster.gateway import WholeQueue
from fairlane.cluster.routing import PATIENCE_S
from fairlane.errors import FairlaneError, QueueNotFound, UnavailableError
from fairlane.model.message import Delivery
from fairlane.model.partitions import partition_name
from fairlane.verbs.leases import Lease, LeasedMessages
from fairlane.wire.spread import LeaseRound, asking_order, for_partition, lease_plan, of_whole

_PAUSE_S: Final = 0.1
"""The pause before a partition is asked again that is moving."""


async def lease(whole: WholeQueue, request: Lease) -> LeasedMessages:
    """Lease from the first partition that has messages; with a wait, from the first that gets some.

    Raises:
        FairlaneError: no partition had messages, and some could not be asked.
    """
    whole.gateway.turn += 1
    order = asking_order(whole.split.made, whole.gateway.turn)
    # The first round passes over partitions that are moving: another may have messages right now.
    found = await _round(whole, request, order, patience_s=0.0)
    leased = found.leased
    if leased is None and request.wait_ms:
        leased = await _Wait(whole, request, order).first()
    elif leased is None and (busy := _busy(found)):
        found = await _round(whole, request, list(busy), patience_s=PATIENCE_S)
        leased = found.leased
        for error in _busy(found).values() if leased is None else ():
            raise error
    return leased if leased is not None else LeasedMessages(deliveries=[])


async def _round(whole: WholeQueue, request: Lease, order: list[int], *, patience_s: float) -> LeaseRound:
    """Ask one partition after the other."""

    def passes_over(at: int, error: FairlaneError) -> bool:
        return isinstance(error, UnavailableError) or (isinstance(error, QueueNotFound) and whole.may_be_gone(at))

    plan = lease_plan(request, order, passes_over=passes_over)
    return await carried_out(plan, lambda piece: whole.ask(piece.request, patience_s=patience_s))


def _busy(found: LeaseRound) -> dict[int, FairlaneError]:
    """Return the partitions that could not be asked for the moment."""
    return {at: error for at, error in found.failed.items() if isinstance(error, UnavailableError)}


class _Wait:
    """A wait at all partitions at once."""

    def __init__(self, whole: WholeQueue, request: Lease, order: list[int]) -> None:
        self._whole = whole
        self._request = request
        self._order = order
        self._loop = asyncio.get_running_loop()
        self._end_s = self._loop.time() + request.wait_ms / 1000
        self._tasks: dict[asyncio.Task[LeasedMessages], int] = {}
        self._fault: BaseException | None = None

    async def first(self) -> LeasedMessages | None:
        """Return the messages that came first; None if none came in time.

        Raises:
            FairlaneError: a partition refused for good.
        """
        try:
            for at in self._order:
                self._begin(at)
            while self._tasks:
                done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
                leased = [pair for task in done if (pair := self._ended(task)) is not None]
                if leased:
                    return self._taken(leased)
                if self._fault is not None:
                    raise self._fault
            return None
        finally:  # nothing is awaited from here on: a cancellation in between would lose messages
            for task, at in self._tasks.items():
                task.cancel()
                task.add_done_callback(partial(self._came_late, at))

    def _begin(self, at: int, *, pause_s: float = 0.0) -> None:
        self._tasks[asyncio.create_task(self._ask(at, pause_s))] = at

    async def _ask(self, at: int, pause_s: float) -> LeasedMessages:
        if pause_s:
            await asyncio.sleep(pause_s)
        left_ms = max(0, round((self._end_s - self._loop.time()) * 1000))
        request = msgspec.structs.replace(for_partition(self._request, at), wait_ms=left_ms)
        leased: LeasedMessages = await self._whole.ask(request)
        return leased

    def _ended(self, task: asyncio.Task[LeasedMessages]) -> tuple[int, LeasedMessages] | None:
        """Return the messages of a partition, if it had any; if it was moving, ask it again after a pause."""
        at, error = self._tasks.pop(task), task.exception()
        if isinstance(error, UnavailableError):
            if self._loop.time() + _PAUSE_S < self._end_s:
                self._begin(at, pause_s=_PAUSE_S)
            return None
        if error is not None and not (isinstance(error, QueueNotFound) and self._whole.may_be_gone(at)):
            self._fault = error
        return (at, task.result()) if error is None and task.result().deliveries else None

    def _taken(self, leased: list[tuple[int, LeasedMessages]]) -> LeasedMessages:
        """Return as many messages as were asked for. Several partitions may have had some: the rest goes back."""
        count, taken = self._request.count, list[Delivery]()
        for at, some in leased:
            fitting = count - len(taken)
            taken += some.deliveries[:fitting]
            self._give_back(at, some.deliveries[fitting:])
        return LeasedMessages(deliveries=of_whole(self._whole.queue, taken))

    def _came_late(self, at: int, task: asyncio.Task[LeasedMessages]) -> None:
        if not task.cancelled() and task.exception() is None:
            self._give_back(at, task.result().deliveries)

    def _give_back(self, at: int, deliveries: list[Delivery]) -> None:
        whole = self._whole
        whole.gateway.give_back(partition_name(whole.queue, at), deliveries, whole.caller)
