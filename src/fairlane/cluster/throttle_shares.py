"""The parts that open groups have of shared throttles. ``budgets`` explains why they never add up to too much."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from fairlane.broker.frontends.aio import AsyncBroker
from fairlane.cluster.budgets import OPENING_KEY, Step, config_of, owner_step, share_in, steward_step, turn_at
from fairlane.cluster.entries import BUDGET, BoardView, Share, encode
from fairlane.cluster.shared_board import SharedBoard
from fairlane.verbs.keys import EVERY

_STEPS_MAX: Final = 10
"""How many steps are made for one throttle before the next throttle is looked at."""


class ThrottleShares:
    """The parts of the groups that are open here."""

    def __init__(self, board: SharedBoard) -> None:
        self._board = board
        self._openings: dict[str, int] = {}
        self._shares: dict[str, dict[str, Share | None]] = {}

    async def begin(self, group: str, broker: AsyncBroker) -> None:
        """Assign a number to the opening of a group, before any other step."""
        self._openings[group] = int(await broker.get_config(OPENING_KEY) or 0) + 1
        await broker.set_config(OPENING_KEY, str(self._openings[group]))
        self._shares[group] = {}

    async def confine(self, group: str, broker: AsyncBroker, throttles: Iterable[str]) -> None:
        """Limit a group to what it was granted of each throttle, which may be nothing."""
        for throttle in throttles:
            while (step := await self._step(group, throttle, broker, self._board.view)).apply is not None:
                await self._apply(group, throttle, broker, step.apply)

    async def settle(self, group: str, broker: AsyncBroker, throttles: Iterable[str]) -> None:
        """Use what was granted since, and return what other groups should have.

        Raises:
            FairlaneError: the board or the group can't be reached; what was done so far holds.
        """
        for throttle in throttles:
            for _ in range(_STEPS_MAX):
                if await self._step(group, throttle, broker, self._board.view) == Step():
                    break
                view = await self._board.refresh()  # a reading that began after our last change was answered
                step = await self._step(group, throttle, broker, view)
                if step.apply is not None:
                    await self._apply(group, throttle, broker, step.apply)
                elif step.put is not None:
                    name = BUDGET + throttle
                    await self._board.put(name, encode(step.put), version=view.versions.get(name))

    async def _step(self, group: str, throttle: str, broker: AsyncBroker, view: BoardView) -> Step:
        shares = self._shares[group]
        if throttle not in shares:
            shares[throttle] = await _share_of(broker, throttle)
        budget = view.budgets.get(throttle)
        return owner_step(budget, group, opening=self._openings[group], applied=shares[throttle])

    async def _apply(self, group: str, throttle: str, broker: AsyncBroker, share: Share) -> None:
        self._shares[group].pop(throttle, None)  # unknown until the group has answered
        await broker.set_config_many(config_of(throttle, share))
        self._shares[group][throttle] = await _share_of(broker, throttle)

    def forget(self, throttles: Collection[str]) -> None:
        """Forget the parts of all throttles except these; they are read from the groups again."""
        for shares in self._shares.values():
            for throttle in [throttle for throttle in shares if throttle not in throttles]:
                del shares[throttle]


async def _share_of(broker: AsyncBroker, throttle: str) -> Share | None:
    return share_in(await broker.list_config(f"throttle:{throttle}:"), throttle)


async def share_out(board: SharedBoard, throttles: Mapping[str, Share], *, live: Collection[str], now_s: float) -> None:
    """Decide for every throttle what each group should have, and grant what fits; only the steward does this.

    Raises:
        FairlaneError: the board can't be reached.
    """
    view = board.view
    is_changed = False
    for throttle, total in throttles.items():
        budget = steward_step(
            view.budgets.get(throttle),
            total,
            groups=view.groups,
            demand=_demand(view, throttle, live),
            open_groups={group for name in live if name in view.nodes for group in view.nodes[name].load},
            turn=turn_at(total, now_s),
        )
        if budget is not None:
            name = BUDGET + throttle
            await board.put(name, encode(budget), version=view.versions.get(name))
            is_changed = True
    if is_changed:
        await board.refresh()


def _demand(view: BoardView, throttle: str, live: Collection[str]) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for name in live:
        found |= view.nodes[name].demand.get(throttle, {}) if name in view.nodes else {}
    # That one tenant is held up says nothing about the others of a pattern, so groups that need it have equal parts.
    return {group: min(1, count) for group, count in found.items()} if throttle.endswith(EVERY) else found
