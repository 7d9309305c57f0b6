"""The stream: msgpack frames over one WebSocket, with many calls in flight and deliveries pushed as they come.

A client sends ``Call`` frames, each with a number of its own choosing that is not in use, and gets an ``Answer`` or a
``Refused`` with that number, in any order. ``consume`` opens a channel: the number of the call then names the channel,
and ``Deliver`` frames come on it while fewer messages than its credit are in flight. ``stop`` closes a channel. When
the connection is lost, its channels are closed and their messages in flight go back to the queue.

Frames are arrays with an integer as the first element. A WebSocket message holds one frame, or an array of frames,
which costs less if many are small. A server sends arrays of frames only after the client has sent one.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from fairlane.model.bounds import Calls, Ids
from fairlane.model.message import Delivery
from fairlane.model.trace import TraceContext
from fairlane.verbs.errors import ErrorBody
from fairlane.verbs.verb import Shape

VERSION = 1
SUBPROTOCOL, COLUMNS = "fairlane.v1", "fairlane.v2"
"""The subprotocols of the WebSocket at ``/v1/stream``. The second one is the first with columns (``wire.columns``)."""
CONSUME, STOP, WIDEN, WITHDRAW = "consume", "stop", "widen", "withdraw"
"""The verbs that exist only on the stream."""


class Consume(Shape, frozen=True, kw_only=True):
    """Open a channel of deliveries.

    Attributes:
        credit: how many messages may be in flight.
        handlers: how many messages the consumer processes at the same time. Messages with a deadline or a throttle, or
            of a key with a cap, are delivered only while fewer are in flight. None for as many as the credit.
    """

    queue: str
    credit: int = 32
    visibility_ms: int | None = None
    owner: str | None = None
    with_state: bool = False
    handlers: int | None = None


class Stop(Shape, frozen=True, kw_only=True):
    """Close a channel. Its messages in flight go back: unseen ones as deferred, the others as lost attempts.

    Attributes:
        unseen: messages that arrived and were not processed.
        received: how many messages have arrived on the channel in total; those sent after them are unseen too.
    """

    channel: int
    unseen: Ids = ()
    received: int | None = None


class Widen(Shape, frozen=True, kw_only=True):
    """Change how many messages the consumer of a channel processes at the same time; see ``Consume``."""

    channel: int
    handlers: int


class Withdraw(Shape, frozen=True, kw_only=True):
    """End a lease that still waits, which is answered without messages, or a wait for a message to change.

    Nothing happens if it was answered before.

    Attributes:
        call: the number of the call.
    """

    call: int


class WatchQueue(Shape, frozen=True, kw_only=True):
    """Ask for an event whenever messages arrive in a queue; over HTTP only."""

    queue: str


class Call(msgspec.Struct, array_like=True, tag=0, gc=False):
    """A call: its number, the name of the verb, the request, and the trace context."""

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
    """The end of a channel, because its queue was deleted or the server shuts down."""

    channel: int
    error: ErrorBody


class Cancelled(msgspec.Struct, array_like=True, tag=5, gc=False):
    """Messages of a channel that were cancelled. Their leases have ended, so their handlers should stop."""

    channel: int
    ids: list[str]


FromServer: TypeAlias = Answer | Refused | Deliver | Ended | Cancelled

_FIRST_OF_ARRAY = 0x80
"""The first byte of the tag of a frame is below this; the first byte of a frame in an array of frames is not."""
_ARRAY_16, _ARRAY_32 = 0xDC, 0xDD


def is_many(data: bytes) -> bool:
    """Return whether a message holds an array of frames instead of one frame."""
    if len(data) < 2:  # noqa: PLR2004 - the head of an array and something in it
        return False
    head = data[0]
    at = 3 if head == _ARRAY_16 else 5 if head == _ARRAY_32 else 1
    return len(data) > at and data[at] >= _FIRST_OF_ARRAY


_encoder = msgspec.msgpack.Encoder()
_call, _calls = msgspec.msgpack.Decoder(Call), msgspec.msgpack.Decoder(Calls[Call])
_frame, _frames = msgspec.msgpack.Decoder(FromServer), msgspec.msgpack.Decoder(list[FromServer])


def calls_of(data: bytes) -> list[Call]:
    """Return the calls in a message from a client. Raises msgspec.DecodeError if the message is malformed."""
    return _calls.decode(data) if is_many(data) else [_call.decode(data)]


def frames_of(data: bytes) -> list[FromServer]:
    """Return the frames in a message from a server. Raises msgspec.DecodeError if the message is malformed."""
    return _frames.decode(data) if is_many(data) else [_frame.decode(data)]


def message_of(frames: list[Call] | list[FromServer]) -> bytes:
    """Encode frames as one message."""
    return _encoder.encode(frames)
