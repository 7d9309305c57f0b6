"""Joins calls for single items that are made in the same pass of the event loop into one request.

Thirty tasks that each acknowledge or enqueue one message then cost one frame, one commit and one answer instead of
thirty, and each still gets its own result. Where the transport allows it, a request is sent without a task.

A program that awaits one call after the other would wait for the end of the pass each time. So an item goes out at once
if the last request had one item, too, and has been answered. Tasks that call in step with each other stay in step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from fairlane.client.retries import is_passing
from fairlane.errors import FairlaneError, RequestError
from fairlane.verbs.verb import AnyAnswer, Reply, Shape
from fairlane.wire.spread import WHOLE_REFUSALS, for_partition, of_rows

G = TypeVar("G", bound=Hashable)
I = TypeVar("I")  # noqa: E741 - an item
R = TypeVar("R")

_ITEMS_MAX = 1_000
_SIZE_MAX = 4 << 20


class Asked(NamedTuple):
    """A request that is ready to be sent."""

    verb: str
    request: Shape
    wait_ms: int = 0
    whole: str | None = None
    """The queue to ask if the partition does not exist any more; None if the request is not about a partition."""
    hops: int = 0
    """How often the queue turned out to be split differently."""

    def of_rows(self, rows: Sequence[int]) -> Asked:
        """Return the same request for some of its items."""
        return self._replace(request=of_rows(self.request, rows))  # type: ignore[arg-type]  # it has items

    def of_partition(self, at: int) -> Asked:
        """Return the whole request for one partition."""
        whole: str = self.request.queue  # type: ignore[attr-defined] # it is about one
        return self._replace(request=for_partition(self.request, at), whole=whole)


class Carrier(Protocol):
    """Sends requests."""

    def submit(self, asked: Asked, reply: Reply) -> bool:
        """Send a request at once, or return False if that is not possible."""

    async def call(self, asked: Asked, *, after: FairlaneError | None) -> AnyAnswer:
        """Return the answer. With an error ``after``, the request was sent before and failed with it."""


class CallBatcher(Generic[G, I, R]):
    """Sends the items of one group that come in one pass of the loop together."""

    def __init__(
        self,
        carrier: Carrier,
        make: Callable[[G, list[I]], Asked],
        read: Callable[[Any], Sequence[R | FairlaneError]],
        places: Callable[[G, list[I]], Sequence[int] | None],
    ) -> None:
        """Prepare.

        Args:
            carrier: sends requests.
            make: returns the request for items of a group.
            read: returns what came of each item, from the answer.
            places: returns the partition that each item goes to; None for a queue that is not known to be split.
        """
        self.carrier = carrier
        self._make = make
        self.read = read
        self._places = places
        self._loop = asyncio.get_running_loop()
        self._groups: dict[G, _Batch[G, I, R]] = {}
        self._is_scheduled = False
        self._last_count = 0
        self._under_way: set[_Batch[G, I, R]] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, group: G, item: I, *, size: int = 0, is_awaited: bool = True) -> asyncio.Future[R]:
        """Return the future result of an item, which is sent with the next request of its group.

        An item that is awaited is sent at once if calls come one after the other.
        """
        if is_awaited and self._last_count == 1 and not self._under_way and not self._groups:
            return self._send_alone(group, item)
        batch = self._groups.get(group)
        reply: asyncio.Future[R] = self._loop.create_future()
        if batch is None:
            batch = self._groups[group] = _Batch(self, group, item, reply)
        else:
            batch.items.append(item)
            batch.replies.append(reply)
        batch.size += size
        if len(batch.items) >= _ITEMS_MAX or batch.size >= _SIZE_MAX:
            self._send(self._groups.pop(group))
        elif not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self.flush)
        return reply

    def _send_alone(self, group: G, item: I) -> asyncio.Future[R]:
        reply: asyncio.Future[R] = self._loop.create_future()
        self._send(_Batch(self, group, item, reply))
        return reply

    def flush(self) -> None:
        """Send what has been collected."""
        self._is_scheduled = False
        groups, self._groups = self._groups, {}
        for batch in groups.values():
            self._send(batch)

    @property
    def is_idle(self) -> bool:
        """Whether everything has its result."""
        return not (self._groups or self._under_way)

    async def drained(self) -> None:
        """Wait until everything collected so far has its result."""
        self.flush()
        while waiting := [reply for batch in self._under_way for reply in batch.replies if not reply.done()]:
            await asyncio.wait(waiting)

    def _send(self, batch: _Batch[G, I, R]) -> None:
        self._last_count = len(batch.items)
        places = self._places(batch.group, batch.items)
        if places is None:
            self._send_to(batch, None)
            return
        parts: dict[int, _Batch[G, I, R]] = {}
        for at, item, reply in zip(places, batch.items, batch.replies, strict=True):
            part = parts.get(at)
            if part is None:
                parts[at] = _Batch(self, batch.group, item, reply)
            else:
                part.items.append(item)
                part.replies.append(reply)
        for at, part in parts.items():
            self._send_to(part, at)

    def _send_to(self, batch: _Batch[G, I, R], at: int | None) -> None:
        self._under_way.add(batch)
        try:
            asked = self._make(batch.group, batch.items)
            batch.asked = asked if at is None else asked.of_partition(at)
            is_sent = self.carrier.submit(batch.asked, batch)
        except RequestError as error:
            batch.set_exception(error)
        else:
            if not is_sent:
                self.start(batch, None)

    def start(self, batch: _Batch[G, I, R], error: FairlaneError | None) -> None:
        """Send a batch in a task, because it has to wait or to be repeated."""
        task = self._loop.create_task(batch.call(error))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

        def give_up(_: asyncio.Future[R]) -> None:
            if all(reply.cancelled() for reply in batch.replies):
                task.cancel()  # no caller waits any more, so a message must not be sent when the server is back

        for reply in batch.replies:
            reply.add_done_callback(give_up)

    def repeat(self, batch: _Batch[G, I, R], error: FairlaneError) -> None:
        """Send a batch again."""
        self._under_way.add(batch)
        self.start(batch, error)

    def done(self, batch: _Batch[G, I, R]) -> None:
        """Forget a batch that has its results."""
        self._under_way.discard(batch)

    def split(self, batch: _Batch[G, I, R]) -> None:
        """Send each item separately, because one of them may be at fault for all."""
        self._under_way.discard(batch)
        for item, reply in zip(batch.items, batch.replies, strict=True):
            self._send(_Batch(self, batch.group, item, reply))


class _Batch(Generic[G, I, R]):
    """Items that are sent together; the batch is the ``Reply`` to its own request."""

    __slots__ = ("_batcher", "_is_repeated", "asked", "group", "items", "replies", "size")

    def __init__(self, batcher: CallBatcher[G, I, R], group: G, item: I, reply: asyncio.Future[R]) -> None:
        self._batcher = batcher
        self._is_repeated = False
        self.group = group
        self.items: list[I] = [item]
        self.replies: list[asyncio.Future[R]] = [reply]
        self.size = 0
        self.asked: Asked | None = None

    def done(self) -> bool:
        return False

    def set_result(self, answer: AnyAnswer, /) -> None:
        self._settle(self._batcher.read(answer))

    def _repeated(self, rows: list[int], error: FairlaneError) -> None:
        """Repeat some items, because a node could not ask their partition."""
        assert self.asked is not None  # noqa: S101 - it is answered
        part = _Batch(self._batcher, self.group, self.items[rows[0]], self.replies[rows[0]])
        part.asked = self.asked.of_rows(rows)
        part.items, part.replies = [self.items[row] for row in rows], [self.replies[row] for row in rows]
        self._batcher.repeat(part, error)

    def set_exception(self, exception: BaseException, /) -> None:
        if isinstance(exception, RequestError) and not isinstance(exception, WHOLE_REFUSALS):
            if len(self.items) > 1:
                self._batcher.split(self)
                return
        elif isinstance(exception, FairlaneError) and not self._is_repeated and self.asked is not None:
            self._is_repeated = True
            self._batcher.start(self, exception)
            return
        self._settle([exception] * len(self.replies))

    async def call(self, error: FairlaneError | None) -> None:
        assert self.asked is not None  # noqa: S101 - it is made before it is sent
        self._is_repeated = True
        try:
            answer = await self._batcher.carrier.call(self.asked, after=error)
        except FairlaneError as refused:
            self.set_exception(refused)
        except BaseException:
            for reply in self.replies:
                reply.cancel()
            self._batcher.done(self)
            raise
        else:
            self.set_result(answer)

    def _settle(self, results: Sequence[R | BaseException]) -> None:
        self._batcher.done(self)
        again: list[int] = []
        for row, (reply, result) in enumerate(zip(self.replies, results, strict=True)):
            if reply.done():
                continue
            if not isinstance(result, BaseException):
                reply.set_result(result)
            elif self._is_repeated or not isinstance(result, FairlaneError) or not is_passing(result):
                reply.set_exception(result)
            else:
                again.append(row)
        if again:
            self._repeated(again, results[again[0]])  # type: ignore[arg-type] # it is one
