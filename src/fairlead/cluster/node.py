"""A node: it shows that it lives, watches who else does, and has those groups open whose home it is.

All that nodes know of each other is on the board. A node that can't reach the board keeps its groups: it is their
stores that tell whether it still owns them.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from fairlead.broker.aio import AsyncBroker
from fairlead.cluster import placing
from fairlead.cluster.entries import GROUP, NODE, BoardView, GroupEntry, NodeEntry, Share, encode, groups_by_queue
from fairlead.cluster.house import Groups, Place
from fairlead.cluster.living import Watch
from fairlead.cluster.loads import Loads
from fairlead.cluster.posting import Posting
from fairlead.cluster.shared_config import GroupConfig, SharedConfig, apply_config, config_of_groups
from fairlead.cluster.spending import Spending, share_out
from fairlead.cluster.tenancy import Open, Tenancy
from fairlead.errors import FairleadError, InvalidArgument, NodeNotFound, QueueNotFound, StoreFailed
from fairlead.model.names import DLQ_SUFFIX
from fairlead.model.views import ClusterView, GroupView, NodeView
from fairlead.ports.board import Board

LEASE_MS: Final = 5_000
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
_log = logging.getLogger("fairlead.cluster")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTerms:
    """Who a node is.

    Attributes:
        name: what it is called, as no other node is.
        address: where others reach its HTTP door.
        lease_ms: a node that shows no sign of life for so long is dead to the others.
        groups_max: how many groups new queues make, before they join those there are.
        version: the version of Fairlead.
    """

    name: str
    address: str
    lease_ms: int = LEASE_MS
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
        self.tenancy = Tenancy(groups, opens=opens, prepare=self._prepare, on_change=self._tell_change)
        self.config = SharedConfig(self.posting, is_joined=lambda: self.is_joined, on_set=self._note_view)
        self._watch = Watch(terms.lease_ms)
        self._loads = Loads(groups)
        self._incarnation = secrets.token_hex(8)
        self._beat = 0
        self._version: str | None = None
        self._is_draining = False
        self._has_appeared = False
        self._beaten_s = float("-inf")
        self._balanced_s = monotonic()
        self._group_config = GroupConfig({}, {})
        self._applied: dict[str, GroupConfig] = {}
        self._shared_out_s = float("-inf")
        self.spending = Spending(self.posting)
        self._noted: BoardView | None = None
        self._homes: dict[str, str | None] = {}
        self._checks: dict[str, asyncio.Task[None]] = {}
        self._beating = asyncio.Lock()
        self._telling: set[asyncio.Task[None]] = set()
        self._running: asyncio.Task[None] | None = None
        self.grpc: str | None = None
        """Where others reach its gRPC door, if it has one."""
        self.on_config: Callable[[Mapping[str, str]], None] = lambda _config: None
        """Told of the config whenever it has changed."""
        self.usurped = asyncio.Event()
        """Set when another process has joined under the same name: this one is to end."""

    # ------------------------------------------------------------------------------------------------------- beginning

    async def join(self) -> None:
        """Appear on the board, and begin to do what it says.

        Raises:
            StoreFailed: the board can't be reached.
        """
        view = await self.posting.look()
        self._version = view.versions.get(NODE + self.terms.name)
        while not self._has_appeared:  # one of the same name may be about to end
            await self._show_life()
        await self.posting.look()
        self._note_view()
        self.groups.config = self.config
        self._running = asyncio.create_task(self._run())

    @property
    def live(self) -> frozenset[str]:
        """The nodes that live, this one among them."""
        return self._watch.live(self._ms(self.posting.read_s)) | {self.terms.name}

    @property
    def is_joined(self) -> bool:
        """Whether others have heard of this node within a lease."""
        return self._monotonic() - self._beaten_s < self.terms.lease_ms / 1000

    @property
    def is_draining(self) -> bool:
        """Whether the groups of this node shall go elsewhere."""
        return self._is_draining

    @staticmethod
    def _ms(at_s: float) -> int:
        return int(at_s * 1000)

    # ------------------------------------------------------------------------------------------------------------ beats

    async def _run(self) -> None:
        told = ""
        while not self.usurped.is_set():
            try:
                await self._step()
                if told:
                    _log.info("The board is within reach again.")
                told = ""
            except FairleadError as error:
                if error.code != told:
                    _log.warning("The board is out of reach; what is open here stays so. %s", error)
                told = error.code
                await asyncio.sleep(self._until_beat_s())
            except Exception:  # noqa: BLE001 - the next beat has to come all the same
                _log.exception("A step of the node went wrong.")
                await asyncio.sleep(self._until_beat_s())

    def _until_beat_s(self) -> float:
        every_s = self.terms.lease_ms / 1000 / _BEATS
        return min(every_s, max(0.01, self._beaten_s + every_s - self._monotonic()))

    async def _step(self) -> None:
        every_s = self.terms.lease_ms / 1000 / _BEATS
        if self._monotonic() - self._beaten_s >= every_s - 0.01:
            self._check_groups()
            await self._show_life()
        await self.posting.look()
        self._note_view()
        await self._decide()
        await self._configure()
        await self._share_throttles()
        await self.posting.wait(self._until_beat_s())

    def _tell_change(self) -> None:
        """Let others know at once what is open here."""
        if self._running is not None and not self._running.done() and not self._telling:
            task = asyncio.create_task(self._tell())
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    async def _tell(self) -> None:
        try:
            await self._show_life()
        except FairleadError:
            return  # the next beat tells it

    async def _show_life(self) -> None:
        async with self._beating:
            await self._put_entry()

    async def _put_entry(self) -> None:
        sent_s = self._monotonic()
        self._beat += 1
        entry = NodeEntry(
            address=self.terms.address,
            beat=self._beat,
            incarnation=self._incarnation,
            is_draining=self._is_draining,
            load=self._loads.rates(self._monotonic()),
            demand=self._loads.demand(),
            grpc=self.grpc,
            version=self.terms.version,
            takeovers=self.tenancy.takeovers,
        )
        name = NODE + self.terms.name
        version = await self.posting.put(name, encode(entry), version=self._version)
        if version is None:
            await self._reread_own(name)
            return
        self._version, self._has_appeared = version, True
        self._beaten_s = sent_s

    async def _reread_own(self, name: str) -> None:
        """Take note of what others have made of the own entry: it may be drained, gone, or another process's."""
        view = await self.posting.look()
        entry = view.nodes.get(self.terms.name)
        self._version = view.versions.get(name)
        if entry is None:
            return
        if entry.incarnation != self._incarnation and self._has_appeared:
            _log.error("Another process has joined as node %s; this one ends.", self.terms.name)
            self.usurped.set()
            await self.tenancy.stop()
            return
        self._is_draining = entry.is_draining and entry.incarnation == self._incarnation

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
        except FairleadError:
            self.tenancy.drop_lost()

    # ---------------------------------------------------------------------------------------------------------- acting

    def _note_view(self) -> None:
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
            }
        )
        mine: dict[str, str | None] = {}
        for group in (group for group, home in homes.items() if home == own):
            left = self._homes.get(group, own)
            mine[group] = left if left is not None and left not in live else None
        self._homes |= {group: home for group, home in homes.items() if home != own or group in self.groups.names}
        elsewhere = {group: addresses[home] for group, home in homes.items() if home in addresses and home != own}
        self.tenancy.want(mine, elsewhere)
        self.tenancy.drop_lost()
        if self._noted is None or self._noted.config != view.config:
            self._group_config = config_of_groups(view)
            self.on_config(view.config)
        self._noted = view

    async def _decide(self) -> None:
        view, live = self.posting.view, self.live
        moves = self._next_moves(placing.homeless(view.groups, view.nodes, live), view)
        if not moves and self._is_time_to_balance(view, live):
            move = placing.balancing(view.groups, view.nodes, live)
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
            self._note_view()
        await self._forget_dead(view)

    @staticmethod
    def _next_moves(moves: list[placing.Move], view: BoardView) -> list[placing.Move]:
        """Return the moves to make now: all that are urgent, and of the others a few at a time."""
        on_the_way = sum(
            entry.home in view.nodes and name not in view.nodes[entry.home].load
            for name, entry in view.groups.items()
            if entry.home is not None
        )
        others = [move for move in moves if not move.is_urgent]
        return [move for move in moves if move.is_urgent] + others[: max(0, _MOVES_MAX - on_the_way)]

    def _is_time_to_balance(self, view: BoardView, live: frozenset[str]) -> bool:
        is_steward = placing.steward(view.nodes, live) == self.terms.name
        return is_steward and self._monotonic() - self._balanced_s >= _BALANCE_S

    async def _forget_dead(self, view: BoardView) -> None:
        now_ms = self._ms(self.posting.read_s)
        for name in view.nodes:
            if name != self.terms.name and (self._watch.silent_ms(name, now_ms) or 0) > _FORGET_MS:
                await self.posting.remove(NODE + name, version=view.versions[NODE + name])

    async def _configure(self) -> None:
        """Let the groups that are open here have the config of the board."""
        wanted = self._group_config
        for group in list(self.groups.names):
            broker = self.groups.group(group)
            if broker is None or self._applied.get(group) is wanted:
                continue
            try:
                await self._configure_group(group, broker)
            except FairleadError as error:
                _log.warning("The config of group %s is not up to date: %s", group, error)

    async def _prepare(self, group: str, broker: AsyncBroker) -> None:
        await self.spending.begin(group, broker)
        await self._configure_group(group, broker)

    async def _configure_group(self, group: str, broker: AsyncBroker) -> None:
        wanted = self._group_config
        self.spending.forget(wanted.throttles)
        await apply_config(broker, wanted)
        await self.spending.confine(group, broker, wanted.throttles)
        self._applied[group] = wanted

    async def _share_throttles(self) -> None:
        """Let groups here have their shares of throttles, and as the steward say what those shall be."""
        view, live, now_s = self.posting.view, self.live, self._monotonic()
        every_s = min(_SHARE_S, self.terms.lease_ms / 1000 / _BEATS)
        if placing.steward(view.nodes, live) == self.terms.name and now_s - self._shared_out_s >= every_s:
            self._shared_out_s = now_s
            await share_out(self.posting, self._group_config.throttles, live=live, now_s=now_s)
        for group in list(self.groups.names):
            broker = self.groups.group(group)
            if broker is not None:
                await self._settle(group, broker)

    async def _settle(self, group: str, broker: AsyncBroker) -> None:
        try:
            await self.spending.settle(group, broker, self._group_config.throttles)
        except FairleadError as error:
            _log.debug("The shares of group %s stay as they are: %s", group, error)

    # ---------------------------------------------------------------------------------------------- what others ask for

    def throttles(self) -> Mapping[str, Share]:
        """Return what each throttle has for all groups: millionths of a token a second, and tokens saved up."""
        return self._group_config.throttles

    async def inform(self) -> None:
        """Read the board now.

        Raises:
            StoreFailed: it can't be read.
        """
        await self.posting.refresh()
        self._note_view()

    def seen(self) -> ClusterView:
        """Return the cluster as this node sees it."""
        view, live, now_ms = self.posting.view, self.live, self._ms(self._monotonic())
        nodes = [
            NodeView(
                name=name,
                address=entry.address,
                grpc=entry.grpc,
                is_live=name in live,
                is_draining=entry.is_draining,
                beat=entry.beat,
                silent_ms=self._watch.silent_ms(name, now_ms) or 0,
                version=entry.version,
                groups=entry.load,
                takeovers=entry.takeovers,
            )
            for name, entry in sorted(view.nodes.items())
        ]
        owners = {group: node.name for node in nodes if node.is_live for group in node.groups}
        owners |= dict.fromkeys(self.groups.names, self.terms.name)
        groups = [
            GroupView(
                name=name,
                queues=entry.queues,
                home=entry.home,
                owner=owners.get(name),
                is_pinned=entry.is_pinned,
                moves=entry.moves,
            )
            for name, entry in sorted(view.groups.items())
        ]
        return ClusterView(node=self.terms.name, nodes=nodes, groups=groups)

    async def list_queue(self, queue: str, *, group: str | None = None) -> None:
        """Let a queue be on the board, in a group of its own or in one that is named.

        Raises:
            InvalidArgument: it can't be there.
            StoreFailed: nobody knows whether it is.
        """
        while True:
            view = await self.posting.refresh()
            name, entry = placing.group_for(queue, view.groups, groups_max=self.terms.groups_max, wanted=group)
            if entry is view.groups.get(name):
                break
            if entry.home is None:
                groups = {**view.groups, name: entry}
                moves = placing.homeless({name: entry} if not view.groups else groups, view.nodes, self.live)
                entry = next((move.entry for move in moves if move.group == name), entry)
            if await self.posting.put(GROUP + name, encode(entry), version=view.versions.get(GROUP + name)) is not None:
                await self.posting.refresh()
                break
        self._note_view()

    async def unlist_queue(self, queue: str) -> None:
        """Take a queue from the board, that is gone, and its group if it was the last in it."""
        group = groups_by_queue(self.posting.view.groups).get(queue)
        if group is None:
            return

        def edit(view: BoardView) -> bytes | None:
            entry = view.groups.get(group)
            left = None if entry is None else placing.without(queue, entry)
            return None if left is None else encode(left)

        await self.posting.change(GROUP + group, edit)
        self._note_view()

    async def move_queue(self, queue: str, node: str) -> None:
        """Let the group of a queue go to a node, and stay there while that lives.

        Raises:
            QueueNotFound, NodeNotFound, InvalidArgument: there is no such queue, or node, or it is to be drained.
        """
        view = await self.posting.refresh()
        group = groups_by_queue(view.groups).get(queue.removesuffix(DLQ_SUFFIX))
        if group is None:
            raise QueueNotFound(f"There is no queue {queue!r:.150}.")
        self._known(view, node)
        if node not in self.live or view.nodes[node].is_draining:
            raise InvalidArgument(f"The node {node!r} does not take groups: it is dead, or is being drained.")

        def edit(now: BoardView) -> bytes | None:
            entry = now.groups.get(group, GroupEntry(queues=[queue]))
            return encode(placing.moved_by_hand(group, entry, node).entry)

        await self.posting.change(GROUP + group, edit)
        self._note_view()

    async def drain_node(self, node: str, *, is_draining: bool) -> None:
        """Let the groups of a node go elsewhere, or let it have groups again.

        Raises:
            NodeNotFound: there is no such node.
        """
        self._known(await self.posting.refresh(), node)
        if node == self.terms.name:
            self._is_draining = is_draining
            self._beaten_s = float("-inf")

        def edit(view: BoardView) -> bytes | None:
            entry = view.nodes.get(node)
            return None if entry is None else encode(msgspec.structs.replace(entry, is_draining=is_draining))

        await self.posting.change(NODE + node, edit)
        self._note_view()

    @staticmethod
    def _known(view: BoardView, node: str) -> None:
        if node not in view.nodes:
            raise NodeNotFound(f"There is no node {node!r:.150}; there are {', '.join(sorted(view.nodes))}.")

    # ---------------------------------------------------------------------------------------------------------- ending

    async def drain(self, *, grace_s: float) -> None:
        """Let other nodes take over everything that is open here; return when they shall have, or after the grace."""
        self._is_draining = True
        try:
            async with asyncio.timeout(grace_s):
                await self.drain_node(self.terms.name, is_draining=True)
                while (self.groups.names or self.tenancy.is_busy) and self._has_heirs():
                    await self.groups.changed(_LOOK_S)
        except TimeoutError:
            _log.warning("The grace is over; %d groups are still here.", len(self.groups.names))
        except StoreFailed as error:
            _log.warning("The node can't be drained: %s", error)

    def _has_heirs(self) -> bool:
        return any(name != self.terms.name for name in placing.eligible(self.posting.view.nodes, self.live))

    async def leave(self) -> None:
        """Close what is open here, and disappear from the board."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        await self.tenancy.stop()
        try:
            if self._version is not None and not self.usurped.is_set():
                view = await self.posting.refresh()
                version = view.versions.get(NODE + self.terms.name)
                if version is not None:
                    await self.posting.remove(NODE + self.terms.name, version=version)
        except FairleadError as error:
            _log.warning("The node stays on the board until others see that it is gone: %s", error)
        finally:
            await self.posting.close()
