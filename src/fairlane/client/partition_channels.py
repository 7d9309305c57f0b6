"""A stream from a split queue: one channel at each partition.

Every partition has a task that opens its channel, and opens it again whenever it ends, at the node that has the
partition by then. So a partition that does not answer delays no other. Another task asks regularly, and whenever a
channel has ended, how the queue is split.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

import msgspec

from fairlane.client.retries import Retries, is_passing, pause_s
from fairlane.client.spread import FRESH_S, split_of
from fairlane.client.transport import Channel
from fairlane.client.transport.protocol import Sink
from fairlane.errors import Closed, Disconnected, FairlaneError, QueueNotFound, QueueSplit
from fairlane.model.message import Delivery
from fairlane.model.partitions import Split, partition_name, partition_of_id
from fairlane.verbs.leases import Extend, Nack
from fairlane.verbs.methods.conversions import receipts_of
from fairlane.verbs.verb import Shape
from fairlane.wire.frames import Consume
from fairlane.wire.spread import of_whole

_WHOLE: Final = Split(partitions=1, made=1)
_LASTING_S: Final = 1.0
"""A channel that lasted longer than this is opened again at once."""
_GIVING_BACK_S: Final = 5.0
_LOOK_AGAIN_S: Final = 0.1
"""The least time between two requests for how a queue is split."""


class Opening(Protocol):
    """Opens channels and sends requests."""

    async def open_one(self, request: Consume, sink: Sink) -> Channel:
        """Open a channel at one queue or partition."""

    async def call(self, verb: str, request: Shape) -> Any:  # noqa: ANN401 - depends on the verb
        """Return the answer to a request."""


class PartitionChannels:
    """The channels of one stream; see ``Channel``.

    Credit and handlers are divided among them, with at least one for each.
    """

    def __init__(self, transport: Opening, request: Consume, sink: Sink, *, retries: Retries) -> None:
        self._transport = transport
        self._request = request
        self._sink = sink
        self._retries = retries
        self._loop = asyncio.get_running_loop()
        self._made = 0
        self._parts: dict[int, _Part] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._begun: asyncio.Future[None] = self._loop.create_future()
        self._doubted = asyncio.Event()
        self._cut_off_s = self._loop.time()
        self._is_over = False

    async def begin(self, split: Split) -> None:
        """Open the channels, and return as soon as one of them is open; the others go on trying."""
        self._divide(split)
        self._start(self._watch())
        try:
            await asyncio.shield(self._begun)
        except BaseException:
            await self.stop(())
            raise

    async def stop(self, unseen: Sequence[Delivery]) -> None:
        """Close all of them; see ``Channel``."""
        self._is_over = True
        if not self._begun.done():
            self._begun.cancel()
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await asyncio.gather(*(self._stop_part(part, unseen) for part in self._parts.values()))
        unseen = (*unseen, *(delivery for part in self._parts.values() for delivery in part.late))
        places = {partition_of_id(delivery.id) for delivery in unseen}
        await asyncio.gather(*(self._give_back(at, _within(unseen, at), patience_s=_GIVING_BACK_S) for at in places))

    async def widen(self, handlers: int) -> None:
        """Change the number of handlers, which is divided among the channels; see ``Channel``."""
        self._request = msgspec.structs.replace(self._request, handlers=handlers)
        for part in list(self._parts.values()):
            if part.channel is not None:
                await part.channel.widen(self._part_of(handlers, part.at))

    async def _stop_part(self, part: _Part, unseen: Sequence[Delivery]) -> None:
        channel, part.channel = part.channel, None
        if channel is not None:
            with suppress(FairlaneError):  # then its messages have gone back already, or the unseen ones follow below
                await channel.stop((*_within(unseen, part.at), *part.late))

    # ------------------------------------------------------------------------------------------------- each partition

    async def _run(self, part: _Part) -> None:
        """Keep a channel open at a partition for as long as the partition exists."""
        waits_s = self._retries.waits_s()
        while part.at < self._made and not self._is_over:
            try:
                part.channel = await self._transport.open_one(self._request_at(part.at), part.begin())
            except FairlaneError as refused:
                self._refused(refused)
                await asyncio.sleep(pause_s(refused, next(waits_s)))
                continue
            opened_s = self._loop.time()
            if not self._begun.done():
                self._begun.set_result(None)
            error = await part.ended_by
            part.channel = None
            self._cut_off_s = self._loop.time()
            self._ended(part, error)
            if self._cut_off_s - opened_s > _LASTING_S:
                waits_s = self._retries.waits_s()
            else:
                await asyncio.sleep(pause_s(error, next(waits_s)))
        del self._parts[part.at]

    def _refused(self, error: FairlaneError) -> None:
        if isinstance(error, QueueNotFound | QueueSplit):  # it is split differently
            self._doubted.set()
        elif not is_passing(error):
            self._fail(error)
        is_cut_off = not any(part.channel for part in self._parts.values())
        if is_cut_off and self._loop.time() - self._cut_off_s > self._retries.patience_s:
            self._fail(error)

    def _ended(self, part: _Part, error: FairlaneError) -> None:
        if isinstance(error, Disconnected | Closed):
            unseen = self._sink.withdraw(lambda message_id: partition_of_id(message_id) == part.at)
            self._start(self._give_back(part.at, unseen, patience_s=self._retries.patience_s))
        elif isinstance(error, QueueSplit):
            self._divide(split_of(error))
        elif not isinstance(error, QueueNotFound) and not is_passing(error):
            self._fail(error)
        self._doubted.set()

    def deliver(self, part: _Part, deliveries: list[Delivery]) -> None:
        """Hand on what came from a partition."""
        if self._is_over:
            part.late += deliveries
        else:
            self._sink.deliver(of_whole(self._request.queue, deliveries))

    def cancelled(self, ids: Sequence[str]) -> None:
        """Hand on that messages were cancelled."""
        if not self._is_over:
            self._sink.cancelled(ids)

    async def _give_back(self, at: int, unseen: Sequence[Delivery], *, patience_s: float) -> None:
        """Give back unseen messages whose leases may have outlived their channel."""
        if not unseen:
            return
        queue, until = partition_name(self._request.queue, at), self._loop.time() + patience_s
        nack = Nack(queue=queue, receipts=receipts_of(unseen), intent="defer")
        for wait_s in self._retries.waits_s():
            try:
                await self._transport.call("nack", nack)
            except FairlaneError as error:
                if is_passing(error) and self._loop.time() < until:
                    await asyncio.sleep(pause_s(error, wait_s))
                    continue
            return  # it is done, or its lease ends by itself

    def _request_at(self, at: int) -> Consume:
        asked, name = self._request, partition_name(self._request.queue, at)
        handlers = None if asked.handlers is None else self._part_of(asked.handlers, at)
        return msgspec.structs.replace(asked, queue=name, credit=self._part_of(asked.credit, at), handlers=handlers)

    def _part_of(self, number: int, at: int) -> int:
        whole, rest = divmod(number, self._made)
        return max(1, whole + (at < rest))

    # --------------------------------------------------------------------------------------------------- the whole

    async def _watch(self) -> None:
        """Ask how the queue is split, again and again."""
        while not self._is_over:
            with suppress(TimeoutError):
                async with asyncio.timeout(FRESH_S):
                    await self._doubted.wait()
            self._doubted.clear()
            try:
                await self._transport.call("extend", Extend(queue=self._request.queue, receipts=[]))
            except QueueSplit as error:
                self._divide(split_of(error))
            except FairlaneError as error:
                if not is_passing(error) and not isinstance(error, Closed):
                    self._fail(error)
            else:
                self._divide(_WHOLE)
            await asyncio.sleep(_LOOK_AGAIN_S)

    def _divide(self, split: Split) -> None:
        """Open a channel at each partition. Channels at removed partitions have ended, or will."""
        self._made = split.made
        for at in range(split.made):
            if at not in self._parts and not self._is_over:
                part = self._parts[at] = _Part(self, at)
                self._start(self._run(part))

    def _fail(self, error: FairlaneError) -> None:
        """End the stream with an error. Open channels stay until they are stopped."""
        if self._is_over:
            return
        self._is_over = True
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        if self._begun.done():
            self._sink.ended(error)
        else:
            self._begun.set_exception(error)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Part:
    """One partition, which is the sink of its channel."""

    def __init__(self, owner: PartitionChannels, at: int) -> None:
        self._owner = owner
        self.at = at
        self.channel: Channel | None = None
        self.late: list[Delivery] = []
        self.ended_by: asyncio.Future[FairlaneError] = asyncio.get_running_loop().create_future()

    def begin(self) -> _Part:
        """Start over, and return the sink for a new channel."""
        self.ended_by = asyncio.get_running_loop().create_future()
        return self

    def deliver(self, deliveries: list[Delivery]) -> None:
        self._owner.deliver(self, deliveries)

    def ended(self, error: FairlaneError) -> None:
        if not self.ended_by.done():
            self.ended_by.set_result(error)

    def cancelled(self, ids: Sequence[str]) -> None:
        self._owner.cancelled(ids)

    def withdraw(self, _: Callable[[str], bool]) -> list[Delivery]:
        return []


def _within(deliveries: Iterable[Delivery], at: int) -> list[Delivery]:
    return [delivery for delivery in deliveries if partition_of_id(delivery.id) == at]
