"""Handles of jobs: what ``send`` returns."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any, Generic, TypeVar, cast

from fairlane.client.aio import AsyncClient
from fairlane.model.status import StatusView
from fairlane.tasks.homes import AppHomes

R_co = TypeVar("R_co", covariant=True)
WAIT_S = 10.0
"""How long ``result`` waits by default, and how long the server waits for one change for ``watch``."""
_ANSWER_S = 5.0
"""How long the server may take to answer, beyond the time that a call waits there."""


class _JobFields:
    """What both kinds of handles know."""

    __slots__ = ("_decode", "_homes", "id", "is_repeat", "queue", "task")

    def __init__(
        self,
        homes: AppHomes,
        *,
        job_id: str,
        queue: str,
        task: str,
        decode: Callable[[bytes], Any],
        is_repeat: bool = False,
    ) -> None:
        self._homes = homes
        self._decode = decode
        self.id = job_id
        self.queue = queue
        self.task = task
        self.is_repeat = is_repeat

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self.task}>"

    async def _status(self, client: AsyncClient) -> StatusView:
        return await client.with_timeout(_ANSWER_S).status(self.id, queue=self.queue)

    async def _changed(self, client: AsyncClient, after: str) -> StatusView:
        """Return the status as soon as it is another one than ``after``, or after a while."""
        limited = client.with_timeout(WAIT_S + _ANSWER_S)
        return await limited.status(self.id, queue=self.queue, wait_ms=round(WAIT_S * 1000), after=after)

    async def _cancel(self, client: AsyncClient, reason: str) -> None:
        await client.with_timeout(_ANSWER_S).cancel(self.queue, self.id, reason=reason)

    async def _result(self, client: AsyncClient, wait_s: float) -> object:
        limited = client.with_timeout(wait_s + _ANSWER_S)
        result = await limited.result(self.id, queue=self.queue, wait_ms=round(wait_s * 1000))
        return None if result is None else self._decode(result)


class JobHandle(_JobFields, Generic[R_co]):
    """A job that was sent, for asyncio.

    Attributes:
        id: the id of its message.
        queue: the queue of its task.
        task: the name of its task.
        is_repeat: whether nothing was sent, because it repeats this job: by its ``unique`` key or its ``dedup_id``.
    """

    __slots__ = ()

    async def status(self) -> StatusView:
        """Return where the job is in its life: waiting and why, running and where, done, dead or cancelled.

        Raises:
            MessageNotFound: the job ended longer ago than its end is kept.
        """
        return await self._homes.call(self._status)

    async def watch(self) -> AsyncIterator[StatusView]:
        """Yield the status now and whenever it changes, progress included, until the job has ended. It does not poll.

        Raises:
            MessageNotFound: the job ended longer ago than its end is kept.
            CallTimedOut: no server answered in time.
        """
        view, told = await self.status(), ""
        while True:
            if view.version != told:
                yield view
            if view.is_final:
                return
            told = view.version
            view = await self._homes.call(partial(self._changed, after=told))

    async def result(self, timeout: float = WAIT_S) -> R_co:  # noqa: ASYNC109 - the server waits, not the caller
        """Return what the task returned, waiting up to ``timeout`` seconds for the end of the job, without polling.

        It is None if the task returned None, or if results are not kept; see ``result_ttl``.

        Raises:
            WaitTimedOut: the job has not ended yet.
            MessageCancelled, MessageDead, DeadlinePassed, Dropped: it ended without a result.
        """
        return cast("R_co", await self._homes.call(lambda client: self._result(client, timeout)))

    async def cancel(self, reason: str = "") -> None:
        """Cancel the job, whether it waits or runs. An async task is cancelled, a sync one is told.

        Raises:
            MessageNotFound, MessageCancelled: it has ended already.
        """
        await self._homes.call(lambda client: self._cancel(client, reason))


class ThreadJobHandle(_JobFields, Generic[R_co]):
    """A job that was sent, for threads; see ``JobHandle``."""

    __slots__ = ()

    def status(self) -> StatusView:
        """Return where the job is in its life; see ``JobHandle``."""
        return self._homes.call_sync(self._status)

    def watch(self) -> Iterator[StatusView]:
        """Yield the status now and whenever it changes, until the job has ended; see ``JobHandle``."""
        view, told = self.status(), ""
        while True:
            if view.version != told:
                yield view
            if view.is_final:
                return
            told = view.version
            view = self._homes.call_sync(partial(self._changed, after=told))

    def result(self, timeout: float = WAIT_S) -> R_co:
        """Return what the task returned, waiting for the end of the job; see ``JobHandle``."""
        return cast("R_co", self._homes.call_sync(lambda client: self._result(client, timeout)))

    def cancel(self, reason: str = "") -> None:
        """Cancel the job, whether it waits or runs; see ``JobHandle``."""
        self._homes.call_sync(lambda client: self._cancel(client, reason))
