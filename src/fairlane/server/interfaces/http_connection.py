"""One connection of our own server: it is counted, and a request that does not arrive in time ends it.

A request head has to arrive as a whole within ``head_timeout_ms``, beginning with the connection or the first byte of
a later request. A body may take as long as it needs at ``body_bytes_per_second_min``, which is checked every
``body_timeout_ms``. Between requests a connection may be idle for ``idle_timeout_ms``, which uvicorn watches.

A request that arrives in one piece, as most do, costs no timer. An incomplete one starts a timer, which checks the
connection when it fires. The time that the server itself needs, for an earlier request or to take what has arrived,
does not make a request late.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

from fairlane.server.connections import SCOPE_KEY, Connections, OpenConnection
from fairlane.server.interfaces.request_head import BoundedHeadProtocol
from fairlane.server.interfaces.websocket import QuickSocket
from fairlane.server.limits import CallLimits

_ANSWER: Final = (
    "HTTP/1.1 408 Request Timeout\r\ncontent-type: text/plain; charset=utf-8\r\n"
    "content-length: {}\r\nconnection: close\r\n\r\n{}"
)


class HttpConnection(BoundedHeadProtocol):
    """A connection with timeouts, which is counted once ``count_in`` is called."""

    limits = CallLimits()
    counted: OpenConnection | None = None
    registry: Connections | None = None
    _is_whole = False
    _timer: asyncio.TimerHandle | None = None
    _watched: object = None
    _body_bytes = 0

    # -------------------------------------------------------------------------------------------------------- counting

    def count_in(self, counted: OpenConnection, registry: Connections) -> None:
        """Count the connection from now until it is lost, and keep to the limits of all."""
        self.counted, self.registry, self.limits = counted, registry, registry.limits
        idle_s: Any = registry.limits.idle_timeout_ms / 1000  # uvicorn declares whole seconds
        self.timeout_keep_alive = idle_s

    def count_out(self, *, is_late: bool = False) -> None:
        """Stop counting the connection, which is gone; ``is_late`` if its TLS handshake took too long."""
        if self.counted is not None and self.registry is not None:
            if is_late and self.counted.is_open:
                self._count("handshake_timeout")
            self.registry.end(self.counted)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, and wait for the first request."""
        transport = cast("asyncio.Transport", transport)
        super().connection_made(transport)
        if self.counted is not None:
            self.counted.close = transport.abort
            if not self.counted.is_open:  # it was displaced during its handshake
                transport.abort()
                return
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        super().connection_lost(exc)
        self._unwatch()
        self.count_out()

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over to the protocol of WebSockets, which counts it from then on."""
        self._unwatch()
        self._is_whole = True
        super().handle_websocket_upgrade()
        protocol = self.transport.get_protocol()
        if isinstance(protocol, QuickSocket) and self.counted is not None and self.registry is not None:
            protocol.count_in(self.counted, self.registry)

    # -------------------------------------------------------------------------------------------------------- requests

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self._is_whole = False
        scope: Any = self.scope
        scope[SCOPE_KEY] = self.counted

    def on_message_complete(self) -> None:
        """End a request."""
        super().on_message_complete()
        self._is_whole = True

    def data_received(self, data: bytes) -> None:
        """Take data, and start the clock of a request that is not complete."""
        super().data_received(data)
        if self._is_whole:
            if self.timeout_keep_alive_task is None and self.cycle is not None and self.cycle.response_complete:
                self.on_stray_data()
            return
        self._body_bytes += len(data)
        if self._timer is None or self._arriving() is not self._watched:
            self._watch()

    def on_stray_data(self) -> None:
        """Start the idle timeout again that uvicorn ended for data that begins no request, such as an empty line."""
        if not self.transport.is_closing():
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP request, and close the connection."""
        self._count("malformed")
        super().send_400_response(msg)

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection."""
        self._count("idle_timeout")
        super().timeout_keep_alive_handler()

    # -------------------------------------------------------------------------------------------------------- timeouts

    def _arriving(self) -> object:
        """Return what identifies the head or body that is arriving: each request has a scope, each body a cycle."""
        return self.scope if self._is_in_head else self.cycle

    def _watch(self) -> None:
        """Look at the connection after the time that what is arriving may take."""
        self._unwatch()
        self._watched, self._body_bytes = self._arriving(), 0
        timeout_ms = self.limits.head_timeout_ms if self._is_in_head else self.limits.body_timeout_ms
        self._timer = self.loop.call_later(timeout_ms / 1000, self._on_time)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_time(self) -> None:
        """Close the connection if what was arriving when the timer started still is, and is too slow."""
        self._timer = None
        if self.transport.is_closing() or self._is_whole:
            return
        if self._is_busy():
            self._watch()
            self._watched = None  # it has the full time again once the server is ready for it
        elif self._arriving() is not self._watched:
            self._watch()
        elif self._is_in_head:
            text = f"The request head takes longer than head_timeout_ms, {self.limits.head_timeout_ms}."
            self._close_late("head_timeout", text, is_answered=self.scope is None)
        elif self._body_bytes * 1000 < self.limits.body_bytes_per_second_min * self.limits.body_timeout_ms:
            rate = self.limits.body_bytes_per_second_min
            text = f"The request body arrives more slowly than body_bytes_per_second_min, {rate}."
            self._close_late("body_timeout", text, is_answered=self.cycle.response_started)
        else:
            self._watch()

    def _is_busy(self) -> bool:
        """Return whether the server itself delays what is arriving: an earlier request, or what has arrived of it."""
        is_answering = self._is_in_head and self.cycle is not None and not self.cycle.response_complete
        return self.flow.read_paused or bool(self.pipeline) or is_answering

    def _close_late(self, reason: str, text: str, *, is_answered: bool) -> None:
        self._count(reason)
        if not is_answered:
            self.transport.write(_ANSWER.format(len(text), text).encode())
        self.transport.close()

    def _count(self, reason: str) -> None:
        if self.registry is not None:
            self.registry.closed[reason] += 1
