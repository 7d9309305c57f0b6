"""Carries out what ``reconcile`` decides: opens groups of queues at this node, hands them over, drops those it lost.

Each group has at most one task. When the task ends, the group's state changes and the decision is made again, with the
goals of that moment.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from time import perf_counter
from typing import Any, Final

from fairlane.broker.frontends.aio import AsyncBroker
from fairlane.cluster.groups import RETRY_AFTER_MS, Groups
from fairlane.cluster.reconcile import Goals, GroupAction, GroupEvent, GroupState, next_state, reconcile
from fairlane.errors import FairlaneError, QueueElsewhere, QueueMoving, StoreLocked

OpenGroup = Callable[[str, frozenset[str]], Awaitable[AsyncBroker]]
PrepareGroup = Callable[[str, AsyncBroker], Awaitable[None]]
_PAUSE_S: Final = 0.25
"""How long to wait before the next attempt to open a group. A hand-over usually takes less."""
_log = logging.getLogger("fairlane.cluster")


class Lifecycle:
    """The groups of one node, on the running event loop."""

    def __init__(
        self,
        groups: Groups,
        *,
        opens: OpenGroup,
        prepare: PrepareGroup,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """Start with every group absent.

        Args:
            groups: the open groups, by which callers find their brokers.
            opens: opens the broker of a group, given the processes that are known to have ended; raises ``StoreLocked``
                while another one has the store.
            prepare: brings a broker up to date before it serves anyone.
            on_change: called after a group was opened or closed.
        """
        self._groups = groups
        self._opens = opens
        self._prepare = prepare
        self._on_change = on_change
        self._goals = Goals()
        self._states: dict[str, GroupState] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._attempts: dict[str, tuple[float, str]] = {}
        self._stopped = asyncio.Event()
        self._renamed = 0
        self.takeovers = 0
        """Groups that were opened here after their previous owner had died."""

    @property
    def goals(self) -> Goals:
        """Where groups should be, as was said last."""
        return self._goals

    @property
    def is_busy(self) -> bool:
        """Whether a group is being opened or closed."""
        return bool(self._tasks)

    def pursue(self, goals: Goals) -> None:
        """Set the goals, and start whatever they require. A node that has stopped keeps its last goals: none."""
        if not self._stopped.is_set():
            self._goals = goals
            self.reconcile()

    def reconcile(self) -> None:
        """Notice groups whose brokers answer no more, and start what is to be done now."""
        for group, broker in self._groups.opened():
            if broker.is_lost and self._states.get(group) is GroupState.OPEN:
                self._note(group, GroupEvent.LOSE)
        for action in reconcile(self._states, self._goals):
            self._carry_out(action)

    def reopen(self) -> None:
        """Open all groups again, because this process goes on under another name."""
        self._renamed += 1
        for group, _ in self._groups.opened():
            if self._states.get(group) is GroupState.OPEN:
                self._note(group, GroupEvent.LOSE)
        self.reconcile()

    async def stop(self) -> None:
        """Hand all groups over, and open none any more."""
        self._stopped.set()
        self._goals = Goals(elsewhere=self._goals.elsewhere, homes=self._goals.homes)
        self.reconcile()
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    # --------------------------------------------------------------------------------------------------------- carrying

    def _note(self, group: str, event: GroupEvent) -> None:
        state = next_state(self._states.get(group, GroupState.ABSENT), event)
        if state is GroupState.ABSENT:
            self._states.pop(group, None)
        else:
            self._states[group] = state

    def _carry_out(self, action: GroupAction) -> None:
        group = action.group
        self._note(group, action.event)
        if action.event is GroupEvent.OPEN:
            self._start(group, self._open(group))
            return
        if action.event is GroupEvent.DROP:
            _log.warning("Group %s was taken over, or its store or its session failed.", group, extra={"group": group})
        broker = self._groups.take_out(group)  # at once: no caller is sent to a broker that closes
        self._start(group, self._close(group, broker, address=action.address))

    def _start(self, group: str, work: Coroutine[Any, Any, GroupEvent]) -> None:
        task = asyncio.create_task(self._run(group, work))
        self._tasks[group] = task

    async def _run(self, group: str, work: Coroutine[Any, Any, GroupEvent]) -> None:
        event = await work
        del self._tasks[group]
        self._note(group, event)
        if event is GroupEvent.REFUSED:
            self._start(group, self._pause())
        elif group not in self._goals.mine:
            self._attempts.pop(group, None)
        self.reconcile()

    # --------------------------------------------------------------------------------------------------------- opening

    async def _open(self, group: str) -> GroupEvent:
        begun_s, told = self._attempts.setdefault(group, (perf_counter(), ""))
        try:
            broker = await self._opened(group)
        except Exception as error:  # noqa: BLE001 - the next attempt follows, whatever was wrong with this one
            if not isinstance(error, FairlaneError):
                _log.exception("Unexpected error while opening group %s; retrying.", group)
            elif error.code != told:
                self._attempts[group] = (
                    begun_s,
                    error.code,
                )  # a refusal that repeats is logged once
                level = logging.INFO if isinstance(error, StoreLocked) else logging.WARNING
                _log.log(level, "Group %s can't be opened here yet: %s", group, error, extra={"group": group})
            return GroupEvent.REFUSED
        self._attempts.pop(group, None)
        self._serve(group, broker, took_ms=round((perf_counter() - begun_s) * 1000))
        return GroupEvent.OPENED

    async def _opened(self, group: str) -> AsyncBroker:
        renamed = self._renamed
        broker = await self._opens(group, self._goals.ended)
        try:
            await self._prepare(group, broker)
            self._check_name(renamed)
        except BaseException:
            await _hand_over(broker, group)
            raise
        return broker

    def _check_name(self, renamed: int) -> None:
        if renamed != self._renamed:
            raise QueueMoving("The group was opened under an earlier name of this process.")

    def _serve(self, group: str, broker: AsyncBroker, *, took_ms: int) -> None:
        left_by = self._goals.mine.get(group)
        self._goals = self._goals.reached(group)
        self.takeovers += left_by is not None
        self._groups.add(group, broker)
        origin = f", taken over from dead node {left_by}" if left_by is not None else ""
        _log.info("Group %s is open%s; opening took %d ms.", group, origin, took_ms, extra={"group": group})
        self._on_change()

    async def _pause(self) -> GroupEvent:
        try:
            async with asyncio.timeout(_PAUSE_S):
                await self._stopped.wait()
        except TimeoutError:
            pass
        return GroupEvent.PAUSED

    # --------------------------------------------------------------------------------------------------------- closing

    async def _close(self, group: str, broker: AsyncBroker | None, *, address: str | None) -> GroupEvent:
        if broker is not None:
            await _hand_over(broker, group, address=address)
            _log.info("Group %s is closed here.", group, extra={"group": group})
            self._on_change()
        return GroupEvent.CLOSED


async def _hand_over(broker: AsyncBroker, group: str, *, address: str | None = None) -> None:
    """Close a broker. Callers that wait there are told to ask the node at the address, or to ask again."""
    error: FairlaneError = QueueMoving("The queue moves to another node.", retry_after_ms=RETRY_AFTER_MS)
    if address is not None:
        error = QueueElsewhere("The queue moves to another node.", at=address)
    try:
        await broker.hand_over(error)
    except FairlaneError as fault:  # the store is lost, or belongs to another node: there is nothing left to let go
        _log.info("Released group %s without closing its store: %s", group, fault)
    except Exception:  # noqa: BLE001 - the group has to become absent, or it could never be opened again
        _log.exception("Unexpected error while closing group %s.", group)
