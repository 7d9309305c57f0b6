"""Snapshots of other nodes, so that a viewer of one node sees the whole cluster.

For each viewer this node subscribes to the live feed of every other node, which sends its own queues only. The node
that owns the watched queue sends its keys as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from heapq import nlargest
from types import TracebackType
from typing import Final, Self

import msgspec

from fairlane.errors import Disconnected, QueueMoving
from fairlane.gateway.protocol import Gateway, RemoteAnswer
from fairlane.server.live.snapshot import QUEUES_MAX, Snapshot

SILENT_S: Final = 5.0
"""The time without an event after which the feed of a node counts as lost."""
_OK: Final = 200
_END: Final = b"\n\n"
_DATA: Final = b"data: "
_decode: Final = msgspec.json.Decoder(Snapshot).decode


class RemoteSnapshots:
    """The latest snapshots of other nodes, for one viewer."""

    def __init__(self, gateway: Gateway, headers: Mapping[str, str], *, owner: str | None, query: str) -> None:
        """Create the snapshots; the subscriptions start when the context is entered.

        Args:
            gateway: knows the other nodes.
            headers: identify the viewer to the other nodes.
            owner: the address of the node that owns the watched queue, if that is another node.
            query: the query string for the owner.
        """
        self._gateway = gateway
        self._headers = headers
        self._owner = owner
        self._query = query
        self._listening: dict[str, asyncio.Task[None]] = {}
        self._latest: dict[str, Snapshot] = {}
        self._keys: Snapshot | None = None
        self.ended = asyncio.Event()
        """Set when the owner of the watched queue stops sending it."""

    async def __aenter__(self) -> Self:
        self.refresh()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for task in self._listening.values():
            task.cancel()
        await asyncio.gather(*self._listening.values(), return_exceptions=True)

    def refresh(self) -> None:
        """Subscribe to the nodes that are alive now, and drop the others."""
        live = set(self._gateway.other_addresses())
        for address in self._listening.keys() - live:
            self._listening.pop(address).cancel()
            self._latest.pop(address, None)
        for address in live:
            task = self._listening.get(address)
            if task is None or task.done():
                self._listening[address] = asyncio.create_task(self._listen(address))

    def merged_into(self, snapshot: Snapshot) -> Snapshot:
        """Return a snapshot extended by the latest ones of other nodes; each sample of keys is passed on once."""
        self.refresh()
        others = list(self._latest.values())
        found = {queue.name: queue for each in (*others, snapshot) for queue in each.queues}
        largest = nlargest(QUEUES_MAX, found.values(), key=lambda queue: queue.waiting + queue.leased + queue.dead)
        left_off = sum(each.queues_left_off for each in (*others, snapshot)) + len(found) - len(largest)
        merged = msgspec.structs.replace(snapshot, queues=largest, queues_left_off=left_off)
        keys, self._keys = self._keys, None
        return merged if keys is None else msgspec.structs.replace(merged, queue=keys.queue, streams=keys.streams)

    async def _listen(self, address: str) -> None:
        is_owner = address == self._owner
        try:
            with suppress(Disconnected, QueueMoving, TimeoutError, msgspec.DecodeError):
                target = f"/v1/live?{self._query}" if is_owner else "/v1/live"
                async with self._gateway.listen(address, target, self._headers) as answer:
                    if answer.status == _OK:
                        await self._hear(answer, address)
        finally:
            self._latest.pop(address, None)
            if is_owner:
                self.ended.set()

    async def _hear(self, answer: RemoteAnswer, address: str) -> None:
        text = b""
        async for piece in _pieces(answer):
            *events, text = (text + piece).split(_END)
            for event in events:
                snapshot = _decode(event.partition(_DATA)[2])
                self._latest[address] = snapshot
                if snapshot.queue is not None and address == self._owner:
                    self._keys = snapshot


async def _pieces(answer: RemoteAnswer) -> AsyncIterator[bytes]:
    """Yield what a node sends, until it ends or is silent for too long."""
    while True:
        async with asyncio.timeout(SILENT_S):
            piece = await anext(answer.pieces, None)
        if piece is None:
            return
        yield piece
