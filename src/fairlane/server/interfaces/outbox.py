"""What a connection still has to send: frames in order, many small ones in one message, and bounded.

Callbacks of the loop put frames here, and the outbox writes them to the socket at the end of the same pass, so that no
other connection waits for a slow reader. When too much is waiting here (``has_capacity``), the connection reads no more
calls: a slow reader slows down only itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from fairlane.broker.waiting.room import Room, delivery_bytes
from fairlane.server.interfaces.asgi import DirectSocket
from fairlane.verbs.columns import DeliveryColumns
from fairlane.verbs.leases import LeasedMessages
from fairlane.wire.columns import encode_columns
from fairlane.wire.frames import Deliver

Frame: TypeAlias = tuple[Any, ...] | msgspec.Struct
"""A frame of ``wire.frames``, or a tuple that is encoded as one: cheaper, and its content is encoded in one go."""

FRAMES_MAX: Final = 64
"""Frames in one message: enough to be cheap, few enough that a reader sees the first one soon."""
BYTES_MAX: Final = 4 * 1024 * 1024


def frame_bytes(frame: Frame) -> int:
    """Return what a frame takes of a room: what it delivers, or an answer that was encoded to be counted.

    Other answers are small, and there are no more of them than calls in flight.
    """
    held: Any = frame if type(frame) is Deliver else frame[2] if type(frame) is tuple else None
    if type(held) in (Deliver, LeasedMessages):
        if type(held.deliveries) is DeliveryColumns:
            return held.deliveries.payload_bytes
        return sum(map(delivery_bytes, held.deliveries))
    return len(held) if type(held) is msgspec.Raw else 0


def _fitting(frames: list[Frame]) -> list[Frame]:
    """Return the first frames that go in one message, at least one."""
    size = 0
    for count, frame in enumerate(frames[:FRAMES_MAX]):
        size += frame_bytes(frame)
        if count and size > BYTES_MAX:
            return frames[:count]
    return frames[:FRAMES_MAX]


class FrameQueue:
    """Frames that have not been sent yet, in order.

    Attributes:
        room: how many more bytes the client can be sent.
    """

    def __init__(self, room: Room) -> None:
        self.room = room
        self._frames: list[Frame] = []

    def put(self, frame: Frame) -> None:
        """Send a frame after all that were put before."""
        self._frames.append(frame)

    def unsent(self) -> list[Frame]:
        """Return the frames that have not been sent, and never will be."""
        frames, self._frames = self._frames, []
        return frames

    def take_out(self, frames: Sequence[Frame]) -> None:
        """Drop these frames."""
        unwanted = {id(frame) for frame in frames}
        self._frames = [frame for frame in self._frames if id(frame) not in unwanted]

    def waiting(self) -> list[Frame]:
        """Return the frames that have not been sent yet."""
        return self._frames


class Outbox(FrameQueue):
    """Frames on their way to one client of the stream.

    Attributes:
        sends_many: whether several frames may go in one message; the client has to have shown that it knows how.
    """

    def __init__(
        self,
        socket: DirectSocket,
        room: Room,
        *,
        call_soon: Callable[[Callable[[], None]], object],
        on_capacity: Callable[[], None],
    ) -> None:
        """Start empty.

        Args:
            socket: where frames go.
            room: counts what the client has not read.
            call_soon: calls back at the end of the present pass of the loop.
            on_capacity: called when more can be sent.
        """
        super().__init__(room)
        self._socket = socket
        self._call_soon = call_soon
        self._on_capacity = on_capacity
        self._is_scheduled = False
        self._written: list[Frame] = []
        self._encode = msgspec.msgpack.Encoder(enc_hook=encode_columns).encode
        self.sends_many = False

    def put(self, frame: Frame) -> None:
        """Send a frame after all that were put before, together with others of this pass."""
        self._frames.append(frame)
        size = frame_bytes(frame)
        if size:
            self.room.add(size)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self.flush)

    def encoded(self, answer: object) -> msgspec.Raw:
        """Return an answer as the bytes that the client gets, which can be counted."""
        return msgspec.Raw(self._encode(answer))

    @property
    def has_capacity(self) -> bool:
        """Whether the client keeps up with reading."""
        if not self._frames:
            return True
        return self.room.unread <= BYTES_MAX and (len(self._frames) <= FRAMES_MAX or self._socket.has_capacity)

    def flush(self) -> None:
        """Send as much as the socket takes."""
        self._is_scheduled = False
        socket = self._socket
        while self._frames and socket.has_capacity and socket.is_open:
            batch = self._next_batch()
            data = self._encode(batch if self.sends_many else batch[0])
            del self._frames[: len(batch)]
            self._written = batch
            socket.write(data)
        if socket.has_capacity:
            if self.room.unread and not self._frames:
                self.room.clear()  # what the network has not taken by now is less than its own buffers
            self._on_capacity()

    def _next_batch(self) -> list[Frame]:
        """Return the frames that go in the next message."""
        if not self.sends_many:
            return self._frames[:1]
        return self._frames[:FRAMES_MAX] if self.room.unread <= BYTES_MAX else _fitting(self._frames)

    def unsent(self) -> list[Frame]:
        """Return the frames that have not been sent, with those of a message that was not taken."""
        written = self._written if self._socket.is_sending else []
        return [*written, *super().unsent()]
