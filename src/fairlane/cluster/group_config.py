"""What the groups that are open here have of the cluster's config: the values, and their shares of throttles."""

from __future__ import annotations

import logging
from collections.abc import Collection

from fairlane.broker.frontends.aio import AsyncBroker
from fairlane.cluster.groups import Groups
from fairlane.cluster.shared_board import Posting
from fairlane.cluster.shared_config import GroupConfig, apply_config
from fairlane.cluster.throttle_shares import Spending, share_out
from fairlane.errors import FairlaneError

_log = logging.getLogger("fairlane.cluster")


class Upkeep:
    """Keeps the config of groups up to date.

    Attributes:
        wanted: what groups shall have.
    """

    def __init__(self, posting: Posting, groups: Groups, *, share_every_s: float) -> None:
        self._posting = posting
        self._groups = groups
        self._share_every_s = share_every_s
        self._spending = Spending(posting)
        self._applied: dict[str, GroupConfig] = {}
        self._shared_out_s = float("-inf")
        self.wanted = GroupConfig({}, {})

    async def prepare(self, group: str, broker: AsyncBroker) -> None:
        """Let a group that was opened have everything before it serves anybody.

        Raises:
            FairlaneError: it could not.
        """
        await self._spending.begin(group, broker)
        await self._configure(group, broker)

    async def _configure(self, group: str, broker: AsyncBroker) -> None:
        wanted = self.wanted
        self._spending.forget(wanted.throttles)
        await apply_config(broker, wanted)
        await self._spending.confine(group, broker, wanted.throttles)
        self._applied[group] = wanted

    async def step(self) -> None:
        """Let all groups that are open here have what is wanted now."""
        for group in list(self._groups.names):
            broker = self._groups.group(group)
            if broker is None:
                continue
            try:
                if self._applied.get(group) is not self.wanted:
                    await self._configure(group, broker)
                await self._spending.settle(group, broker, self.wanted.throttles)
            except FairlaneError as error:
                _log.info("The config of group %s is not up to date: %s", group, error)

    async def share_out(self, *, live: Collection[str], now_s: float) -> None:
        """Say what groups everywhere shall have of the throttles, now and then; for the steward alone.

        Raises:
            FairlaneError: the board is out of reach.
        """
        if now_s - self._shared_out_s >= self._share_every_s:
            self._shared_out_s = now_s
            await share_out(self._posting, self.wanted.throttles, live=live, now_s=now_s)
