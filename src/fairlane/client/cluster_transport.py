"""The transport that follows queues: a WebSocket to each node of a cluster that it needs.

A node that does not own a queue refuses a request without having done anything, and names the owner. The request is
repeated there, and the owner is remembered until it stops answering; then any known node is asked instead. With a
single server none of this happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from fairlane.client.partition_channels import PartitionChannels
from fairlane.client.retries import Retries, pause_s
from fairlane.client.spread import split_of
from fairlane.client.transport.protocol import Sink
from fairlane.client.transport.websocket import WebSocketChannel, WebSocketTransport
from fairlane.errors import (
    Closed,
    Disconnected,
    FairlaneError,
    InvalidArgument,
    QueueElsewhere,
    QueueMoving,
    QueueSplit,
)
from fairlane.verbs.verb import AnyAnswer, Reply, Shape
from fairlane.wire.frames import Consume

_HOPS_MAX: Final = 4
"""How often a call is redirected before it waits a little. Nodes may not agree while a queue moves."""
_MOVING_MS: Final = 100
_CONNECT_S, _PING_S = 3.0, 5.0
"""How long one of several nodes may take to answer before others are asked."""
_SECURE: Final = frozenset(("https", "wss"))

Make = Callable[[str], WebSocketTransport]


class ClusterTransport:
    """Sends calls to the node that owns their queue; see ``Transport``.

    Attributes:
        is_cluster: whether other nodes are known besides the one that was asked first.
        trouble: why no node could be reached the last time; None if one was.
    """

    def __init__(self, servers: str, make: Make, *, retries: Retries) -> None:
        """Prepare, without connecting yet.

        Args:
            servers: the addresses of one or more nodes, separated by commas.
            make: returns a transport to one address, which tries to connect only once.
            retries: how long to look for a node that answers.
        """
        self._make = make
        self._retries = retries
        self._seeds = addresses_of(servers)
        self._nodes = {address: make(address) for address in self._seeds}
        self._first = self._nodes[self._seeds[0]]
        self._owners: dict[str | None, WebSocketTransport] = {}
        self.is_cluster = False
        self.trouble: Disconnected | None = None
        if len(self._seeds) > 1:
            self._note_cluster()
        self._reaching: asyncio.Task[WebSocketTransport] | None = None
        self._dropped: list[WebSocketTransport] = []
        self._is_closed = False

    async def connect(self) -> None:
        """Connect to the first node that answers, or fail at once; see ``Transport``."""
        if self._is_closed:
            raise Closed("The client is closed.")
        self._first = await self._any()

    async def call(self, verb: str, request: Shape, *, wait_ms: int = 0) -> AnyAnswer:
        """Return the answer to a request; see ``Transport``."""
        queue: str | None = getattr(request, "queue", None)
        for _ in range(_HOPS_MAX):
            node = self._owners.get(queue, self._first)
            if not node.is_live:
                node = await self._reach(queue)
            try:
                answer = await node.call(verb, request, wait_ms=wait_ms)
            except QueueElsewhere as error:
                if not self._follow(queue, error, node):
                    raise
            except QueueMoving:
                self._doubt(queue, node)
                raise
            except Disconnected:
                self._forget(node)
                raise
            else:
                if self.is_cluster and queue is not None:
                    self._owners[queue] = node
                return answer
        raise QueueMoving(f"The nodes don't agree yet which of them owns queue {queue!r}.", retry_after_ms=_MOVING_MS)

    def known_node(self, queue: str | None) -> WebSocketTransport | None:
        """Return the connected node that a request about a queue goes to at once; None if it has to be found."""
        node = self._owners.get(queue) if self.is_cluster else self._first
        return node if node is not None and node.is_live else None

    def submit(self, verb: str, request: Shape, reply: Reply, *, wait_ms: int = 0) -> bool:
        """Send a request at once if the owner is known; see ``Transport``."""
        if not self.is_cluster:
            return self._first.submit(verb, request, reply, wait_ms=wait_ms)
        node = self._owners.get(getattr(request, "queue", None))
        return node is not None and node.submit(verb, request, reply, wait_ms=wait_ms)

    async def open(self, request: Consume, sink: Sink) -> WebSocketChannel | PartitionChannels:
        """Open a channel at the node that owns the queue, as soon as there is one; see ``Transport``.

        For a split queue, open one at each partition.
        """
        try:
            return await self.open_one(request, sink)
        except QueueSplit as error:
            channels = PartitionChannels(self, request, sink, retries=self._retries)
            await channels.begin(split_of(error))
            return channels

    async def open_one(self, request: Consume, sink: Sink) -> WebSocketChannel:
        """Open a channel at the node that owns a whole queue or a partition, as soon as there is one."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._retries.patience_s
        hops = 0
        for wait_s in self._retries.waits_s():
            node = await self._reach(request.queue)
            try:
                return await node.open(request, sink)
            except QueueElsewhere as error:
                refused: FairlaneError = error
                hops = hops + 1 if self._follow(request.queue, error, node) else _HOPS_MAX
            except QueueMoving as error:
                self._doubt(request.queue, node)
                refused = error
                hops = _HOPS_MAX
            except Disconnected:
                self._forget(node)
                raise
            if loop.time() > until:
                raise refused
            if hops >= _HOPS_MAX:
                await asyncio.sleep(pause_s(refused, wait_s))
        raise AssertionError("waits never end")

    def address_of(self, queue: str | None) -> str:
        """Return the address of the node that would be asked about a queue."""
        return self._owners.get(queue, self._first).address

    async def close(self) -> None:
        """Close all connections."""
        self._is_closed = True
        if self._reaching is not None:
            self._reaching.cancel()
            with suppress(asyncio.CancelledError, FairlaneError):
                await self._reaching
        await asyncio.gather(*(node.close() for node in (*self._nodes.values(), *self._dropped)))

    # ------------------------------------------------------------------------------------------------- choosing a node

    def _follow(self, queue: str | None, error: QueueElsewhere, asked: WebSocketTransport) -> bool:
        """Remember the owner that an error names; return False if there is none, or it must not see the API key."""
        self._owners.pop(queue, None)
        if not error.at or (_is_secure(asked.address) and not _is_secure(error.at)):
            return False
        node = self._nodes.get(error.at)
        if node is None:
            node = self._nodes[error.at] = self._make(error.at)
        self._note_cluster()
        self._owners[queue] = node
        return True

    def _note_cluster(self) -> None:
        self.is_cluster = True
        for node in self._nodes.values():
            node.hasten(connect_s=_CONNECT_S, ping_s=_PING_S)

    def _doubt(self, queue: str | None, node: WebSocketTransport) -> None:
        """Ask another node next time: a node that is cut off does not learn where a queue has moved."""
        self._owners.pop(queue, None)
        nodes = list(self._nodes.values())
        if self._first is node and node in nodes:
            self._first = nodes[(nodes.index(node) + 1) % len(nodes)]

    def _forget(self, node: WebSocketTransport) -> None:
        """Ask other nodes from now on, if there are any."""
        for queue in [queue for queue, place in self._owners.items() if place is node]:
            del self._owners[queue]
        others = [other for other in self._nodes.values() if other is not node]
        if self._first is node and others:
            self._first = next((other for other in others if other.is_live), others[0])

    async def _reach(self, queue: str | None) -> WebSocketTransport:
        """Return a connected node to ask about a queue: its owner as far as known, or any."""
        if self._is_closed:
            raise Closed("The client is closed.")
        node = self._owners.get(queue, self._first)
        if node.is_live:
            return node
        if queue in self._owners:
            try:
                await node.ready()
            except Disconnected:
                self._drop(node)
            else:
                return node
        if self._first.is_live:
            return self._first
        if self._reaching is None or self._reaching.done():
            self._reaching = asyncio.get_running_loop().create_task(self._retries.until_answered(self._any))
        self._first = await asyncio.shield(self._reaching)
        return self._first

    async def _any(self) -> WebSocketTransport:
        """Return a connected node: the one asked last if it answers, then connected ones, then the others."""
        nodes = sorted(self._nodes.values(), key=lambda node: (node is not self._first, not node.is_live))
        failed: Disconnected | None = None
        for node in nodes:
            try:
                await node.ready()
            except Disconnected as error:
                failed = error
                self._drop(node)
            else:
                self.trouble = None
                return node
        self.trouble = failed
        assert failed is not None  # noqa: S101 - there is at least one node, and it did not answer
        raise failed

    def _drop(self, node: WebSocketTransport) -> None:
        """Stop asking a node that does not answer, for good unless the caller named it."""
        self._forget(node)
        if node.address not in self._seeds and self._nodes.pop(node.address, None) is not None:
            self._dropped.append(node)


def addresses_of(servers: str) -> list[str]:
    """Return the addresses in a list separated by commas. Raises InvalidArgument if there is none."""
    found = list(dict.fromkeys(address.strip() for address in servers.split(",") if address.strip()))
    if not found:
        raise InvalidArgument(
            f"Expected an address such as ws://127.0.0.1:7420, or several separated by commas, not {servers!r}."
        )
    return found


def _is_secure(address: str) -> bool:
    return urlsplit(address).scheme in _SECURE
