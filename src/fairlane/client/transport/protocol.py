"""The client's side of the stream protocol, without I/O: it numbers calls, builds frames, and matches answers.

A connection sends the frames, several in one message, and passes received messages to ``receive``. Replies are futures
of any kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from fairlane.errors import Closed, Disconnected, FairlaneError
from fairlane.model.message import Delivery, Receipt
from fairlane.model.trace import TraceContext
from fairlane.verbs.errors import error_of
from fairlane.verbs.leases import Lease, LeasedMessages, Nack
from fairlane.verbs.messages import Enqueue, EnqueueResults
from fairlane.verbs.table import VERBS
from fairlane.verbs.verb import Reply, Shape
from fairlane.wire.additions import answer_decoder, known_frames
from fairlane.wire.columns import (
    EnqueuedEither,
    LeasedColumns,
    LeasedEither,
    deliveries_in,
    request_in_columns,
    request_in_rows,
    results_in,
)
from fairlane.wire.frames import (
    CONSUME,
    STOP,
    WIDEN,
    WITHDRAW,
    Answer,
    Cancelled,
    Consume,
    Ended,
    Refused,
    Stop,
    Widen,
    Withdraw,
    is_many,
)

_CALL_TAG: Final = 0
_decode_enqueued = answer_decoder(EnqueuedEither)
_decode_leased = answer_decoder(LeasedEither)


def _enqueued(data: msgspec.Raw) -> EnqueueResults:
    return EnqueueResults(results=results_in(_decode_enqueued(data)))


def _leased(data: msgspec.Raw) -> LeasedMessages:
    return LeasedMessages(deliveries=deliveries_in(_decode_leased(data).deliveries))


_ANSWERS: Final[dict[str, Callable[[msgspec.Raw], Any]]] = {
    **{name: answer_decoder(verb.answer) for name, verb in VERBS.items()},
    Enqueue.verb.name: _enqueued,
    Lease.verb.name: _leased,
}
"""How answers are decoded. Those of the hot verbs may have columns, and then say so."""
_ENCODER: Final = msgspec.msgpack.Encoder()
_FIXED_ARRAY, _ARRAY_16, _FIXED_MAX, FRAMES_MAX = 0x90, b"\xdc", 16, 256
"""The first bytes of an array in msgpack, and the most frames in one message."""
_MESSAGE_BYTES: Final = 64 << 10
"""Above this size joining frames saves nothing, and only delays the first of them."""


class _Delivered(msgspec.Struct, array_like=True, tag=3, gc=False):
    """A ``Deliver`` with deliveries as a list or as columns."""

    channel: int
    deliveries: list[Delivery] | LeasedColumns


_FromServer: TypeAlias = Answer | Refused | _Delivered | Ended | Cancelled
_frame_in = msgspec.msgpack.Decoder(_FromServer).decode
_frames = msgspec.msgpack.Decoder(list[_FromServer]).decode


def _frames_in(data: bytes) -> list[_FromServer]:
    try:
        return _frames(data) if is_many(data) else [_frame_in(data)]
    except msgspec.ValidationError:
        return known_frames(data, _FromServer)


class Sink(Protocol):
    """Receives the messages of a channel."""

    def deliver(self, deliveries: list[Delivery]) -> None:
        """Accept leased messages."""

    def ended(self, error: FairlaneError) -> None:
        """Note that the channel has ended, and why. If the connection is lost, so are its leases."""

    def cancelled(self, ids: Sequence[str]) -> None:
        """Note messages that were cancelled, whose leases have ended; others than those held are ignored."""

    def withdraw(self, matches: Callable[[str], bool]) -> list[Delivery]:
        """Remove and return messages with matching ids that no handler has seen yet.

        The leases of all messages with matching ids may be lost. Other messages are not affected.
        """


OnLate: TypeAlias = Callable[[list[Delivery]], None]


class _Waiting(msgspec.Struct, gc=False):
    verb: str
    reply: Reply
    due: float


class _Channel(msgspec.Struct, gc=False):
    sink: Sink
    received: int = 0


class Conversation:
    """The calls and channels of one connection.

    Attributes:
        has_columns: whether the server knows columns.
    """

    def __init__(self, *, on_late: OnLate | None = None) -> None:
        """Start without calls and channels.

        Args:
            on_late: called with messages that arrive for a cancelled lease call or a stopped channel. By default
                the former are returned, and the latter left to the server.
        """
        self._on_late = on_late
        self.has_columns = False
        self._numbers = count(1)
        self._waiting: dict[int, _Waiting] = {}
        self._channels: dict[int, _Channel] = {}

    def call(self, verb: str, request: Shape, reply: Reply, *, due: float, trace: TraceContext | None = None) -> bytes:
        """Return the frame of a call. Its answer goes to ``reply``; after ``due``, ``expire`` fails it."""
        number = next(self._numbers)
        request = request_in_columns(request) if self.has_columns else request_in_rows(request)
        frame = _frame(number, verb, request) if trace is None else _traced_frame(number, verb, request, trace)
        self._waiting[number] = _Waiting(verb, reply, due)
        return frame

    @property
    def is_waiting(self) -> bool:
        """Whether an answer is still to come."""
        return bool(self._waiting)

    @property
    def is_single(self) -> bool:
        """Whether exactly one answer is still to come."""
        return len(self._waiting) == 1

    def withdraw(self, reply: Reply) -> bytes | None:
        """Return the frame that ends a call whose reply no caller waits for; None if it has been answered.

        If the server has leased messages before it reads the frame, they arrive and are returned.
        """
        for number, entry in self._waiting.items():
            if entry.reply is reply:
                return _frame(next(self._numbers), WITHDRAW, Withdraw(call=number))
        return None

    def open(self, request: Consume, reply: Reply, sink: Sink, *, due: float) -> tuple[int, bytes]:
        """Return the number of a new channel and the frame that opens it."""
        number = next(self._numbers)
        frame = _frame(number, CONSUME, request)
        self._waiting[number] = _Waiting(CONSUME, reply, due)
        self._channels[number] = _Channel(sink)
        return number, frame

    def stop(self, channel: int, unseen: Sequence[str], reply: Reply, *, due: float) -> bytes | None:
        """Return the frame that closes a channel; None if it is already closed."""
        entry = self._channels.pop(channel, None)
        if entry is None:
            return None
        request = Stop(channel=channel, unseen=tuple(unseen), received=entry.received)
        return self.call(STOP, request, reply, due=due)

    def widen(self, channel: int, handlers: int) -> bytes | None:
        """Return the frame that changes the number of handlers of a channel; None if it is closed."""
        if channel not in self._channels:
            return None
        return _frame(next(self._numbers), WIDEN, Widen(channel=channel, handlers=handlers))

    def forget(self, channel: int) -> None:
        """Drop further deliveries of a channel."""
        self._channels.pop(channel, None)

    def abandon(self, channel: int, reply: Reply, *, due: float) -> bytes:
        """Return the frame that closes a channel whose deliveries were dropped, so that all return as unseen."""
        return self.call(STOP, Stop(channel=channel, received=0), reply, due=due)

    def receive(self, data: bytes) -> list[bytes]:
        """Process a received message, and return the frames to send in response.

        Raises:
            msgspec.DecodeError: the message is not valid.
        """
        returns: list[bytes] = []
        for frame in _frames_in(data):
            kind = type(frame)
            if kind is Answer:
                self._answer(frame, returns)  # type: ignore[arg-type] # checked by its type
            elif kind is _Delivered:
                self._deliver(frame)  # type: ignore[arg-type] # checked by its type
            elif isinstance(frame, Refused):
                self._refuse(frame)
            elif isinstance(frame, Cancelled):
                if (channel := self._channels.get(frame.channel)) is not None:
                    channel.sink.cancelled(frame.ids)
            elif isinstance(frame, Ended) and (entry := self._channels.get(frame.channel)) is not None:
                entry.sink.ended(error_of(frame.error))
        return returns

    def lose(self, error: FairlaneError) -> None:
        """Fail all calls and end all channels, because the connection is lost."""
        waiting, self._waiting = self._waiting, {}
        channels, self._channels = self._channels, {}
        for entry in waiting.values():
            if not entry.reply.done():
                entry.reply.set_exception(Disconnected(error.args[0]))
        for channel in channels.values():
            channel.sink.ended(error)

    def expire(self, now: float) -> None:
        """Fail the calls whose answer is overdue."""
        for entry in [entry for entry in self._waiting.values() if entry.due <= now]:
            if not entry.reply.done():
                entry.reply.set_exception(Disconnected(f"The server did not answer {entry.verb!r} in time."))

    def _answer(self, frame: Answer, returns: list[bytes]) -> None:
        entry = self._waiting.pop(frame.number, None)
        if entry is None:
            return
        decode = _ANSWERS.get(entry.verb)
        answer = None if decode is None else decode(frame.answer)
        if not entry.reply.done():
            entry.reply.set_result(answer)
        elif isinstance(answer, LeasedMessages) and (frame_back := self.give_back(answer)) is not None:
            returns.append(frame_back)

    def _deliver(self, frame: _Delivered) -> None:
        channel = self._channels.get(frame.channel)
        deliveries = list(deliveries_in(frame.deliveries))
        if channel is not None:
            channel.received += len(deliveries)
            channel.sink.deliver(deliveries)
        elif self._on_late is not None:  # the server takes back what it sent after a stop, unless the queue was moving
            self._on_late(deliveries)

    def _refuse(self, frame: Refused) -> None:
        entry = self._waiting.pop(frame.number, None)
        self._channels.pop(frame.number, None)
        if entry is not None and not entry.reply.done():
            error = error_of(frame.error)
            going_down = isinstance(error, Closed)  # the server is closing, not this client; another one will answer
            entry.reply.set_exception(Disconnected(error.cause) if going_down else error)

    def give_back(self, leased: LeasedMessages) -> bytes | None:
        """Return the frame that returns messages of a caller that is gone; None if ``on_late`` takes them."""
        deliveries = list(leased.deliveries)
        if not deliveries:
            return None
        if self._on_late is not None:
            self._on_late(deliveries)
            return None
        receipts = [Receipt(id=delivery.id, token=delivery.token) for delivery in deliveries]
        request = Nack(queue=deliveries[0].queue, receipts=receipts, intent="defer")
        return _frame(next(self._numbers), "nack", request)


def _frame(number: int, verb: str, request: Shape) -> bytes:
    return _ENCODER.encode((_CALL_TAG, number, verb, request))


def _traced_frame(number: int, verb: str, request: Shape, trace: TraceContext) -> bytes:
    return _ENCODER.encode((_CALL_TAG, number, verb, request, trace))


def grouped(frames: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Group frames into messages: small ones together, to save cost, and large ones alone, to save time."""
    begin = size = 0
    for end, frame in enumerate(frames):
        if size and (size + len(frame) > _MESSAGE_BYTES or end - begin >= FRAMES_MAX):
            yield frames[begin:end]
            begin, size = end, 0
        size += len(frame)
    if size:
        yield frames[begin:]


def message_of(frames: Sequence[bytes]) -> bytes:
    """Return the message with these frames, at most ``FRAMES_MAX``.

    It is an array even for one frame, which tells the server that this client understands arrays.
    """
    count = len(frames)
    head = bytes((_FIXED_ARRAY | count,)) if count < _FIXED_MAX else _ARRAY_16 + count.to_bytes(2)
    return b"".join((head, *frames))
