"""What a connection of the stream still has to send: in order, many small frames in one message, and bounded.

Callbacks of the loop put frames here. One task sends them, or where the socket is direct they go at the end of the same
pass of the loop, so that no other connection waits for a slow reader. When too much lies here (``has_capacity``), the
connection reads no more calls, so that a slow reader slows down only itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from fairlane.model.message import MessageView
from fairlane.server.interfaces.asgi import DirectSocket, Send
from fairlane.verbs.leases import LeasedMessages
from fairlane.verbs.messages import MessageList
from fairlane.wire.frames import Deliver

Frame: TypeAlias = tuple[Any, ...] | msgspec.Struct
"""A frame of ``wire.frames``, or a tuple that is encoded as one: cheaper, and its inside is encoded in one go."""

FRAMES_MAX: Final = 64
"""Frames in one message: enough to be cheap, few enough that a reader gets to see the first soon."""
BYTES_MAX: Final = 4 * 1024 * 1024


def _payload_bytes(frame: Frame) -> int:
    """Return how many bytes of payload a frame holds; all else that it holds is small."""
    held: Any = frame if type(frame) is Deliver else frame[2] if type(frame) is tuple else None
    if type(held) in (Deliver, LeasedMessages):
        return sum([len(delivery.payload) for delivery in held.deliveries])
    if type(held) is MessageList:
        return sum([len(view.payload or b"") for view in held.messages])
    return len(held.payload or b"") if type(held) is MessageView else 0


def _fitting(frames: list[Frame]) -> list[Frame]:
    """Return the first frames that go in one message, at least one."""
    size = 0
    for count, frame in enumerate(frames[:FRAMES_MAX]):
        size += _payload_bytes(frame)
        if count and size > BYTES_MAX:
            return frames[:count]
    return frames[:FRAMES_MAX]


class Outbox:
    """Frames on their socket to one client.

    Attributes:
        sends_many: whether frames may go together; the client has to have shown that it knows how.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._frames: list[Frame] = []
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._unsent_bytes = 0
        self._encode = msgspec.msgpack.Encoder().encode
        self.sends_many = False

    def put(self, frame: Frame) -> None:
        """Send a frame after all that were put before."""
        self._frames.append(frame)
        self._arrived.set()
        self._unsent_bytes += _payload_bytes(frame)
        if len(self._frames) > FRAMES_MAX or self._unsent_bytes > BYTES_MAX:
            self._room.clear()

    async def wait_for_capacity(self) -> None:
        """Wait until what was put has been taken by the connection."""
        await self._room.wait()

    @property
    def has_capacity(self) -> bool:
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
            self._unsent_bytes = 0
            self._room.set()

    def _next_batch(self) -> list[Frame]:
        """Return the frames that go in the next message."""
        if not self.sends_many:
            return self._frames[:1]
        return self._frames[:FRAMES_MAX] if self._unsent_bytes <= BYTES_MAX else _fitting(self._frames)

    async def _flush(self) -> None:
        batch = self._next_batch()
        data = self._encode(batch if self.sends_many else batch[0])
        del self._frames[: len(batch)]
        if len(data) > BYTES_MAX:
            self._room.clear()
        try:
            await self._send({"type": "websocket.send", "bytes": data})
        except BaseException:
            self._frames[:0] = batch  # it did not go, or nobody knows whether it did
            raise


class QuickOutbox(Outbox):
    """Frames on their short socket to one client.

    They are sent when ``call_soon`` calls back; ``on_capacity`` is told when there is room again.
    """

    def __init__(
        self,
        send: Send,
        socket: DirectSocket,
        *,
        call_soon: Callable[[Callable[[], None]], object],
        on_capacity: Callable[[], None],
    ) -> None:
        super().__init__(send)
        self.socket = socket
        self._call_soon = call_soon
        self._on_room = on_capacity
        self._is_scheduled = False

    def put(self, frame: Frame) -> None:
        """Send a frame after all that were put before, together with others of this pass."""
        self._frames.append(frame)
        self._unsent_bytes += _payload_bytes(frame)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self.flush)

    @property
    def has_capacity(self) -> bool:
        """Whether the client keeps up with reading."""
        if not self._frames:
            return True
        return self._unsent_bytes <= BYTES_MAX and (len(self._frames) <= FRAMES_MAX or self.socket.has_capacity)

    def flush(self) -> None:
        """Send as much as the connection takes."""
        self._is_scheduled = False
        socket = self.socket
        while self._frames and socket.has_capacity and socket.is_open:
            batch = self._next_batch()
            data = self._encode(batch if self.sends_many else batch[0])
            del self._frames[: len(batch)]
            socket.write(data)
        if not self._frames:
            self._unsent_bytes = 0
        if socket.has_capacity:
            self._on_room()

    async def run(self) -> None:
        """Wait to be cancelled: there is nothing that needs a task."""
        await asyncio.get_running_loop().create_future()
