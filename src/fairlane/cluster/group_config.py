"""Keeps the config of open groups up to date: the cluster's values, and each group's shares of the throttles."""

from __future__ import annotations

import logging
from collections.abc import Collection

from fairlane.broker.frontends.aio import AsyncBroker
from fairlane.cluster.groups import Groups
from fairlane.cluster.shared_board import SharedBoard
from fairlane.cluster.shared_config import GroupConfig, apply_config
from fairlane.cluster.throttle_shares import ThrottleShares, share_out
from fairlane.errors import FairlaneError

_log = logging.getLogger("fairlane.cluster")


class GroupConfigs:
    """The config of the groups that are open here.

    Attributes:
        wanted: the config that every group should have.
    """

    def __init__(self, board: SharedBoard, groups: Groups, *, share_every_s: float) -> None:
        self._board = board
        self._groups = groups
        self._share_every_s = share_every_s
        self._shares = ThrottleShares(board)
        self._applied: dict[str, GroupConfig] = {}
        self._shared_out_s = float("-inf")
        self.wanted = GroupConfig({}, {})

    async def prepare(self, group: str, broker: AsyncBroker) -> None:
        """Bring a group that was just opened up to date, before it serves anyone.

        Raises:
            FairlaneError: the config could not be written.
        """
        await self._shares.begin(group, broker)
        await self._configure(group, broker)

    async def _configure(self, group: str, broker: AsyncBroker) -> None:
        wanted = self.wanted
        self._shares.forget(wanted.throttles)
        await apply_config(broker, wanted)
        await self._shares.confine(group, broker, wanted.throttles)
        self._applied[group] = wanted

    async def update(self) -> None:
        """Bring all open groups up to date."""
        for group in list(self._groups.names):
            broker = self._groups.group(group)
            if broker is None:
                continue
            try:
                if self._applied.get(group) is not self.wanted:
                    await self._configure(group, broker)
                await self._shares.settle(group, broker, self.wanted.throttles)
            except FairlaneError as error:
                _log.info("The config of group %s could not be updated; retrying. %s", group, error)

    async def share_out(self, *, live: Collection[str], now_s: float) -> None:
        """Divide the throttles among the groups of all nodes, at most every ``share_every_s``; only the steward does.

        Raises:
            FairlaneError: the board can't be reached.
        """
        if now_s - self._shared_out_s >= self._share_every_s:
            self._shared_out_s = now_s
            await share_out(self._board, self.wanted.throttles, live=live, now_s=now_s)
