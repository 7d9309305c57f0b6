"""Accepts connections, as many as the limits and the file descriptors of the process allow.

The server accepts connections itself, because ``loop.create_server`` reports one only after its TLS handshake. So
connections that never complete it are counted, bounded and closed like all others.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from fairlane.errors import TooManyConnections
from fairlane.server.connections import Connections
from fairlane.verbs.errors import body_of
from fairlane.wire.errors import ErrorAnswer

if TYPE_CHECKING:
    from fairlane.server.interfaces.http_connection import HttpConnection

ACCEPTED_MAX: Final = 16
"""Connections that are accepted at once. The event loop closes a displaced connection only in its next pass, so as many
descriptors of the reserve may be in use for a moment."""
REFUSED_MAX: Final = 16
"""Refused connections that stay open so that their clients can read why. They use descriptors of the reserve, too."""
_LAST_WORD_S: Final = 1.0
_READ_BYTES: Final = 65_536
_PAUSE_S: Final = 0.1
"""How long the server accepts nothing when the operating system has no descriptor left."""
_LOG_EVERY_S: Final = 10.0
_EXHAUSTED: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
_log = logging.getLogger("fairlane.server")


def _refusal() -> bytes:
    error = TooManyConnections("The server has too many connections.", retry_after_ms=1_000)
    body = msgspec.json.encode(ErrorAnswer(error=body_of(error)))
    head = (
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body


REFUSAL: Final = _refusal()
"""The answer to a connection that is refused before it has sent anything."""


class Acceptor:
    """Accepts the connections of one listening socket.

    Attributes:
        tls: how to speak TLS with new connections.
    """

    def __init__(
        self,
        listener: socket.socket,
        connections: Connections,
        create: Callable[[], HttpConnection],
        *,
        tls: ssl.SSLContext | None = None,
        handshake_s: float,
        first_reserved: int | None = None,
    ) -> None:
        """Accept nothing before ``start``.

        Args:
            listener: where connections arrive; it does not block.
            connections: counts them.
            create: creates the protocol of a connection.
            tls: how to speak TLS; None for plain connections.
            handshake_s: how long a TLS handshake may take.
            first_reserved: descriptors from this number on are not for connections; None for no such bound.
        """
        self._listener = listener
        self._connections = connections
        self._create = create
        self.tls = tls
        self._handshake_s = handshake_s if tls is not None else None
        self._first_reserved = first_reserved
        self._loop = asyncio.get_running_loop()
        self._openings: set[asyncio.Task[None]] = set()
        self._refused: dict[socket.socket, asyncio.TimerHandle] = {}
        self._resuming: asyncio.TimerHandle | None = None
        self._logged_s = -_LOG_EVERY_S

    def start(self) -> None:
        """Accept from now on."""
        self._resuming = None
        self._loop.add_reader(self._listener.fileno(), self._accept)

    async def stop(self) -> None:
        """Accept nothing more, and end handshakes that are under way."""
        if self._resuming is not None:
            self._resuming.cancel()
        self._loop.remove_reader(self._listener.fileno())
        self._listener.close()
        for refused in list(self._refused):
            self._close_refused(refused)
        for opening in self._openings:
            opening.cancel()
        await asyncio.gather(*self._openings, return_exceptions=True)

    def _accept(self) -> None:
        """Accept the connections that have arrived, a few at a time."""
        for _ in range(ACCEPTED_MAX):
            try:
                accepted, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(error)
                return
            self._open(accepted, str(address[0]))

    def _pause(self, error: OSError) -> None:
        """Accept nothing for a moment: the connection stays in the listener's backlog, which would report it again."""
        is_exhausted = error.errno in _EXHAUSTED
        if is_exhausted:
            self._connections.closed["descriptors"] += 1
        now_s = self._loop.time()
        if now_s - self._logged_s >= _LOG_EVERY_S:
            self._logged_s = now_s
            level, trace = (logging.WARNING, None) if is_exhausted else (logging.ERROR, error)
            _log.log(level, "Accepting no connections for a moment: %s.", error.strerror, exc_info=trace)
        self._loop.remove_reader(self._listener.fileno())
        self._resuming = self._loop.call_later(_PAUSE_S, self.start)

    def _open(self, accepted: socket.socket, address: str) -> None:
        accepted.settimeout(0)
        is_last = self._first_reserved is not None and accepted.fileno() >= self._first_reserved
        connection = self._connections.begin(address, is_last=is_last)
        if connection is None:
            self._refuse(accepted)
            return
        protocol = self._create()
        protocol.count_in(connection, self._connections)
        opening = self._loop.create_task(self._hand_over(accepted, protocol))
        connection.close = opening.cancel
        self._openings.add(opening)
        opening.add_done_callback(self._openings.discard)
        opening.add_done_callback(lambda task: accepted.close() if task.cancelled() else None)  # it never began

    def _refuse(self, accepted: socket.socket) -> None:
        """Close a connection that can't be served, after its client has sent something and been answered.

        A socket that is closed while the client sends is reset, and the client never reads the answer. So a few of
        them stay open for a moment.
        """
        if self.tls is not None or len(self._refused) >= REFUSED_MAX:
            accepted.close()
            return
        self._refused[accepted] = self._loop.call_later(_LAST_WORD_S, self._close_refused, accepted)
        self._loop.add_reader(accepted.fileno(), self._answer_refused, accepted)

    def _answer_refused(self, accepted: socket.socket) -> None:
        self._loop.remove_reader(accepted.fileno())
        try:
            if accepted.recv(_READ_BYTES):
                accepted.send(REFUSAL)
                accepted.shutdown(socket.SHUT_WR)
                return
        except OSError:
            pass  # it has gone
        self._close_refused(accepted)

    def _close_refused(self, accepted: socket.socket) -> None:
        self._loop.remove_reader(accepted.fileno())
        self._refused.pop(accepted).cancel()
        accepted.close()

    async def _hand_over(self, accepted: socket.socket, protocol: HttpConnection) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: protocol, accepted, ssl=self.tls, ssl_handshake_timeout=self._handshake_s
            )
        except (OSError, asyncio.CancelledError) as error:  # it broke off, speaks no TLS, or took too long
            protocol.count_out(is_late=isinstance(error, ConnectionAbortedError))
            accepted.close()
        except BaseException:
            protocol.count_out()
            accepted.close()
            raise
