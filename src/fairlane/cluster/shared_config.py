"""The config of a cluster: kept on the board, and copied from there into every open group."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from fairlane.broker.frontends.aio import AsyncBroker
from fairlane.broker.handlers.checks import require
from fairlane.cluster.budgets import totals
from fairlane.cluster.entries import CONFIG, BoardView, ConfigEntry, Share, encode
from fairlane.cluster.groups import Groups
from fairlane.cluster.shared_board import SharedBoard
from fairlane.cluster.throttle_shares import ThrottleShares, share_out
from fairlane.core.checks import text_fault
from fairlane.core.decide.config import value_fault
from fairlane.core.throttling import throttle_names
from fairlane.errors import FairlaneError, StoreFailed
from fairlane.model import limits
from fairlane.verbs.config import PRIVATE_PREFIX
from fairlane.verbs.keys import EVERY

OWN_PREFIX: Final = "cluster:"
_OWN: Final = f"Config keys that start with {OWN_PREFIX} are reserved for the cluster; choose another key."
_CHANGES_MAX: Final = 1_000
"""How many values are changed in one commit of a group."""
_log = logging.getLogger("fairlane.cluster")


class SharedConfig:
    """The config that the verbs for config and for API keys read and write. Every value is a separate entry."""

    def __init__(self, board: SharedBoard, *, is_joined: Callable[[], bool], on_set: Callable[[], None]) -> None:
        self._board = board
        self._is_joined = is_joined
        self._on_set = on_set

    def check(self) -> None:
        """Refuse to answer while no other node can know that this node lives."""
        if not self._is_joined():
            raise StoreFailed("The node can't reach the board of its cluster.")

    async def list_config(self, prefix: str = "") -> dict[str, str]:
        """Return the config values whose keys start with a prefix, as they were read last."""
        config = self._board.view.config
        return {key: value for key, value in sorted(config.items()) if key.startswith(prefix)}

    async def set_config_many(self, values: Mapping[str, str | None], *, by: str | None = None) -> None:  # noqa: ARG002
        """Set config values, or remove them with None. All are checked first; then each is set separately.

        Raises:
            InvalidArgument: a value is invalid, and nothing was changed.
            StoreFailed: some values may have been changed.
        """
        for key, value in values.items():
            require(text_fault("A config key", key, most=limits.CONFIG_KEY_LENGTH_MAX))
            require(None if value is None else value_fault(key, value))
            require(_OWN if key.startswith(OWN_PREFIX) else None)
            require(pattern_fault(key) if value is not None else None)
        for key, value in values.items():
            entry = None if value is None else encode(ConfigEntry(value=value))
            await self._board.edit(CONFIG + key, lambda _view, entry=entry: entry)  # type: ignore[misc] # a default
        self._on_set()


def pattern_fault(key: str) -> str | None:
    """Return why a pattern of throttles can't be set for a cluster, None for any other config key.

    Groups divide each throttle by what waits for it. A pattern stands for any number of throttles, and dividing each of
    them would take as many entries on the board as there are tenants.
    """
    if not any(name.endswith(EVERY) for name in throttle_names((key,))):
        return None
    return (
        f"A cluster has no patterns of throttles such as {key!r}. "
        "Set key_rate in the policy of the queue, or rate:QUEUE:KEY: they limit every tenant by itself."
    )


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The config that every group should have.

    Attributes:
        values: the values that are the same in all groups.
        throttles: the total of each throttle; each group has a part of it.
    """

    values: Mapping[str, str]
    throttles: Mapping[str, Share]


def config_of_groups(view: BoardView) -> GroupConfig:
    """Return the config of groups, without what is private to servers, such as API keys."""
    throttles = totals(view.config)
    shared = _keys_of(throttles)
    values = {key: value for key, value in view.config.items() if not key.startswith(PRIVATE_PREFIX)}
    return GroupConfig({key: value for key, value in values.items() if key not in shared}, throttles)


def _keys_of(throttles: Iterable[str]) -> set[str]:
    return {f"throttle:{name}:{setting}" for name in throttles for setting in ("rate", "burst")}


async def apply_config(broker: AsyncBroker, wanted: GroupConfig) -> None:
    """Bring the config of a broker up to date in as few commits as possible. Its parts of throttles stay as they are.

    Raises:
        FairlaneError: not all of it could be written.
    """
    present, kept = await broker.list_config(), _keys_of(wanted.throttles)
    values = wanted.values
    changes: dict[str, str | None] = {key: value for key, value in values.items() if present.get(key) != value}
    gone = [key for key in present if key not in values and key not in kept and not key.startswith(OWN_PREFIX)]
    changes |= dict.fromkeys(gone)
    pending = iter(changes.items())
    while part := dict(islice(pending, _CHANGES_MAX)):
        await broker.set_config_many(part)


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
        for group, broker in self._groups.opened():
            if self._groups.group(group) is not broker:
                continue  # it was closed while others were updated
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
