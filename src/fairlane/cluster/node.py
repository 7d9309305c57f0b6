"""A node of a cluster: it sends heartbeats, watches those of others, and opens the groups that the board gives it.

All that nodes know of each other is on the board. A node that can't reach the board keeps its groups: only their stores
can tell whether it still owns them.

Two loops run side by side. One sends heartbeats, and nothing else may delay it. The other reads the board, decides, and
waits for the next change. What they decide is pure: ``placement`` says where groups should be, ``liveness`` who is
alive, ``reconcile`` what this node does about each group, ``budgets`` how throttles are shared.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from fairlane.broker.frontends.aio import AsyncBroker
from fairlane.cluster import placement
from fairlane.cluster.board_changes import BoardChanges
from fairlane.cluster.cluster_view import cluster_view
from fairlane.cluster.entries import (
    GROUP,
    NODE,
    TRUST,
    BoardView,
    NodeEntry,
    SecretEntry,
    Share,
    encode,
    groups_by_queue,
)
from fairlane.cluster.groups import GroupLocation, Groups
from fairlane.cluster.heartbeat import Heartbeat, Liveness
from fairlane.cluster.lifecycle import Lifecycle, OpenGroup
from fairlane.cluster.load import GroupLoads
from fairlane.cluster.node_proofs import NodeProofs
from fairlane.cluster.reconcile import goals_of
from fairlane.cluster.shared_board import SharedBoard
from fairlane.cluster.shared_config import GroupConfigs, SharedConfig, config_of_groups
from fairlane.errors import FairlaneError, StoreFailed
from fairlane.model.views import ClusterView
from fairlane.ports.board import Board

HEARTBEAT_TIMEOUT_MS: Final = 5_000
GROUPS_MAX: Final = 32
MILLIONTHS: Final = 1_000_000
_BEATS: Final = 5
"""Heartbeats within a lease."""
_BALANCE_S: Final = 5.0
"""The least time between two moves that only balance the load."""
_DRAIN_POLL_S: Final = 0.05
_SHARE_S: Final = 0.5
"""The least time between two divisions of the throttles."""
_FORGET_MS: Final = 600_000
"""How long a silent node stays on the board."""
_SECRET_BYTES: Final = 32
_log = logging.getLogger("fairlane.cluster")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTerms:
    """The identity and the limits of a node.

    Attributes:
        name: its name, which no other node has.
        address: where other nodes and clients reach its HTTP interface.
        heartbeat_timeout_ms: after how long without a heartbeat others consider it dead.
        groups_max: how many groups new queues create before they join existing ones.
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
        opens: OpenGroup,
        terms: NodeTerms,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.terms = terms
        self.groups = groups
        self._monotonic = monotonic
        self.board = SharedBoard(board, monotonic=monotonic)
        self._every_s = terms.heartbeat_timeout_ms / 1000 / _BEATS
        self._configs = GroupConfigs(self.board, groups, share_every_s=min(_SHARE_S, self._every_s))
        self.lifecycle = Lifecycle(groups, opens=opens, prepare=self._configs.prepare, on_change=self._announce)
        self.changes = BoardChanges(self.board, groups_max=terms.groups_max, live=lambda: self.live)
        self.config = SharedConfig(self.board, is_joined=lambda: self.is_joined, on_set=self.note)
        self._liveness = Liveness(terms.heartbeat_timeout_ms)
        self._loads = GroupLoads(groups)
        self._heartbeat = Heartbeat(
            self.board,
            name=terms.name,
            describe=self._describe,
            on_replaced=self.lifecycle.stop,
            on_renamed=self._renamed,
            monotonic=monotonic,
        )
        self._balanced_s = monotonic()
        self._noted: BoardView | None = None
        self._checks: dict[str, asyncio.Task[None]] = {}
        self._announcing: asyncio.Task[None] | None = None
        self._running: list[asyncio.Task[None]] = []
        self.grpc: str | None = None
        """Where others reach its gRPC interface, if it has one."""
        self.on_config: Callable[[Mapping[str, str]], None] = lambda _config: None
        """Called with the config of the cluster whenever it has changed."""
        self.replaced = self._heartbeat.replaced
        """Set when another process has joined under the same name; this process must end."""

    # --------------------------------------------------------------------------------------------------------- joining

    async def join(self) -> None:
        """Appear on the board, and start to do what it says."""
        view = await self.board.read()
        self._heartbeat.begin(view)
        while not self._heartbeat.has_appeared:  # an earlier process of the same name may still write its entry
            await self._heartbeat.beat()
        if (await self.board.read()).secret is None:
            created = SecretEntry(secret=secrets.token_hex(_SECRET_BYTES))
            await self.board.put(TRUST, encode(created), version=None)  # unless another node has done it meanwhile
            await self.board.read()
        self.note()
        self.groups.config = self.config
        self._running = [asyncio.create_task(self._repeat(each)) for each in (self._beat, self._step)]

    def proofs(self) -> NodeProofs:
        """Return what proves to other nodes that this is one, and checks theirs."""
        return NodeProofs(node=self.terms.name, address=self.terms.address, secret=self._secret)

    def _secret(self) -> str | None:
        entry = self.board.view.secret
        return None if entry is None else entry.secret

    @property
    def live(self) -> frozenset[str]:
        """The nodes that live, including this one."""
        return self._liveness.live(_ms(self.board.read_s)) | {self.terms.name}

    @property
    def process(self) -> str:
        """The name of this process, which no other process has; another one after each lost connection to the board."""
        return self._heartbeat.incarnation

    def is_in_doubt(self, process: str) -> bool:
        """Return whether other nodes may know that this process, under this name, has ended."""
        return self._heartbeat.is_in_doubt(process)

    @property
    def is_joined(self) -> bool:
        """Whether a heartbeat of this node has reached the board within its heartbeat timeout."""
        return self._monotonic() - self._heartbeat.beaten_s < self.terms.heartbeat_timeout_ms / 1000

    @property
    def is_draining(self) -> bool:
        """Whether the groups of this node should move elsewhere."""
        return self._heartbeat.is_draining

    # ---------------------------------------------------------------------------------------------------- the two loops

    async def _repeat(self, step: Callable[[], Awaitable[None]]) -> None:
        """Run a step again and again, whatever it raises."""
        logged = ""
        while not self.replaced.is_set():
            try:
                await step()
                logged = ""
            except FairlaneError as error:
                if error.code != logged:
                    _log.warning("The board can't be reached; open groups stay open. %s", error)
                logged = error.code
                await asyncio.sleep(self._every_s)
            except Exception:  # noqa: BLE001 - the next step has to follow all the same
                _log.exception("Unexpected error in the node loop; retrying.")
                await asyncio.sleep(self._every_s)

    async def _beat(self) -> None:
        """Send a heartbeat, and wait until the next is due."""
        self._check_groups()
        await self._heartbeat.beat()
        await asyncio.sleep(max(0.0, self._heartbeat.beaten_s + self._every_s - self._monotonic()))

    async def _step(self) -> None:
        """Read the board, do what it requires, and wait for the next change."""
        await self.board.read()
        self.note()
        await self._move_groups()
        if placement.steward(self.board.view.nodes, self.live) == self.terms.name:
            await self._configs.share_out(live=self.live, now_s=self._monotonic())
        await self._configs.update()
        await self.board.wait(self._every_s)

    def _announce(self) -> None:
        """Send an extra heartbeat, so that others learn at once which groups are open here."""
        if not self.replaced.is_set() and self._running and (self._announcing is None or self._announcing.done()):
            self._announcing = asyncio.create_task(self._announced())

    async def _announced(self) -> None:
        try:
            await self._heartbeat.beat()
        except FairlaneError:
            return  # the next regular heartbeat says it

    def _renamed(self) -> None:
        """Show to others at once that this process lives, and open its groups under its new name."""
        _log.warning("The connection to the board was lost; reopening groups.")
        self._announce()
        self.lifecycle.reopen()

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
            takeovers=self.lifecycle.takeovers,
        )

    def _check_groups(self) -> None:
        """Ask each group's store whether it is still owned. A queue without traffic would not notice otherwise."""
        for group, broker in self.groups.opened():
            if group not in self._checks:
                task = self._checks[group] = asyncio.create_task(self._check_group(broker))
                task.add_done_callback(lambda _, group=group: self._checks.pop(group, None))  # type: ignore[misc] # default

    async def _check_group(self, broker: AsyncBroker) -> None:
        try:
            await broker.get_config("")
        except FairlaneError:
            self.lifecycle.reconcile()

    # -------------------------------------------------------------------------------------------------------- the board

    def note(self) -> None:
        """Take the board as it was read last: learn where queues are, and set the goals for groups."""
        view = self.board.view
        self._liveness.note(view.nodes, _ms(self.board.read_s), ended=self.board.ended)
        live = self.live
        self.groups.locate(
            {queue: _location(group, view, live) for queue, group in groups_by_queue(view.groups).items()},
            {queue: entry.split for queue, entry in view.splits.items()},
        )
        before, open_here = self.lifecycle.goals, self.groups.names
        ended = self._liveness.ended
        goals = goals_of(view, own=self.terms.name, live=live, before=before, open_here=open_here, ended=ended)
        self.lifecycle.pursue(goals)
        if self._noted is None or self._noted.config != view.config:
            self._configs.wanted = config_of_groups(view)
            self.on_config(view.config)
        self._noted = view

    async def refresh(self) -> None:
        """Read the board now, and take it."""
        await self.board.refresh()
        self.note()

    async def _move_groups(self) -> None:
        """Put the moves on the board that this node decides for: every node for urgent ones, the steward to balance."""
        view, live = self.board.view, self.live
        moves = placement.next_moves(view.groups, view.nodes, live, self._liveness.ended)
        if not moves and self._is_time_to_balance(view, live):
            move = placement.balancing(view.groups, view.nodes, live)
            if move is not None:
                self._balanced_s = self._monotonic()
                moves = [move]
        for move in moves:
            name = GROUP + move.group
            if await self.board.put(name, encode(move.entry), version=view.versions[name]) is not None:
                before = view.groups[move.group].home
                extra = {"group": move.group, "node": move.home}
                _log.info("Moving group %s from node %s to %s.", move.group, before, move.home, extra=extra)
        if moves:
            await self.board.read()
            self.note()
        await self._forget_dead(view)

    def _is_time_to_balance(self, view: BoardView, live: frozenset[str]) -> bool:
        is_steward = placement.steward(view.nodes, live) == self.terms.name
        return is_steward and self._monotonic() - self._balanced_s >= _BALANCE_S

    async def _forget_dead(self, view: BoardView) -> None:
        now_ms = _ms(self.board.read_s)
        for name in view.nodes:
            if name != self.terms.name and (self._liveness.silent_ms(name, now_ms) or 0) > _FORGET_MS:
                await self.board.remove(NODE + name, version=view.versions[NODE + name])

    # ---------------------------------------------------------------------------------------------------- for operators

    def throttles(self) -> Mapping[str, Share]:
        """Return what each throttle has for all groups: millionths of a token per second, and tokens saved up."""
        return self._configs.wanted.throttles

    def seen(self) -> ClusterView:
        """Return the cluster as this node sees it."""
        now_ms = _ms(self._monotonic())

        def silent_ms(node: str) -> int:
            return self._liveness.silent_ms(node, now_ms) or 0

        view, own = self.board.view, self.terms.name
        return cluster_view(view, own=own, live=self.live, silent_ms=silent_ms, open_here=self.groups.names)

    def other_addresses(self) -> list[str]:
        """Return the addresses of all other nodes that live."""
        return [node.address for node in self.seen().nodes if node.is_live and node.name != self.terms.name]

    # --------------------------------------------------------------------------------------------------------- leaving

    async def drain(self, *, grace_s: float) -> None:
        """Move all groups to other nodes. Return when they have gone, or after the grace period."""
        self._heartbeat.is_draining = True
        try:
            async with asyncio.timeout(grace_s):
                await self.changes.drain_node(self.terms.name, is_draining=True)
                while (self.groups.names or self.lifecycle.is_busy) and self._has_successor():
                    await self.groups.changed(_DRAIN_POLL_S)
        except TimeoutError:
            _log.warning("Drain timed out after %g s; %d groups are still open.", grace_s, len(self.groups.names))
        except StoreFailed as error:
            _log.warning("The node can't be drained: %s", error)

    def _has_successor(self) -> bool:
        nodes = self.board.view.nodes
        return any(name in nodes and not nodes[name].is_draining for name in self.live if name != self.terms.name)

    async def leave(self) -> None:
        """Close all groups, and disappear from the board."""
        announcing = [self._announcing] if self._announcing is not None else []
        tasks = [*self._running, *announcing, *self._checks.values()]
        self._running = []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.lifecycle.stop()
        try:
            await self._heartbeat.remove()
        except FairlaneError as error:
            _log.warning("The node stays on the board until its lease ends: %s", error)
        finally:
            await self.board.close()


def _ms(at_s: float) -> int:
    return int(at_s * 1000)


def _location(group: str, view: BoardView, live: frozenset[str]) -> GroupLocation:
    home = view.groups[group].home
    is_live = home is not None and home in live and home in view.nodes
    return GroupLocation(group, home, view.nodes[home].address if home is not None and is_live else None)
