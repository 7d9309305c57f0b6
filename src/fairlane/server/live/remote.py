"""What other nodes of a cluster show, so that whoever looks at one node sees all of them.

Each of the others is listened to for as long as somebody looks here, and shows no more than its own queues. The node
that has the queue that is watched shows its keys as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from heapq import nlargest
from types import TracebackType
from typing import Final, Self

import msgspec

from fairlane.cluster.forwarding import Heard
from fairlane.errors import Disconnected, QueueMoving
from fairlane.server.doors import Router
from fairlane.server.live.snapshot import QUEUES_MAX, Picture

SILENT_S: Final = 5.0
"""A node that has shown nothing for so long is not waited for."""
_OK: Final = 200
_END: Final = b"\n\n"
_DATA: Final = b"data: "
_decode: Final = msgspec.json.Decoder(Picture).decode


class FarPictures:
    """The pictures of other nodes, for one viewer."""

    def __init__(self, router: Router, headers: Mapping[str, str], *, owner: str | None, query: str) -> None:
        """Listen to nobody yet.

        Args:
            router: knows the other nodes.
            headers: what they are told of the viewer.
            owner: the address of the node that has the queue which is watched, if it is another's.
            query: what the owner is asked for.
        """
        self._router = router
        self._headers = headers
        self._owner = owner
        self._query = query
        self._listening: dict[str, asyncio.Task[None]] = {}
        self._latest: dict[str, Picture] = {}
        self._keys: Picture | None = None
        self.ended = asyncio.Event()
        """Set when the owner of the queue that is watched shows it no more."""

    async def __aenter__(self) -> Self:
        self.look_around()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for task in self._listening.values():
            task.cancel()
        await asyncio.gather(*self._listening.values(), return_exceptions=True)

    def look_around(self) -> None:
        """Listen to those nodes that live now."""
        live = set(self._router.others())
        for address in self._listening.keys() - live:
            self._listening.pop(address).cancel()
            self._latest.pop(address, None)
        for address in live:
            task = self._listening.get(address)
            if task is None or task.done():
                self._listening[address] = asyncio.create_task(self._listen(address))

    def joined_to(self, picture: Picture) -> Picture:
        """Return a picture with what other nodes have shown of late; what was shown of keys is shown once."""
        self.look_around()
        others = list(self._latest.values())
        found = {queue.name: queue for each in (*others, picture) for queue in each.queues}
        shown = nlargest(QUEUES_MAX, found.values(), key=lambda queue: queue.waiting + queue.leased + queue.dead)
        left_off = sum(each.queues_left_off for each in (*others, picture)) + len(found) - len(shown)
        joined = msgspec.structs.replace(picture, queues=shown, queues_left_off=left_off)
        keys, self._keys = self._keys, None
        return joined if keys is None else msgspec.structs.replace(joined, queue=keys.queue, streams=keys.streams)

    async def _listen(self, address: str) -> None:
        is_owner = address == self._owner
        try:
            with suppress(Disconnected, QueueMoving, TimeoutError, msgspec.DecodeError):
                target = f"/v1/live?{self._query}" if is_owner else "/v1/live"
                async with self._router.listening(address, target, self._headers) as heard:
                    if heard.status == _OK:
                        await self._hear(heard, address)
        finally:
            self._latest.pop(address, None)
            if is_owner:
                self.ended.set()

    async def _hear(self, heard: Heard, address: str) -> None:
        text = b""
        async for piece in _pieces(heard):
            *events, text = (text + piece).split(_END)
            for event in events:
                picture = _decode(event.partition(_DATA)[2])
                self._latest[address] = picture
                if picture.queue is not None and address == self._owner:
                    self._keys = picture


async def _pieces(heard: Heard) -> AsyncIterator[bytes]:
    """Yield what is heard, until nothing was for too long."""
    while True:
        async with asyncio.timeout(SILENT_S):
            piece = await anext(heard.pieces, None)
        if piece is None:
            return
        yield piece
