"""One WebSocket in the calling thread: it writes and reads the socket itself, without an event loop.

A thread that waits for an answer waits in ``recv``, so the kernel wakes exactly this thread. The socket is blocking,
with a receive timeout of the kernel's: a timeout of Python's would cost one more system call for each read. As on an
event loop, ``wire.framing`` parses and builds plain messages, and ``websockets`` handles everything else.

Nothing here is safe for several threads; ``client.direct`` lends a socket to one thread at a time.
"""

from __future__ import annotations

import os
import socket
import struct
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from time import monotonic, perf_counter
from typing import Final, NoReturn

from websockets.client import ClientProtocol
from websockets.exceptions import WebSocketException
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from fairlane.wire.framing import MASK_BYTES, FrameCutter, masked_frame_of
from fairlane.wire.spin import SPIN_S, SpinRecord, may_spin

_READ_BYTES: Final = 1 << 18
_HEAD_END: Final = b"\r\n\r\n"


class BlockingSocket:
    """A WebSocket connection that blocks. It raises OSError when the connection is lost."""

    def __init__(
        self, url: str, *, headers: Mapping[str, str], subprotocols: Sequence[str], timeout_s: float, ping_s: float
    ) -> None:
        """Connect, and complete the handshake.

        Args:
            url: the address, which begins with ``ws:``.
            headers: additional headers of the handshake.
            subprotocols: the subprotocols to ask for, the preferred one first.
            timeout_s: how long connecting may take.
            ping_s: a server that is silent for two of these while a thread waits counts as lost.

        Raises OSError or WebSocketException if no server answers or the handshake fails.
        """
        uri = parse_uri(url)
        self._protocol = ClientProtocol(uri, subprotocols=list(map(Subprotocol, subprotocols)), max_size=None)
        self._messages: deque[bytes] = deque()
        self._parts: list[bytes] = []
        self._cutter = FrameCutter(
            is_masked=False, size_max=None, on_message=self._messages.append, on_other=self._receive_other
        )
        self._ping_s = ping_s
        self._timeout_s = 0.0
        self._spins = SpinRecord() if may_spin() else None
        self._socket = socket.create_connection((uri.host, uri.port), timeout=timeout_s)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._shake_hands(headers)
            self._socket.settimeout(None)
        except BaseException:
            self._socket.close()
            raise

    def _shake_hands(self, headers: Mapping[str, str]) -> None:
        request = self._protocol.connect()
        request.headers.update(headers)
        self._protocol.send_request(request)
        self._write_other()
        head = b""
        while _HEAD_END not in head:
            head += self._some()
        end = head.index(_HEAD_END) + len(_HEAD_END)
        self._protocol.receive_data(head[:end])
        self._protocol.events_received()
        if self._protocol.state is not State.OPEN:
            self._raise_refusal(head[end:])
        self._cutter.receive(head[end:])

    def _raise_refusal(self, body: bytes) -> NoReturn:
        """Raise why the handshake failed, which is known when the whole answer has been read."""
        while self._protocol.handshake_exc is None:
            self._protocol.receive_data(body)
            body = b"" if self._protocol.handshake_exc is not None else self._some()
        raise self._protocol.handshake_exc

    @property
    def subprotocol(self) -> str | None:
        """The subprotocol that the server has chosen."""
        return self._protocol.subprotocol

    def send(self, message: bytes) -> None:
        """Send a message."""
        self._socket.sendall(masked_frame_of(message, os.urandom(MASK_BYTES)))

    def receive(self, until_s: float, *, is_soon: bool = False) -> bytes:
        """Return the next message. Raises TimeoutError if none arrives until an instant of ``time.monotonic``.

        If it ``is_soon`` expected, the thread first stays awake for it for a moment.
        """
        is_asked = False
        if is_soon and self._spins is not None and not self._messages and self._spins.is_worth_it():
            self._spins.note(is_fruitful=self._spin())
        while not self._messages:
            left_s = until_s - monotonic()
            if left_s <= 0:
                raise TimeoutError
            self._wait_at_most(min(left_s, self._ping_s))
            try:
                data = self._some()
            except BlockingIOError:
                if is_asked:
                    raise TimeoutError from None
                is_asked = left_s > self._ping_s
                if is_asked:
                    self._protocol.send_ping(b"")
                    self._write_other()
                continue
            is_asked = False
            self._cutter.receive(data)
        return self._messages.popleft()

    def _spin(self) -> bool:
        """Read without sleeping until a message has come, for a moment at most; return whether one has."""
        until = perf_counter() + SPIN_S
        while not self._messages and perf_counter() < until:
            try:
                data = self._socket.recv(_READ_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                os.sched_yield()
                continue
            if not data:
                raise ConnectionResetError("closed by the server")
            self._cutter.receive(data)
        return bool(self._messages)

    def look(self) -> None:
        """Process what has arrived since the last call, such as pings, without waiting. Raises OSError at the end."""
        with suppress(BlockingIOError):
            while True:
                data = self._socket.recv(_READ_BYTES, socket.MSG_DONTWAIT)
                if not data:
                    raise ConnectionResetError("closed by the server")
                self._cutter.receive(data)

    def close(self) -> None:
        """Send a close frame if possible, and close the socket. A thread that waits in ``receive`` returns."""
        with suppress(OSError, WebSocketException):
            if self._protocol.state is State.OPEN:
                self._protocol.send_close(1000)
                self._write_other()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    # ------------------------------------------------------------------------------------------------------- internals

    def _wait_at_most(self, seconds: float) -> None:
        """Set how long a read may wait. Most calls have the same timeout, and change nothing."""
        rounded = max(round(seconds, 1), 0.01)
        if rounded != self._timeout_s:
            whole = int(rounded)
            value = struct.pack("@ll", whole, int((rounded - whole) * 1_000_000))
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
            self._timeout_s = rounded

    def _some(self) -> bytes:
        data = self._socket.recv(_READ_BYTES)
        if not data:
            raise ConnectionResetError("closed by the server")
        return data

    def _receive_other(self, data: bytes) -> None:
        """Process bytes that are not plain messages: the handshake, pings, closing, and messages in parts."""
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if isinstance(event, Frame) and event.opcode in (Opcode.BINARY, Opcode.TEXT, Opcode.CONT):
                self._parts.append(bytes(event.data))
                if event.fin:
                    self._messages.append(b"".join(self._parts))
                    self._parts.clear()
        self._write_other()
        if self._protocol.state in (State.CLOSING, State.CLOSED):
            received = self._protocol.close_rcvd
            raise ConnectionResetError("closed by the server" if received is None else str(received))

    def _write_other(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._socket.sendall(data)
