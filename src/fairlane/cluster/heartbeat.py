"""Heartbeats: this node's own entry on the board, written regularly, and which other nodes are alive.

Theory of operation
-------------------
A node whose entry has not changed for the heartbeat timeout is dead. That is all there is to know about a node that
hangs, is suspended, or is cut off. The timeout is generous, because such a node may go on at any moment, and its stores
are not taken over before their own timeout has passed either.

A process that is killed leaves evidence, and others need not wait for either timeout: the board reports that its
connection is gone (``Board.ended``). A process that hangs or is suspended keeps its connection, so that there is no
such evidence of it. Nor is there any if the machine of a node vanishes from the network, or if the board can't tell.

Evidence is about one process, never about the name of a node. It may concern a process that lives and has only lost its
connection. Such a process *goes on as another one*: under a new incarnation, which it puts on the board at once, and
with all its groups opened again. Meanwhile it is *in doubt*: it asks the store of a group before each answer. It is in
doubt before others can have the evidence; ``adapters.shared.attendance`` has the argument. So evidence never makes a
stale answer possible, whether it is right or wrong, and however late another node acts on it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial

from fairlane.cluster.entries import NODE, BoardView, NodeEntry, encode
from fairlane.cluster.shared_board import SharedBoard

_log = logging.getLogger("fairlane.cluster")


class Heartbeat:
    """The entry by which other nodes know this one, on the running event loop.

    Attributes:
        is_draining: whether the groups of this node should move elsewhere; operators set it at any node.
        has_appeared: whether other nodes can have seen the entry.
        beaten_s: when the last heartbeat was sent that reached the board.
        incarnation: the name of this process, which no other process has; another one after each lost connection.
        replaced: set for good when another process has joined under the same name; this process must end.
    """

    def __init__(
        self,
        board: SharedBoard,
        *,
        name: str,
        describe: Callable[[int, str], NodeEntry],
        on_replaced: Callable[[], Awaitable[None]],
        monotonic: Callable[[], float],
        on_renamed: Callable[[], None] = lambda: None,
    ) -> None:
        """Start without an entry on the board.

        Args:
            board: the board.
            name: the name of the node, which no other node has.
            describe: returns the entry, for a beat number and the incarnation of this process.
            on_replaced: called when another process has taken the name.
            monotonic: the clock of the heartbeats.
            on_renamed: called when this process goes on as another one.
        """
        self._board = board
        self._node = name
        self._name = NODE + name
        self._describe = describe
        self._on_replaced = on_replaced
        self._on_renamed = on_renamed
        self._monotonic = monotonic
        self.incarnation = secrets.token_hex(8)
        self._incarnations = {self.incarnation}
        self._beat = 0
        self._version: str | None = None
        self._beating = asyncio.Lock()
        self.is_draining = False
        self.has_appeared = False
        self.beaten_s = float("-inf")
        self.replaced = asyncio.Event()

    def begin(self, view: BoardView) -> None:
        """Replace the entry of an earlier process of the same name, if there is one."""
        self._version = view.versions.get(self._name)
        self._attend()

    def _attend(self) -> None:
        self._board.attend(self.incarnation, partial(self._go_on_as_another, self.incarnation))

    def _go_on_as_another(self, incarnation: str) -> None:
        """Take a new incarnation, because others may know that this one has lost its connection."""
        if incarnation == self.incarnation and not self.replaced.is_set():
            self.incarnation = secrets.token_hex(8)
            self._incarnations.add(self.incarnation)
            self._attend()
            self._on_renamed()

    def is_in_doubt(self, incarnation: str) -> bool:
        """Return whether other nodes may know that an incarnation of this process has ended."""
        return incarnation != self.incarnation or not self._board.is_attending()

    async def beat(self) -> None:
        """Write the entry again, or if another node has changed it, read what it says now."""
        async with self._beating:
            if not self.replaced.is_set():
                await self._put()

    async def _put(self) -> None:
        sent_s = self._monotonic()
        self._beat += 1
        entry = self._describe(self._beat, self.incarnation)
        version = await self._board.put(self._name, encode(entry), version=self._version)
        if version is None:
            await self._reread()
            return
        self._version, self.has_appeared = version, True
        self.beaten_s = sent_s

    async def _reread(self) -> None:
        """Read the entry after another node changed it: it was drained, removed, or belongs to another process now."""
        view = await self._board.refresh()
        entry = view.nodes.get(self._node)
        self._version = view.versions.get(self._name)
        if entry is None:
            return
        if entry.incarnation not in self._incarnations and self.has_appeared:
            _log.error("Another process has joined as node %s; this process ends.", self._node)
            self.replaced.set()
            await self._on_replaced()
            return
        self.is_draining = entry.is_draining and entry.incarnation in self._incarnations

    async def remove(self) -> None:
        """Remove the entry, unless another process has replaced this one."""
        if self._version is None or self.replaced.is_set():
            return
        view = await self._board.refresh()
        version = view.versions.get(self._name)
        if version is not None:
            await self._board.remove(self._name, version=version)


class Liveness:
    """What one node has seen of the heartbeats of all nodes: one lives while its entry on the board keeps changing,
    and its process is not known to have ended.

    No clock is compared with another machine's. A node that has just started to watch considers every other node alive
    for one heartbeat timeout. So does a node that could not read the board for a while, because others may not have
    been able to write to it.
    """

    def __init__(self, heartbeat_timeout_ms: int) -> None:
        """Start to watch. A node whose entry has not changed for ``heartbeat_timeout_ms`` is dead."""
        self._heartbeat_timeout_ms = heartbeat_timeout_ms
        self._seen: dict[str, tuple[tuple[str, int], int]] = {}
        self._noted_ms: int | None = None
        self.ended: frozenset[str] = frozenset()
        """The incarnations that are known to have ended."""

    def note(self, nodes: Mapping[str, NodeEntry], now_ms: int, *, ended: Collection[str] = ()) -> None:
        """Take the nodes of a board.

        Args:
            nodes: the nodes by name.
            now_ms: the instant before the board was read, by a clock that only grows. The instant *before* the reading,
                because the entries are at least as new as that.
            ended: the incarnations that are known to have ended.
        """
        self.ended = frozenset(ended)
        beats = {name: (entry.incarnation, entry.beat) for name, entry in nodes.items()}
        for name in self._seen.keys() - beats.keys():
            del self._seen[name]
        if self._noted_ms is not None and now_ms - self._noted_ms > self._heartbeat_timeout_ms // 2:
            self._seen.clear()  # after a gap, silence may be ours: everyone gets another timeout
        self._noted_ms = now_ms if self._noted_ms is None else max(self._noted_ms, now_ms)
        for name, beat in beats.items():
            if name not in self._seen or self._seen[name][0] != beat:
                self._seen[name] = (beat, now_ms)

    def live(self, now_ms: int) -> frozenset[str]:
        """Return the nodes that live: they send heartbeats, and are not known to have ended."""
        return frozenset(
            name
            for name, ((incarnation, _), seen_ms) in self._seen.items()
            if now_ms - seen_ms < self._heartbeat_timeout_ms and incarnation not in self.ended
        )

    def silent_ms(self, node: str, now_ms: int) -> int | None:
        """Return for how long a node has sent no heartbeat; None if it is not on the board."""
        seen = self._seen.get(node)
        return None if seen is None else now_ms - seen[1]
