"""The own entry of a node on the board: the signs of life, and what others have made of it."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable

from fairlane.cluster.entries import NODE, BoardView, NodeEntry, encode
from fairlane.cluster.shared_board import Posting

_log = logging.getLogger("fairlane.cluster")


class OwnEntry:
    """What a node tells of itself, on the running event loop.

    Attributes:
        is_draining: whether the groups of this node shall go elsewhere; others may say so, too.
        has_appeared: whether others can have heard of it.
        beaten_s: when the last sign of life was sent that has arrived.
        usurped: set, once and for all, when another process has joined under the same name: this one is to end.
    """

    def __init__(
        self,
        posting: Posting,
        *,
        name: str,
        describe: Callable[[int, str], NodeEntry],
        on_usurped: Callable[[], Awaitable[None]],
        monotonic: Callable[[], float],
    ) -> None:
        """Begin with nothing on the board.

        Args:
            posting: the board.
            name: what the node is called, as no other is.
            describe: tells all there is to tell, with a beat and an incarnation.
            on_usurped: called when another process has the name.
            monotonic: the clock of the beats.
        """
        self._posting = posting
        self._node = name
        self._name = NODE + name
        self._describe = describe
        self._on_usurped = on_usurped
        self._monotonic = monotonic
        self._incarnation = secrets.token_hex(8)
        self._beat = 0
        self._version: str | None = None
        self._beating = asyncio.Lock()
        self.is_draining = False
        self.has_appeared = False
        self.beaten_s = float("-inf")
        self.usurped = asyncio.Event()

    def begin(self, view: BoardView) -> None:
        """Take the place of whoever had the name before."""
        self._version = view.versions.get(self._name)

    async def show_life(self) -> None:
        """Put the entry on the board anew; where others have changed it, take note of that instead.

        Raises:
            StoreFailed: the board can't be reached.
        """
        async with self._beating:
            if not self.usurped.is_set():
                await self._put()

    async def _put(self) -> None:
        sent_s = self._monotonic()
        self._beat += 1
        entry = self._describe(self._beat, self._incarnation)
        version = await self._posting.put(self._name, encode(entry), version=self._version)
        if version is None:
            await self._reread()
            return
        self._version, self.has_appeared = version, True
        self.beaten_s = sent_s

    async def _reread(self) -> None:
        """Take note of what others have made of the entry: it may be drained, gone, or another process's."""
        view = await self._posting.refresh()
        entry = view.nodes.get(self._node)
        self._version = view.versions.get(self._name)
        if entry is None:
            return
        if entry.incarnation != self._incarnation and self.has_appeared:
            _log.error("Another process has joined as node %s; this one ends.", self._node)
            self.usurped.set()
            await self._on_usurped()
            return
        self.is_draining = entry.is_draining and entry.incarnation == self._incarnation

    async def remove(self) -> None:
        """Disappear from the board, unless another has taken the place.

        Raises:
            StoreFailed: the board can't be reached.
        """
        if self._version is None or self.usurped.is_set():
            return
        view = await self._posting.refresh()
        version = view.versions.get(self._name)
        if version is not None:
            await self._posting.remove(self._name, version=version)
