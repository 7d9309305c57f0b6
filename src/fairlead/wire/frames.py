"""The stream: msgpack frames over one WebSocket, many requests in flight at once, and deliveries as they come.

A client sends ``Call`` frames, each with a number of its own choosing that is not in use, and gets an ``Answer`` or a
``Refused`` with that number, in any order. ``consume`` opens a channel: the call's number then names the channel, and
``Deliver`` frames come on it as long as there is credit, that is as long as fewer messages than that are neither acked,
nacked nor expired. ``stop`` closes a channel. When the connection goes, its channels are closed and what they had in
flight goes back to its queue.

Frames are arrays, told apart by their first element.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from fairlead.model.message import Delivery
from fairlead.wire.errors import ErrorBody
from fairlead.wire.verbs import Shape

VERSION = 1
CONSUME, STOP = "consume", "stop"
"""The verbs that only the stream has."""


class Consume(Shape, frozen=True, kw_only=True):
    """Open a channel of deliveries."""

    queue: str
    credit: int = 32
    visibility_ms: int | None = None
    owner: str | None = None
    with_state: bool = False


class Stop(Shape, frozen=True, kw_only=True):
    """Close a channel. What it had in flight goes back: as deferred what is named here, the rest as failed attempts."""

    channel: int
    unseen: tuple[str, ...] = ()


class Call(msgspec.Struct, array_like=True, tag=0, gc=False):
    """A request: its number, the name of the verb, and the verb's own request."""

    number: int
    verb: str
    request: msgspec.Raw


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
