"""uvicorn's WebSocket with a direct way in and out: plain calls, without a task or a queue in between.

The application finds it among the extensions of its scope. From then on it gets each binary message in the call that
read it, and what it sends is written at once. Handshake, pings, closing and everything unusual go through uvicorn.

A client that breaks the protocol is told why before the connection ends. A connection that is closed while its client
still sends is reset, and then the client never reads the reason. So data that follows is read and dropped for a while.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode

from fairlane.server.connections import SCOPE_KEY, Connections, OpenConnection
from fairlane.server.interfaces.asgi import DIRECT_SOCKET
from fairlane.server.limits import CallLimits
from fairlane.server.receiving.arrivals import FREE_BYTES, Reservation
from fairlane.server.receiving.incoming import IncomingMessage
from fairlane.wire.framing import FrameCutter, head_of

if TYPE_CHECKING:
    from uvicorn._types import ASGISendEvent
    from websockets.frames import Frame
    from websockets.http11 import Request


PARTS_MAX: Final = 16_384
"""Parts of one message. The largest message has them if each has 1.5 KiB, about what a packet carries."""
OTHERS_MAX: Final = 256
"""Frames that are not messages, such as pings and parts, handled at once: a read can hold 40,000, and others wait."""
_LAST_WORD_S: Final = 2.0
"""How long a client that broke the protocol may take to read the reason."""


class QuickSocket(WebSocketsSansIOProtocol):
    """One connection, and its ``DirectSocket``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - they are uvicorn's
        super().__init__(*args, **kwargs)
        self._cutter: FrameCutter | None = None
        self._on_message: Callable[[bytes], None] = _nothing
        self._on_room: Callable[[], None] = _nothing
        self._is_dismissed = False
        self._is_held = False
        self._others = 0
        self._counted: tuple[OpenConnection, Connections] | None = None
        self._incoming: IncomingMessage | None = None
        self._parts_bytes = 0

    # ------------------------------------------------------------------------------------------- for the application

    def take(
        self, on_message: Callable[[bytes], None], on_capacity: Callable[[], None], reservation: Reservation
    ) -> None:
        """Hand binary messages over from now on; see ``DirectSocket``."""
        limits = CallLimits() if self._counted is None else self._counted[1].limits
        self._incoming = IncomingMessage(reservation, limits, self)
        self._on_message, self._on_room = on_message, on_capacity
        self._cutter = FrameCutter(
            is_masked=True, size_max=self.config.ws_max_size, on_message=self._hand_on, on_other=self._receive_cut
        )

    @property
    def has_capacity(self) -> bool:
        """Whether the client reads what it is sent."""
        return self.writable.is_set()

    @property
    def is_open(self) -> bool:
        """Whether anything can still be sent."""
        return not (self.disconnected or self.close_sent or self.transport.is_closing())

    @property
    def is_sending(self) -> bool:
        """Return False: the transport takes every message at once."""
        return False

    def write(self, message: bytes) -> None:
        """Send a message."""
        self.transport.writelines((head_of(len(message)), message))

    def hold(self) -> None:
        """Read nothing and hand nothing over until ``resume``."""
        self._is_held = True
        self._pause()

    def resume(self) -> None:
        """Read on."""
        self._is_held = False
        if self._others < OTHERS_MAX:
            self._go_on()

    def _pause(self) -> None:
        if self._cutter is not None and not self._cutter.is_held:
            self._cutter.is_held = True
            self.stop_reading()

    def _go_on(self) -> None:
        if self._cutter is not None and self._cutter.is_held:
            self._cutter.is_held = False
            self.read_on()
            self._cutter.go_on()
            self._note_unfinished(0)

    def stop_reading(self) -> None:
        """Read nothing for now."""
        if not self.transport.is_closing():
            self.transport.pause_reading()

    def read_on(self) -> None:
        """Read, unless messages are held back or the one that is being received has to wait."""
        is_held = self._cutter is not None and self._cutter.is_held
        is_waiting = self._incoming is not None and self._incoming.is_waiting
        if not (is_held or is_waiting or self.transport.is_closing()):
            self.transport.resume_reading()

    def refuse(self, code: CloseCode, reason: str) -> None:
        """Close the connection because of the message that is being received."""
        if self.is_open and not self._is_dismissed:
            self.conn.fail(code, reason)
            self.handle_parser_exception()
            self._cutter = None  # what follows is dropped
            self.transport.resume_reading()

    def _note_unfinished(self, received: int) -> None:
        """Count the message of which a part has come, and of which more may come."""
        cutter, incoming = self._cutter, self._incoming
        if cutter is None or incoming is None:
            return
        expected = cutter.unfinished
        if self._parts_bytes:  # how many more parts there are is unknown
            expected = max(expected, FREE_BYTES if self._parts_bytes <= FREE_BYTES else self.config.ws_max_size)
        if expected or incoming.expected:
            incoming.note(expected, received, is_held=cutter.is_held)

    def _take_turn(self) -> None:
        """Begin another turn of handling frames, after everyone else had one."""
        self._others = 0
        if not self._is_held:
            self._go_on()

    # ---------------------------------------------------------------------------------------------- for uvicorn

    def count_in(self, counted: OpenConnection, registry: Connections) -> None:
        """Count the connection until it is lost."""
        self._counted = (counted, registry)
        if self.handshake_initiated and not self.close_sent:
            scope: Any = self.scope
            scope[SCOPE_KEY] = counted

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        super().connection_lost(exc)
        if self._incoming is not None:
            self._incoming.note(0, 0, is_held=False)
        if self._counted is not None:
            counted, registry = self._counted
            registry.end(counted)

    async def send(self, message: ASGISendEvent) -> None:
        """Send an event of the application. After a refusal the handshake is over, which uvicorn does not note."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            self.handshake_complete = True

    def handle_connect(self, event: Request) -> None:
        """Begin, and offer the direct socket to the application."""
        super().handle_connect(event)
        if not self.close_sent:
            self.scope["extensions"][DIRECT_SOCKET] = self  # type: ignore[assignment] # uvicorn declares them as dicts

    def data_received(self, data: bytes) -> None:
        """Take data the direct way once the application has asked for it."""
        if self._cutter is None or self._is_dismissed:
            self._receive_other(data)
        else:
            self._cutter.receive(data)
            self._note_unfinished(len(data))

    def _receive_cut(self, frame: bytes) -> None:
        """Take a frame that is not a message, and let others have a turn when there are many."""
        self._receive_other(frame)
        self._others += 1
        if self._others == 1:
            self.loop.call_soon(self._take_turn)
        if self._others >= OTHERS_MAX:
            self._pause()

    def _receive_other(self, data: bytes) -> None:
        if not self._is_dismissed:
            super().data_received(data)

    def handle_parser_exception(self) -> None:
        """Close the connection of a client that broke the protocol, and leave it time to read the reason."""
        close = self.conn.close_sent
        if close is None:  # the handshake is not over, so nothing can be said
            self._is_dismissed = True
            self.transport.close()
            return
        self._is_dismissed = self.close_sent = True
        self.frames = []
        self.queue.put_nowait({"type": "websocket.disconnect", "code": close.code, "reason": close.reason})
        self.transport.write(b"".join(self.conn.data_to_send()))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.close_timer = self.loop.call_later(_LAST_WORD_S, self.transport.close)  # not when the application ends

    def handle_cont(self, event: Frame) -> None:
        """Keep a part of a message; an empty one too takes memory, so their number is limited."""
        if self._is_dismissed:
            return
        if len(self.frames) < PARTS_MAX:
            if len(self.frames) == 1:  # the part that the message began with
                self._parts_bytes = len(self.frames[0])
            self._parts_bytes += len(event.data)
            super().handle_cont(event)
        else:
            self.conn.fail(CloseCode.MESSAGE_TOO_BIG, f"a message has more than {PARTS_MAX} parts")
            self.handle_parser_exception()

    def send_receive_event_to_app(self) -> None:
        """Hand over a message that came in parts."""
        self._parts_bytes = 0
        if self._cutter is None or self.curr_msg_data_type == "text":
            super().send_receive_event_to_app()
            return
        data = b"".join(self.frames)
        self.frames = []
        self._hand_on(data)

    def _hand_on(self, data: bytes) -> None:
        if self.is_open:
            self._on_message(data)

    def resume_writing(self) -> None:
        """Report that more can be written."""
        super().resume_writing()
        self._on_room()


def _nothing(*_: object) -> None:
    """Do nothing: the application has not taken the direct socket yet."""
