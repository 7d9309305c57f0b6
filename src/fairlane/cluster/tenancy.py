"""Tenancy: the groups that this process has open, opened when they shall be here and handed over when they shall not.

Nothing here decides where a group shall be. Each group has at most one task that opens or closes it; what is wanted may
change meanwhile, and is looked at again when the task is done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from typing import Final

from fairlane.broker.frontends.aio import AsyncBroker
from fairlane.cluster.groups import RETRY_AFTER_MS, Groups
from fairlane.errors import FairlaneError, QueueElsewhere, QueueMoving, StoreLocked

Open = Callable[[str], Awaitable[AsyncBroker]]
Prepare = Callable[[str, AsyncBroker], Awaitable[None]]
_PAUSE_S: Final = 0.25
_log = logging.getLogger("fairlane.cluster")


class Tenancy:
    """Opens and closes groups, so that those are open which are wanted."""

    def __init__(
        self, groups: Groups, *, opens: Open, prepare: Prepare, on_change: Callable[[], None] = lambda: None
    ) -> None:
        """Have no group open yet.

        Args:
            groups: where open groups are found.
            opens: opens a group's broker; it raises ``StoreLocked`` while another node has it.
            prepare: is told of a broker before anybody is served by it.
            on_change: called when a group was opened, or let go for others to open it.
        """
        self._groups = groups
        self._opens = opens
        self._prepare = prepare
        self._on_change = on_change
        self._wanted: dict[str, str | None] = {}
        self._addresses: dict[str, str] = {}
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._stopped = asyncio.Event()
        self.takeovers = 0
        """How many groups were opened here whose owner before had died."""

    def want(self, mine: Mapping[str, str | None], addresses: Mapping[str, str]) -> None:
        """Let these groups be open here, and no others.

        Args:
            mine: of each group that shall be here, the dead node that has left it, or None.
            addresses: of each other group, the address of the node where it shall be, as far as that is known.
        """
        self._wanted, self._addresses = dict(mine), dict(addresses)
        for group in [*mine, *self._groups.names]:
            self._look_at(group)

    def _look_at(self, group: str) -> None:
        if group in self._busy or self._stopped.is_set():
            return
        is_open, is_wanted = group in self._groups.names, group in self._wanted
        if is_open == is_wanted:
            return
        task = asyncio.create_task(self._open(group) if is_wanted else self._hand_over(group))
        self._busy[group] = task
        task.add_done_callback(lambda done: self._done(group, done))

    def _done(self, group: str, task: asyncio.Task[None]) -> None:
        del self._busy[group]
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("The group %s: %r", group, error, exc_info=error)
        self._look_at(group)

    @property
    def is_busy(self) -> bool:
        """Whether a group is being opened or closed."""
        return bool(self._busy)

    # --------------------------------------------------------------------------------------------------------- opening

    async def _open(self, group: str) -> None:
        begun_s, told = perf_counter(), ""
        while group in self._wanted and not self._stopped.is_set():
            try:
                await self._try_open(group, begun_s)
            except FairlaneError as error:
                if error.code != told:
                    told = error.code
                    level = logging.INFO if isinstance(error, StoreLocked) else logging.WARNING
                    _log.log(level, "The group %s can't be opened here yet: %s", group, error, extra={"group": group})
                await self._pause()
            else:
                return

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(_PAUSE_S):
                await self._stopped.wait()
        except TimeoutError:
            return

    async def _try_open(self, group: str, begun_s: float) -> None:
        broker = await self._opens(group)
        try:
            await self._prepare(group, broker)
        except BaseException:
            await _closed(broker, group)
            raise
        if group not in self._wanted or self._stopped.is_set():
            await _closed(broker, group)
            return
        left = self._wanted[group]
        self._wanted[group] = None
        self._groups.add(group, broker)
        self.takeovers += left is not None
        took_ms = round((perf_counter() - begun_s) * 1000)
        what = "was taken over from the dead node " + left if left is not None else "is served"
        _log.info("The group %s %s here, %d ms after it was wanted.", group, what, took_ms, extra={"group": group})
        self._on_change()

    # --------------------------------------------------------------------------------------------------------- closing

    async def _hand_over(self, group: str) -> None:
        broker = self._groups.take_out(group)
        if broker is None:
            return
        await _closed(broker, group, at=self._addresses.get(group))
        _log.info("The group %s is served here no more; it goes to another node.", group, extra={"group": group})
        self._on_change()

    def drop_lost(self) -> None:
        """Let go of groups whose brokers answer no more: another node has taken over, or the store has failed.

        Those that shall be here are opened anew.
        """
        for group in list(self._groups.names):
            broker = self._groups.group(group)
            if broker is None or not broker.is_lost or group in self._busy:
                continue
            self._groups.take_out(group)
            _log.warning("The group %s was taken over, or its store has failed.", group, extra={"group": group})
            task = asyncio.create_task(_closed(broker, group))
            self._busy[group] = task
            task.add_done_callback(lambda done, group=group: self._done(group, done))  # type: ignore[misc] # a default

    async def stop(self) -> None:
        """Hand all groups over, and open none any more."""
        self._stopped.set()
        self._wanted = {}
        if self._busy:
            await asyncio.wait(list(self._busy.values()))
        await asyncio.gather(*(self._hand_over(group) for group in list(self._groups.names)))


async def _closed(broker: AsyncBroker, group: str, *, at: str | None = None) -> None:
    """Close a broker, so that whoever waits there asks another node."""
    error: FairlaneError = QueueMoving("The queue goes to another node.", retry_after_ms=RETRY_AFTER_MS)
    if at is not None:
        error = QueueElsewhere("The queue goes to another node.", at=at)
    try:
        await broker.hand_over(error)
    except FairlaneError as told:  # its store is lost, or another's: there is nothing left to let go
        _log.info("The group %s was let go as it was: %s", group, told)
