"""Sends the requests of a client: repeats them where that is safe, and spreads those for split queues.

A server answers a request for a split queue with ``QueueSplit``. The client notes how the queue is split, and from then
on calls its partitions directly. This knowledge expires after a while, and is refreshed in the background.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, Final

import msgspec

from fairlane.client.batching import Asked
from fairlane.client.retries import Retries, is_passing, is_repeatable, pause_s
from fairlane.client.spread import Known, Splits, is_spread, lease_in_turn, spread
from fairlane.client.transport import Transport
from fairlane.errors import FairlaneError, QueueMoving, QueueNotFound, QueueSplit
from fairlane.model.message import Delivery, NewMessage, Receipt
from fairlane.model.partitions import partition_of_id, queue_of
from fairlane.verbs.leases import Extend, Lease, LeasedMessages, Nack
from fairlane.verbs.messages import Enqueue, EnqueueResults
from fairlane.verbs.methods.conversions import are_all_enqueued, errors_of, receipts_of
from fairlane.verbs.verb import AnyAnswer, Reply, Shape
from fairlane.wire.spread import places_by_message

_HOPS_MAX: Final = 8
"""How often a call follows a change of the split before it gives up."""
_MOVING_MS: Final = 100
_CLOSE_TIMEOUT_S: Final = 1.0


class Calls:
    """Sends the requests of a client. It is the ``Carrier`` of the batchers."""

    def __init__(self, transport: Transport, retries: Retries, *, turn: int) -> None:
        """Send requests over a transport.

        Args:
            transport: carries requests to a broker.
            retries: how long and how often to repeat requests.
            turn: the partition that is asked first for messages. It should differ between clients.
        """
        self._transport = transport
        self._retries = retries
        self._turns = count(turn)
        self._splits = Splits()
        self._background: set[asyncio.Task[None]] = set()

    def submit(self, asked: Asked, reply: Reply) -> bool:
        """Send a request at once, if possible; see ``Carrier``."""
        return self._transport.submit(asked.verb, asked.request, reply, wait_ms=asked.wait_ms)

    async def call(self, asked: Asked, *, after: FairlaneError | None) -> AnyAnswer:
        """Send a request, or repeat it after an error where that is safe; see ``Carrier``."""
        return await (self.ask(asked) if after is None else self._repeat(asked, after))

    async def ask(self, asked: Asked) -> AnyAnswer:
        """Return the answer to a request, repeating it where that is safe.

        Raises Disconnected if the connection was lost, and the outcome is unknown.
        """
        if self._splits and asked.whole is None:
            known = self._known(getattr(asked.request, "queue", ""), asked.request)
            if known is not None:
                return await self._spread(asked, known)
        return await self._send(asked)

    @property
    def has_splits(self) -> bool:
        """Whether a split queue is known."""
        return bool(self._splits)

    async def completed(self, asked: Asked, answer: EnqueueResults) -> EnqueueResults:
        """Return the answer to an enqueue, after repeating what a node could not pass on."""
        return await self._with_repeated(asked, answer)

    def give_back(self, deliveries: list[Delivery]) -> None:
        """Return messages that were leased for a caller that is gone."""
        queue = queue_of(deliveries[0].queue)
        nack = Nack(queue=queue, receipts=receipts_of(deliveries), intent="defer")
        self._begin(self._try(Asked("nack", nack)))

    async def close(self) -> None:
        """Wait briefly for background requests, then cancel them."""
        if self._background:
            await asyncio.wait(self._background, timeout=_CLOSE_TIMEOUT_S)
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)

    # ---------------------------------------------------------------------------------------------------- batches

    def enqueue_places(self, group: tuple[str, int], messages: list[NewMessage]) -> Sequence[int] | None:
        """Return the partition of each message; None if the queue is not known to be split."""
        if not self._splits:
            return None
        request = Enqueue(queue=group[0], messages=messages)
        known = self._known(group[0], request)
        return None if known is None else places_by_message(request, known.split.partitions)

    def ack_places(self, queue: str, receipts: list[Receipt]) -> Sequence[int] | None:
        """Return the partition of each leased message; None if the queue is not known to be split."""
        if not self._splits or self._known(queue, _ABOUT_LEASES) is None:
            return None
        return [partition_of_id(receipt.id) for receipt in receipts]

    # -------------------------------------------------------------------------------------------------- repetition

    async def _send(self, asked: Asked) -> AnyAnswer:
        try:
            return await self._answer(asked)
        except FairlaneError as error:
            return await self._repeat(asked, error)

    async def _answer(self, asked: Asked) -> AnyAnswer:
        answer = await self._transport.call(asked.verb, asked.request, wait_ms=asked.wait_ms)
        if asked.verb == "enqueue" and getattr(self._transport, "is_cluster", False):
            return answer if are_all_enqueued(answer.results) else await self._with_repeated(asked, answer)
        return answer

    async def _with_repeated(self, asked: Asked, answer: EnqueueResults) -> EnqueueResults:
        """Repeat the enqueue of messages whose partition the node could not reach."""
        results, errors = answer.results, errors_of(answer.results)
        rows = [row for row, error in enumerate(errors) if error is not None and is_passing(error)]
        if not rows:
            return answer
        try:
            again = await self._repeat(self._hop(asked.of_rows(rows)), errors[rows[0]])  # type: ignore[arg-type] # rows have errors
        except FairlaneError:
            return answer
        repeated = dict(zip(rows, again.results, strict=True))
        return EnqueueResults(results=[repeated.get(row, result) for row, result in enumerate(results)])

    async def _repeat(self, asked: Asked, error: FairlaneError) -> AnyAnswer:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._retries.patience_s
        waits_s = self._retries.waits_s()
        while True:
            if isinstance(error, QueueSplit):
                return await self._ask_partitions(asked, error)
            if isinstance(error, QueueNotFound) and asked.whole is not None:
                return await self._ask_whole(asked, asked.whole, next(waits_s))
            if not (is_passing(error) and is_repeatable(asked.verb, asked.request, error) and loop.time() < until):
                raise error
            await asyncio.sleep(pause_s(error, next(waits_s)))
            try:
                return await self._answer(asked)
            except FairlaneError as again:
                error = again

    # ------------------------------------------------------------------------------------------------------- splits

    def _known(self, queue: str, request: Shape) -> Known | None:
        """Return how a queue is split, if that is known and matters for a request; refresh it if it is due."""
        now_s = asyncio.get_running_loop().time()
        known = self._splits.of(queue, now_s)
        if known is None or not is_spread(request, known):
            return None
        if known.is_due(now_s):
            known.is_asked = True
            self._begin(self._refresh(queue, known, request))
        return known

    async def _refresh(self, queue: str, known: Known, request: Shape) -> None:
        """Ask how a queue is split with an empty request, which needs no other right than the caller's request."""
        loop = asyncio.get_running_loop()
        probe: Shape = Extend(queue=queue, receipts=[])
        if isinstance(request, Enqueue):
            probe = Enqueue(queue=queue, messages=[])
        try:
            await self._transport.call("enqueue" if isinstance(probe, Enqueue) else "extend", probe)
        except QueueSplit as error:
            self._splits.note(queue, error, loop.time())
        except FairlaneError:
            known.is_asked = False
        else:
            self._splits.forget(queue)

    async def _ask_partitions(self, asked: Asked, error: QueueSplit) -> AnyAnswer:
        """Send a request to the partitions, now that the split is known."""
        queue: str = asked.request.queue  # type: ignore[attr-defined] # the request names a queue
        known = self._splits.note(queue, error, asyncio.get_running_loop().time())
        if not is_spread(asked.request, known):
            raise error
        if known.split.made == 1:  # no longer split
            self._splits.forget(queue)
            return await self._send(self._hop(asked))
        return await self._spread(self._hop(asked), known)

    async def _spread(self, asked: Asked, known: Known) -> AnyAnswer:
        if isinstance(asked.request, Lease):
            return await self._lease(asked, known)
        return await spread(asked, known, self._send)

    async def _lease(self, asked: Asked, known: Known) -> LeasedMessages:
        """Lease from the first partition that has messages. If the call waits, a node waits for all partitions."""
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        leased = await lease_in_turn(asked, known, next(self._turns), self._once)
        if isinstance(leased, LeasedMessages) and (leased.deliveries or not asked.wait_ms):
            return leased
        if isinstance(leased, FairlaneError) and not asked.wait_ms:
            self._splits.forget(asked.request.queue)  # type: ignore[attr-defined] # the request names a queue
            again: LeasedMessages = await self._repeat(asked, leased)
            return again
        wait_ms = max(1, asked.wait_ms - round((loop.time() - begun_s) * 1000))
        request = msgspec.structs.replace(asked.request, wait_ms=wait_ms)
        waited: LeasedMessages = await self._send(asked._replace(request=request, wait_ms=wait_ms))
        return waited

    async def _once(self, asked: Asked) -> AnyAnswer:
        return await self._transport.call(asked.verb, asked.request)

    async def _ask_whole(self, asked: Asked, queue: str, wait_s: float) -> AnyAnswer:
        """Send a request to the whole queue, because its partition no longer exists."""
        self._splits.forget(queue)
        whole = self._hop(asked)._replace(request=_renamed(asked.request, queue), whole=None)
        if whole.hops > 1:
            await asyncio.sleep(wait_s * whole.hops)
        return await self._send(whole)

    def _hop(self, asked: Asked) -> Asked:
        if asked.hops >= _HOPS_MAX:
            raise QueueMoving("The split of the queue is changing.", retry_after_ms=_MOVING_MS)
        return asked._replace(hops=asked.hops + 1)

    # --------------------------------------------------------------------------------------------------- background

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _try(self, asked: Asked) -> None:
        with suppress(FairlaneError):  # otherwise the lease expires
            await self.ask(asked)


_ABOUT_LEASES: Final = Extend(queue="", receipts=[])
"""Stands for any request about leases."""


def _renamed(request: Shape, queue: str) -> Shape:
    return msgspec.structs.replace(request, queue=queue)
