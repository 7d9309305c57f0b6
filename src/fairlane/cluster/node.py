"""A node: it shows that it lives, watches who else does, and has those groups open whose home it is.

All that nodes know of each other is on the board. A node that can't reach the board keeps its groups: it is their
stores that tell whether it still owns them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from fairlane.broker.frontends.aio import AsyncBroker
from fairlane.cluster import placement
from fairlane.cluster.board_changes import Changes
from fairlane.cluster.cluster_view import picture_of
from fairlane.cluster.entries import GROUP, NODE, BoardView, NodeEntry, Share, encode, groups_by_queue
from fairlane.cluster.group_config import Upkeep
from fairlane.cluster.groups import Groups, Place
from fairlane.cluster.heartbeat import OwnEntry
from fairlane.cluster.liveness import Watch
from fairlane.cluster.load import Loads
from fairlane.cluster.shared_board import Posting
from fairlane.cluster.shared_config import SharedConfig, config_of_groups
from fairlane.cluster.tenancy import Open, Tenancy
from fairlane.errors import FairlaneError, StoreFailed
from fairlane.model.views import ClusterView
from fairlane.ports.board import Board

HEARTBEAT_TIMEOUT_MS: Final = 5_000
GROUPS_MAX: Final = 32
MILLIONTHS: Final = 1_000_000
_BEATS: Final = 5
"""A node shows so many times within a lease that it lives."""
_BALANCE_S: Final = 5.0
"""So long lies between two moves that only make the load more even."""
_LOOK_S: Final = 0.05
_SHARE_S: Final = 0.5
"""So long lies, at least, between two looks at who needs how much of the throttles."""
_MOVES_MAX: Final = 4
"""So many groups of drained nodes are on their way at a time."""
_FORGET_MS: Final = 600_000
"""A node that was silent for so long is no longer on the board."""
_log = logging.getLogger("fairlane.cluster")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTerms:
    """Who a node is.

    Attributes:
        name: what it is called, as no other node is.
        address: where others reach its HTTP door.
        heartbeat_timeout_ms: a node that shows no sign of life for so long is dead to the others.
        groups_max: how many groups new queues make, before they join those there are.
        version: the version of Fairlane.
    """

    name: str
    address: str
    heartbeat_timeout_ms: int = HEARTBEAT_TIMEOUT_MS
    groups_max: int = GROUPS_MAX
    version: str = ""


class Node:
    """One node of a cluster, on the running event loop."""

    def __init__(
        self,
        board: Board,
        groups: Groups,
        *,
        opens: Open,
        terms: NodeTerms,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.terms = terms
        self.groups = groups
        self._monotonic = monotonic
        self.posting = Posting(board, monotonic=monotonic)
        self._every_s = terms.heartbeat_timeout_ms / 1000 / _BEATS
        self._upkeep = Upkeep(self.posting, groups, share_every_s=min(_SHARE_S, self._every_s))
        self.tenancy = Tenancy(groups, opens=opens, prepare=self._upkeep.prepare, on_change=self._tell_change)
        self.changes = Changes(self.posting, groups_max=terms.groups_max, live=lambda: self.live)
        self.config = SharedConfig(self.posting, is_joined=lambda: self.is_joined, on_set=self.note)
        self._watch = Watch(terms.heartbeat_timeout_ms)
        self._loads = Loads(groups)
        self._own = OwnEntry(
            self.posting,
            name=terms.name,
            describe=self._describe,
            on_usurped=self.tenancy.stop,
            monotonic=monotonic,
        )
        self._balanced_s = monotonic()
        self._noted: BoardView | None = None
        self._homes: dict[str, str | None] = {}
        self._checks: dict[str, asyncio.Task[None]] = {}
        self._telling: set[asyncio.Task[None]] = set()
        self._running: list[asyncio.Task[None]] = []
        self.grpc: str | None = None
        """Where others reach its gRPC door, if it has one."""
        self.on_config: Callable[[Mapping[str, str]], None] = lambda _config: None
        """Told of the config whenever it has changed."""
        self.usurped = self._own.usurped
        """Set when another process has joined under the same name: this one is to end."""

    # ------------------------------------------------------------------------------------------------------- beginning

    async def join(self) -> None:
        """Appear on the board, and begin to do what it says.

        Raises:
            StoreFailed: the board can't be reached.
        """
        view = await self.posting.look()
        self._own.begin(view)
        while not self._own.has_appeared:  # one of the same name may be about to end
            await self._own.show_life()
        await self.posting.look()
        self.note()
        self.groups.config = self.config
        self._running = [asyncio.create_task(self._run(each)) for each in (self._keep_beating, self._step)]

    @property
    def live(self) -> frozenset[str]:
        """The nodes that live, this one among them."""
        return self._watch.live(self._ms(self.posting.read_s)) | {self.terms.name}

    @property
    def is_joined(self) -> bool:
        """Whether others have heard of this node within a lease."""
        return self._monotonic() - self._own.beaten_s < self.terms.heartbeat_timeout_ms / 1000

    @property
    def is_draining(self) -> bool:
        """Whether the groups of this node shall go elsewhere."""
        return self._own.is_draining

    @staticmethod
    def _ms(at_s: float) -> int:
        return int(at_s * 1000)

    # ------------------------------------------------------------------------------------------------------------ beats

    async def _run(self, do: Callable[[], Awaitable[None]]) -> None:
        """Do something again and again, whatever becomes of it."""
        told = ""
        while not self.usurped.is_set():
            try:
                await do()
                told = ""
            except FairlaneError as error:
                if error.code != told:
                    _log.warning("The board is out of reach; what is open here stays so. %s", error)
                told = error.code
                await asyncio.sleep(self._every_s)
            except Exception:  # noqa: BLE001 - the next time has to come all the same
                _log.exception("The node did something wrong.")
                await asyncio.sleep(self._every_s)

    async def _keep_beating(self) -> None:
        """Show a sign of life, and wait until it is time for the next. Nothing else may hold it up."""
        self._check_groups()
        await self._own.show_life()
        await asyncio.sleep(max(0.0, self._own.beaten_s + self._every_s - self._monotonic()))

    async def _step(self) -> None:
        """Read the board, do what is to be done, and wait until something has changed."""
        await self.posting.look()
        self.note()
        await self._decide()
        if placement.steward(self.posting.view.nodes, self.live) == self.terms.name:
            await self._upkeep.share_out(live=self.live, now_s=self._monotonic())
        await self._upkeep.step()
        await self.posting.wait(self._every_s)

    def _tell_change(self) -> None:
        """Let others know at once what is open here."""
        if not self.usurped.is_set() and self._running and not self._telling:
            task = asyncio.create_task(self._tell())
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    async def _tell(self) -> None:
        try:
            await self._own.show_life()
        except FairlaneError:
            return  # the next beat tells it

    def _describe(self, beat: int, incarnation: str) -> NodeEntry:
        return NodeEntry(
            address=self.terms.address,
            beat=beat,
            incarnation=incarnation,
            is_draining=self.is_draining,
            load=self._loads.rates(self._monotonic()),
            demand=self._loads.demand(),
            grpc=self.grpc,
            version=self.terms.version,
            takeovers=self.tenancy.takeovers,
        )

    def _check_groups(self) -> None:
        """Let each group find out whether it still has its store, even if nobody asks for anything."""
        for group in list(self.groups.names):
            broker = self.groups.group(group)
            if broker is not None and group not in self._checks:
                task = self._checks[group] = asyncio.create_task(self._check_group(broker))
                task.add_done_callback(lambda _, group=group: self._checks.pop(group, None))  # type: ignore[misc] # default

    async def _check_group(self, broker: AsyncBroker) -> None:
        try:
            await broker.get_config("")
        except FairlaneError:
            self.tenancy.drop_lost()

    # ---------------------------------------------------------------------------------------------------------- acting

    def note(self) -> None:
        """Take note of the board as it was read last, and let groups be open accordingly."""
        view, now_ms = self.posting.view, self._ms(self.posting.read_s)
        self._watch.note(view.nodes, now_ms)
        own, live = self.terms.name, self.live
        homes = {name: entry.home for name, entry in view.groups.items()}
        addresses = {name: entry.address for name, entry in view.nodes.items() if name in live}
        self.groups.move(
            {
                queue: Place(group, homes[group], addresses.get(homes[group] or ""))
                for queue, group in groups_by_queue(view.groups).items()
            },
            {queue: entry.split for queue, entry in view.splits.items()},
        )
        mine: dict[str, str | None] = {}
        for group in (group for group, home in homes.items() if home == own):
            left = self._homes.get(group, own)
            mine[group] = left if left in view.nodes and left not in live else None  # one that is gone has let go
        self._homes |= {group: home for group, home in homes.items() if home != own or group in self.groups.names}
        elsewhere = {group: addresses[home] for group, home in homes.items() if home in addresses and home != own}
        self.tenancy.want(mine, elsewhere)
        self.tenancy.drop_lost()
        if self._noted is None or self._noted.config != view.config:
            self._upkeep.wanted = config_of_groups(view)
            self.on_config(view.config)
        self._noted = view

    async def _decide(self) -> None:
        view, live = self.posting.view, self.live
        moves = self._next_moves(placement.homeless(view.groups, view.nodes, live), view)
        if not moves and self._is_time_to_balance(view, live):
            move = placement.balancing(view.groups, view.nodes, live)
            if move is not None:
                self._balanced_s = self._monotonic()
                moves = [move]
        for move in moves:
            name = GROUP + move.group
            if await self.posting.put(name, encode(move.entry), version=view.versions[name]) is not None:
                before = view.groups[move.group].home
                extra = {"group": move.group, "node": move.home}
                _log.info("The group %s goes from node %s to %s.", move.group, before, move.home, extra=extra)
        if moves:
            await self.posting.look()
            self.note()
        await self._forget_dead(view)

    @staticmethod
    def _next_moves(moves: list[placement.Move], view: BoardView) -> list[placement.Move]:
        """Return the moves to make now: all that are urgent, and of the others a few at a time."""
        on_the_way = sum(
            entry.home in view.nodes and name not in view.nodes[entry.home].load
            for name, entry in view.groups.items()
            if entry.home is not None
        )
        others = [move for move in moves if not move.is_urgent]
        return [move for move in moves if move.is_urgent] + others[: max(0, _MOVES_MAX - on_the_way)]

    def _is_time_to_balance(self, view: BoardView, live: frozenset[str]) -> bool:
        is_steward = placement.steward(view.nodes, live) == self.terms.name
        return is_steward and self._monotonic() - self._balanced_s >= _BALANCE_S

    async def _forget_dead(self, view: BoardView) -> None:
        now_ms = self._ms(self.posting.read_s)
        for name in view.nodes:
            if name != self.terms.name and (self._watch.silent_ms(name, now_ms) or 0) > _FORGET_MS:
                await self.posting.remove(NODE + name, version=view.versions[NODE + name])

    # ---------------------------------------------------------------------------------------------- what others ask for

    def throttles(self) -> Mapping[str, Share]:
        """Return what each throttle has for all groups: millionths of a token a second, and tokens saved up."""
        return self._upkeep.wanted.throttles

    async def inform(self) -> None:
        """Read the board now.

        Raises:
            StoreFailed: it can't be read.
        """
        await self.posting.refresh()
        self.note()

    def seen(self) -> ClusterView:
        """Return the cluster as this node sees it."""
        now_ms = self._ms(self._monotonic())

        def silent_ms(node: str) -> int:
            return self._watch.silent_ms(node, now_ms) or 0

        view, own = self.posting.view, self.terms.name
        return picture_of(view, own=own, live=self.live, silent_ms=silent_ms, open_here=self.groups.names)

    # ---------------------------------------------------------------------------------------------------------- ending

    async def drain(self, *, grace_s: float) -> None:
        """Let other nodes take over everything that is open here; return when they shall have, or after the grace."""
        self._own.is_draining = True
        try:
            async with asyncio.timeout(grace_s):
                await self.changes.drain_node(self.terms.name, is_draining=True)
                while (self.groups.names or self.tenancy.is_busy) and self._has_heirs():
                    await self.groups.changed(_LOOK_S)
        except TimeoutError:
            _log.warning("The grace is over; %d groups are still here.", len(self.groups.names))
        except StoreFailed as error:
            _log.warning("The node can't be drained: %s", error)

    def _has_heirs(self) -> bool:
        nodes = self.posting.view.nodes
        return any(name in nodes and not nodes[name].is_draining for name in self.live if name != self.terms.name)

    async def leave(self) -> None:
        """Close what is open here, and disappear from the board."""
        tasks = [*self._running, *self._telling, *self._checks.values()]
        self._running = []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.tenancy.stop()
        try:
            await self._own.remove()
        except FairlaneError as error:
            _log.warning("The node stays on the board until others see that it is gone: %s", error)
        finally:
            await self.posting.close()
