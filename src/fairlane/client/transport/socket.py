"""One WebSocket on an event loop, with plain calls instead of tasks and queues.

Received messages are passed on in the call that read them, and sent messages are written at once. That keeps the
latency of a single call low. ``wire.framing`` parses and builds plain messages; the sans-I/O protocol of ``websockets``
handles the handshake, pings and closing.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, cast

from websockets.client import ClientProtocol
from websockets.exceptions import WebSocketException
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from fairlane.wire.framing import MASK_BYTES, FrameCutter, masked_frame_of

PING_S: Final = 20.0
_CLOSE_S: Final = 5.0
_BUFFER_BYTES_MAX: Final = 1 << 20
_HEAD_BYTES_MAX: Final = 1 << 16
_HEAD_END: Final = b"\r\n\r\n"


class Socket(asyncio.Protocol):
    """A WebSocket connection. It calls ``on_message`` with each message, and ``on_lost`` once when it has ended."""

    def __init__(
        self,
        protocol: ClientProtocol,
        *,
        headers: Mapping[str, str],
        on_message: Callable[[bytes], None],
        on_lost: Callable[[str], None],
        ping_s: float,
    ) -> None:
        self._protocol = protocol
        self._ping_s = ping_s
        self._headers = headers
        self._on_message = on_message
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._parts: list[bytes] = []
        self._parser = FrameCutter(is_masked=False, size_max=None, on_message=on_message, on_other=self._receive)
        self._handshake = bytearray()
        self._process: Callable[[bytes], None] = self._receive_handshake
        self._has_received = True
        self._is_paused = False
        self._later: list[bytes] = []
        self._ping: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self.opened: asyncio.Future[None] = self._loop.create_future()
        self.lost: asyncio.Future[None] = self._loop.create_future()

    @property
    def subprotocol(self) -> str | None:
        """The subprotocol that the server has chosen."""
        return self._protocol.subprotocol

    def send(self, message: bytes) -> None:
        """Send a message, or keep it until the network accepts more data."""
        if self._protocol.state is not State.OPEN:
            return  # on_lost ends the calls that wait for an answer
        if self._is_paused:
            self._later.append(message)
            return
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(masked_frame_of(message, os.urandom(MASK_BYTES)))

    async def close(self) -> None:
        """Send a close frame and wait a few seconds for the server's."""
        self.resume_writing()
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(1000)
            self._write()
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await asyncio.shield(self.lost)
        self.abort()
        await asyncio.shield(self.lost)

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    # ------------------------------------------------------------------------------------------- asyncio's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the handshake."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(_BUFFER_BYTES_MAX)
        request = self._protocol.connect()
        request.headers.update(self._headers)
        self._protocol.send_request(request)
        self._write()

    def data_received(self, data: bytes) -> None:
        """Process received bytes."""
        self._has_received = True
        self._process(data)

    def _receive_handshake(self, data: bytes) -> None:
        """Process the answer to the handshake. Bytes after its header may already be messages."""
        self._handshake += data
        end = self._handshake.find(_HEAD_END) + len(_HEAD_END)
        if end < len(_HEAD_END) and len(self._handshake) < _HEAD_BYTES_MAX:
            return
        head, rest = bytes(self._handshake[:end]), bytes(self._handshake[end:])
        self._handshake.clear()
        self._receive(head)
        self._process = self._parser.receive if self._protocol.state is State.OPEN else self._receive
        self._process(rest)

    def _receive(self, data: bytes) -> None:
        """Process bytes that are not plain messages."""
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if isinstance(event, Frame):
                self._take(event)
            elif isinstance(event, Response):
                self._answered()
        self._write()

    def eof_received(self) -> None:
        """Process the end of the stream; the transport closes by itself."""
        self._protocol.receive_eof()
        self._write()

    def connection_lost(self, error: Exception | None) -> None:
        """Report the end of the connection."""
        self._protocol.receive_eof()
        if self._ping is not None:
            self._ping.cancel()
        if not self.opened.done():
            cause = self._protocol.handshake_exc or error or ConnectionResetError("closed during the handshake")
            self.opened.set_exception(cause)
        else:
            self._on_lost(str(error or self._protocol.close_exc))
        self.lost.set_result(None)

    def pause_writing(self) -> None:
        """Keep messages until the network accepts more data."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Send the messages that were kept."""
        self._is_paused = False
        later, self._later = self._later, []
        for message in later:
            self.send(message)

    # ------------------------------------------------------------------------------------------------------ internals

    def _answered(self) -> None:
        if self._protocol.state is State.OPEN and not self.opened.done():
            self.opened.set_result(None)
            self._ping = self._loop.call_later(self._ping_s, self._on_ping)

    def _take(self, frame: Frame) -> None:
        if frame.opcode in (Opcode.BINARY, Opcode.TEXT, Opcode.CONT):
            if frame.fin and not self._parts:
                self._on_message(bytes(frame.data))
                return
            self._parts.append(bytes(frame.data))
            if frame.fin:
                parts, self._parts = self._parts, []
                self._on_message(b"".join(parts))

    def _on_ping(self) -> None:
        if not self._has_received:
            self.abort()
            return
        self._has_received = False
        with suppress(WebSocketException):
            self._protocol.send_ping(b"")
            self._write()
        self._ping = self._loop.call_later(self._ping_s, self._on_ping)

    def _write(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        for data in self._protocol.data_to_send():
            if data:
                transport.write(data)
            else:
                transport.close()


async def connect(
    url: str,
    *,
    headers: Mapping[str, str],
    subprotocols: Sequence[str],
    tls: ssl.SSLContext | None,
    on_message: Callable[[bytes], None],
    on_lost: Callable[[str], None],
    ping_s: float = PING_S,
) -> Socket:
    """Return a connected socket, after the handshake. A server that is silent for two pings counts as lost.

    Raises:
        OSError, WebSocketException: no server answers, or the handshake fails.
    """
    uri = parse_uri(url)
    protocol = ClientProtocol(uri, subprotocols=list(map(Subprotocol, subprotocols)), max_size=None)
    made = Socket(protocol, headers=headers, on_message=on_message, on_lost=on_lost, ping_s=ping_s)
    secured = (tls or ssl.create_default_context()) if uri.secure else None
    await asyncio.get_running_loop().create_connection(lambda: made, uri.host, uri.port, ssl=secured)
    try:
        await made.opened
    except BaseException:
        made.abort()
        raise
    return made
