"""What a connection of the stream still has to send: in order, many small frames in one message, and bounded.

Frames are put here by the loop's callbacks, and sent by one task, or where the connection has a short way at the end of
the same pass of the loop; so nobody else waits for a slow reader. Those who put are asked to stop when too much lies
here (``has_room``), which is how a slow reader slows down its own calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from fairlead.server.asgi import Send, ShortWay

Frame: TypeAlias = tuple[Any, ...] | msgspec.Struct
"""A frame of ``wire.frames``, or a tuple that is encoded as one: cheaper, and its inside is encoded in one go."""

FRAMES_MAX: Final = 64
"""Frames in one message: enough to be cheap, few enough that a reader gets to see the first soon."""
BYTES_MAX: Final = 4 * 1024 * 1024


class Outbox:
    """Frames on their way to one client.

    Attributes:
        sends_many: whether frames may go together; the client has to have shown that it knows how.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._frames: list[Frame] = []
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._encode = msgspec.msgpack.Encoder().encode
        self.sends_many = False

    def put(self, frame: Frame) -> None:
        """Send a frame after all that were put before."""
        self._frames.append(frame)
        self._arrived.set()
        if len(self._frames) > FRAMES_MAX:
            self._room.clear()

    async def wait_for_room(self) -> None:
        """Wait until what was put has been taken by the connection."""
        await self._room.wait()

    @property
    def has_room(self) -> bool:
        """Whether the client keeps up with reading."""
        return self._room.is_set()

    def unsent(self) -> Iterator[Frame]:
        """Return what has not been sent, and never will be."""
        frames, self._frames = self._frames, []
        return iter(frames)

    def take_out(self, frames: Sequence[Frame]) -> None:
        """Do not send these."""
        unwanted = {id(frame) for frame in frames}
        self._frames = [frame for frame in self._frames if id(frame) not in unwanted]

    def waiting(self) -> list[Frame]:
        """Return what has not been sent yet."""
        return self._frames

    async def run(self) -> None:
        """Send what is put, until cancelled or the connection is gone."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._frames:
                await self._flush()
            self._room.set()

    async def _flush(self) -> None:
        frames = self._frames
        if not self.sends_many:
            batch, data = frames[:1], self._encode(frames[0])
        else:
            batch = frames[:FRAMES_MAX]
            data = self._encode(batch)
        del frames[: len(batch)]
        if len(data) > BYTES_MAX:
            self._room.clear()
        try:
            await self._send({"type": "websocket.send", "bytes": data})
        except BaseException:
            self._frames[:0] = batch  # it did not go, or nobody knows whether it did
            raise


class QuickOutbox(Outbox):
    """Frames on their short way to one client.

    They are sent when ``call_soon`` calls back; ``on_room`` is told when there is room again.
    """

    def __init__(
        self,
        send: Send,
        way: ShortWay,
        *,
        call_soon: Callable[[Callable[[], None]], object],
        on_room: Callable[[], None],
    ) -> None:
        super().__init__(send)
        self.way = way
        self._call_soon = call_soon
        self._on_room = on_room
        self._is_scheduled = False

    def put(self, frame: Frame) -> None:
        """Send a frame after all that were put before, together with others of this pass."""
        self._frames.append(frame)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self.flush)

    @property
    def has_room(self) -> bool:
        """Whether the client keeps up with reading."""
        return len(self._frames) <= FRAMES_MAX or self.way.has_room

    def flush(self) -> None:
        """Send as much as the connection takes."""
        self._is_scheduled = False
        way = self.way
        while self._frames and way.has_room and way.is_open:
            batch = self._frames[: FRAMES_MAX if self.sends_many else 1]
            data = self._encode(batch if self.sends_many else batch[0])
            del self._frames[: len(batch)]
            way.write(data)
        if way.has_room:
            self._on_room()

    async def run(self) -> None:
        """Wait to be cancelled: there is nothing that needs a task."""
        await asyncio.get_running_loop().create_future()
