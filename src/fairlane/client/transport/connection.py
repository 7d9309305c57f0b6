"""One live connection to a server: a socket and the conversation over it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from fairlane.client.transport.protocol import Conversation, OnLate, Sink, grouped, message_of
from fairlane.client.transport.socket import PING_S, Socket, connect
from fairlane.errors import Disconnected, InvalidArgument, PayloadTooLarge
from fairlane.model.trace import TraceContext
from fairlane.verbs.messages import Enqueue
from fairlane.verbs.verb import Reply, Shape
from fairlane.wire.frames import COLUMNS, SUBPROTOCOL, Consume
from fairlane.wire.spin import LoopSpin

_SWEEP_S: Final = 0.5
T = TypeVar("T")


class Connection:
    """One live connection. Frames of one pass of the event loop are sent as one message."""

    def __init__(self, *, frame_bytes_max: int, on_late: OnLate | None = None) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._loop = asyncio.get_running_loop()
        self._conversation = Conversation(on_late=on_late)
        self._frames: list[bytes] = []
        self._socket: Socket | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self._spin = LoopSpin(self._loop.call_soon)
        self._expects = False
        self.is_live = False

    async def connect(
        self, url: str, *, headers: Mapping[str, str], tls: ssl.SSLContext | None, ping_s: float = PING_S
    ) -> None:
        """Connect. Errors of the network are raised as they are."""
        self._socket = await connect(
            url,
            headers=headers,
            subprotocols=(COLUMNS, SUBPROTOCOL),
            tls=tls,
            on_message=self._take,
            on_lost=self._lost,
            ping_s=ping_s,
        )
        self._conversation.has_columns = self._socket.subprotocol == COLUMNS
        self.is_live = True
        self._sweep = self._loop.call_later(_SWEEP_S, self._expire)

    def call(
        self,
        verb: str,
        request: Shape,
        reply: Reply,
        *,
        timeout_s: float,
        trace: TraceContext | None = None,
        at_once: bool = False,
    ) -> None:
        """Send a request and pass its answer to ``reply``. It is sent with others of this pass, or at once."""
        due = self._loop.time() + timeout_s
        frame = _made(lambda: self._conversation.call(verb, request, reply, due=due, trace=trace))
        if len(frame) > self._frame_bytes_max:  # the server would close the connection, also for all other callers
            most = self._frame_bytes_max
            reply.set_exception(PayloadTooLarge(f"The request has {len(frame)} bytes; the limit is {most}."))
            return
        self._expects = isinstance(request, Enqueue) or not getattr(request, "wait_ms", 0)
        if at_once and not self._frames:
            self._frames.append(frame)
            self._flush()
        else:
            self._put(frame)

    def withdraw(self, reply: asyncio.Future[Any]) -> None:
        """Withdraw a lease request whose caller is gone, or return the messages that it has leased."""
        leased = reply.result() if reply.done() and not reply.cancelled() and reply.exception() is None else None
        frame = self._conversation.withdraw(reply) if leased is None else self._conversation.give_back(leased)
        if frame is not None:
            self._put(frame)

    async def open(self, request: Consume, sink: Sink, *, timeout_s: float) -> int:
        """Open a channel and return its number."""
        reply: asyncio.Future[Any] = self._loop.create_future()
        due = self._loop.time() + timeout_s
        number, frame = _made(lambda: self._conversation.open(request, reply, sink, due=due))
        self._put(frame)
        try:
            await asyncio.shield(reply)
        except asyncio.CancelledError:
            self._conversation.forget(number)
            reply.add_done_callback(lambda reply: self._abandon(number, reply, timeout_s=timeout_s))
            raise
        return number

    def _abandon(self, channel: int, opened: asyncio.Future[Any], *, timeout_s: float) -> None:
        """Close a channel whose opener was cancelled, if it was opened."""
        if not opened.cancelled() and opened.exception() is None and self.is_live:
            reply: asyncio.Future[Any] = self._loop.create_future()
            reply.add_done_callback(asyncio.Future.exception)
            self._put(self._conversation.abandon(channel, reply, due=self._loop.time() + timeout_s))

    async def stop(self, channel: int, unseen: Sequence[str], *, timeout_s: float) -> None:
        """Close a channel."""
        reply: asyncio.Future[Any] = self._loop.create_future()
        frame = self._conversation.stop(channel, unseen, reply, due=self._loop.time() + timeout_s)
        if frame is not None:
            self._put(frame)
            await reply

    def widen(self, channel: int, handlers: int) -> None:
        """Change the number of handlers of a channel."""
        frame = self._conversation.widen(channel, handlers)
        if frame is not None:
            self._put(frame)

    async def close(self) -> None:
        """Send the remaining frames and close the connection."""
        self._flush()
        if self._socket is not None:
            await self._socket.close()

    def _put(self, frame: bytes) -> None:
        self._frames.append(frame)
        if len(self._frames) == 1:
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        frames, self._frames = self._frames, []
        if self._socket is not None:
            for some in grouped(frames):
                self._socket.send(message_of(some))
        if self._expects and self._conversation.is_single:
            self._spin.begin()

    def _take(self, message: bytes) -> None:
        self._spin.end()
        try:
            for frame in self._conversation.receive(message):
                self._put(frame)
        except msgspec.DecodeError as error:
            self._lost(f"the server sent a message that cannot be decoded: {error}")
            if self._socket is not None:
                self._socket.abort()

    def _lost(self, cause: str) -> None:
        self.is_live = False
        if self._sweep is not None:
            self._sweep.cancel()
        self._conversation.lose(Disconnected(f"The connection to the server was lost: {cause}."))

    def _expire(self) -> None:
        self._conversation.expire(self._loop.time())
        self._sweep = self._loop.call_later(_SWEEP_S, self._expire)


def _made(make: Callable[[], T]) -> T:
    try:
        return make()
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgument(f"Cannot encode the request: {error}.") from error
