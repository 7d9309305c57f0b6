"""Gathers what is asked one by one in the same pass of the event loop into one request.

Thirty tasks that each ack or enqueue one message then cost one frame, one commit and one answer instead of thirty,
and each still gets a result of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

from fairlead.errors import Closed, FairleadError, QueueNotFound, RequestError

G = TypeVar("G", bound=Hashable)
I = TypeVar("I")  # noqa: E741 - an item
R = TypeVar("R")

_ITEMS_MAX = 1_000
_SIZE_MAX = 4 << 20


class Gatherer(Generic[G, I, R]):
    """Items of one group that come in one pass of the loop travel together."""

    def __init__(self, send: Callable[[G, list[I]], Awaitable[Sequence[R | FairleadError]]]) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._groups: dict[G, tuple[list[I], list[asyncio.Future[R]]]] = {}
        self._sizes: dict[G, int] = {}
        self._is_scheduled = False
        self._under_way: set[asyncio.Task[None]] = set()

    def add(self, group: G, item: I, *, size: int = 0) -> asyncio.Future[R]:
        """Return the future result of an item, which goes with the next request of its group."""
        items, replies = self._groups.setdefault(group, ([], []))
        reply: asyncio.Future[R] = self._loop.create_future()
        items.append(item)
        replies.append(reply)
        if size:
            self._sizes[group] = self._sizes.get(group, 0) + size
        if len(items) >= _ITEMS_MAX or (size and self._sizes[group] >= _SIZE_MAX):
            self._dispatch(group)
        elif not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self.flush)
        return reply

    def flush(self) -> None:
        """Send what has been gathered."""
        self._is_scheduled = False
        for group in list(self._groups):
            self._dispatch(group)

    async def drained(self) -> None:
        """Wait until everything gathered so far has its result."""
        self.flush()
        while self._under_way:
            await asyncio.wait(self._under_way)

    def _dispatch(self, group: G) -> None:
        items, replies = self._groups.pop(group)
        self._sizes.pop(group, None)
        task = self._loop.create_task(self._ask(group, items, replies))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _ask(self, group: G, items: list[I], replies: list[asyncio.Future[R]]) -> None:
        try:
            results = await self._send(group, items)
        except RequestError as error:
            if len(items) == 1 or isinstance(error, Closed | QueueNotFound):
                _settle(replies, [error] * len(replies))
            else:  # one of them may be at fault for all: let each stand for itself
                await asyncio.gather(
                    *(self._ask(group, [item], [reply]) for item, reply in zip(items, replies, strict=True))
                )
        except FairleadError as error:
            _settle(replies, [error] * len(replies))
        except BaseException:
            for reply in replies:
                reply.cancel()
            raise
        else:
            _settle(replies, results)


def _settle(replies: list[asyncio.Future[R]], results: Sequence[R | FairleadError]) -> None:
    for reply, result in zip(replies, results, strict=True):
        if reply.done():
            continue
        if isinstance(result, FairleadError):
            reply.set_exception(result)
        else:
            reply.set_result(result)
