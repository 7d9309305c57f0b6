"""The stream: msgpack frames over one WebSocket, many requests in flight at once, and deliveries as they come.

A client sends ``Call`` frames, each with a number of its own choosing that is not in use, and gets an ``Answer`` or a
``Refused`` with that number, in any order. ``consume`` opens a channel: the call's number then names the channel, and
``Deliver`` frames come on it as long as there is credit, that is as long as fewer messages than that are neither acked,
nacked nor expired. ``stop`` closes a channel. When the connection goes, its channels are closed and what they had in
flight goes back to its queue.

Frames are arrays, told apart by their first element. A WebSocket message holds one frame, or an array of frames, which
costs less where many are small. A server sends arrays of frames only on a connection on which the client has sent one.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from fairlane.model.message import Delivery
from fairlane.verbs.errors import ErrorBody
from fairlane.verbs.verb import Shape
from fairlane.wire.trace import TraceContext

VERSION = 1
SUBPROTOCOL = "fairlane.v1"
"""The name of the stream in the handshake of the WebSocket, at ``/v1/stream``."""
CONSUME, STOP, WITHDRAW = "consume", "stop", "withdraw"
"""The verbs that only the stream has."""


class Consume(Shape, frozen=True, kw_only=True):
    """Open a channel of deliveries."""

    queue: str
    credit: int = 32
    visibility_ms: int | None = None
    owner: str | None = None
    with_state: bool = False


class Stop(Shape, frozen=True, kw_only=True):
    """Close a channel. What it had in flight goes back: as deferred what nobody has seen, the rest as failed attempts.

    Attributes:
        unseen: messages that have come but were not looked at.
        received: how many messages have come on the channel in all; those sent after them are unseen too.
    """

    channel: int
    unseen: tuple[str, ...] = ()
    received: int | None = None


class Withdraw(Shape, frozen=True, kw_only=True):
    """End a lease that still waits. It is answered without messages, unless it was answered before.

    Attributes:
        call: the number of the call.
    """

    call: int


class WatchQueue(Shape, frozen=True, kw_only=True):
    """Ask for an event whenever messages have come to a queue; over HTTP only."""

    queue: str


class Call(msgspec.Struct, array_like=True, tag=0, gc=False):
    """A request: its number, the name of the verb, the verb's own request, and the span under which it is made."""

    number: int
    verb: str
    request: msgspec.Raw
    trace: TraceContext | None = None


class Answer(msgspec.Struct, array_like=True, tag=1, gc=False):
    """The answer to a call."""

    number: int
    answer: msgspec.Raw


class Refused(msgspec.Struct, array_like=True, tag=2, gc=False):
    """A call that was refused as a whole."""

    number: int
    error: ErrorBody


class Deliver(msgspec.Struct, array_like=True, tag=3, gc=False):
    """Leased messages for a channel."""

    channel: int
    deliveries: list[Delivery]


class Ended(msgspec.Struct, array_like=True, tag=4, gc=False):
    """A channel on which nothing will come any more, because its queue is gone or the server goes down."""

    channel: int
    error: ErrorBody


FromServer: TypeAlias = Answer | Refused | Deliver | Ended

_FIRST_OF_ARRAY = 0x80
"""The first byte of a frame's tag is below this, that of a frame within an array of frames is not."""
_ARRAY_16, _ARRAY_32 = 0xDC, 0xDD


def is_many(data: bytes) -> bool:
    """Tell whether a message holds an array of frames rather than one frame."""
    if len(data) < 2:  # noqa: PLR2004 - the head of an array and something in it
        return False
    head = data[0]
    at = 3 if head == _ARRAY_16 else 5 if head == _ARRAY_32 else 1
    return len(data) > at and data[at] >= _FIRST_OF_ARRAY


_encoder = msgspec.msgpack.Encoder()
_call, _calls = msgspec.msgpack.Decoder(Call), msgspec.msgpack.Decoder(list[Call])
_frame, _frames = msgspec.msgpack.Decoder(FromServer), msgspec.msgpack.Decoder(list[FromServer])


def calls_of(data: bytes) -> list[Call]:
    """Return the calls in a message from a client.

    Raises:
        msgspec.DecodeError: it holds none.
    """
    return _calls.decode(data) if is_many(data) else [_call.decode(data)]


def frames_of(data: bytes) -> list[FromServer]:
    """Return the frames in a message from a server.

    Raises:
        msgspec.DecodeError: it holds none.
    """
    return _frames.decode(data) if is_many(data) else [_frame.decode(data)]


def message_of(frames: list[Call] | list[FromServer]) -> bytes:
    """Return the message that holds these frames, as an array of them."""
    return _encoder.encode(frames)
