"""The HTTP server: uvicorn behind our own acceptor, with our own connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator
from typing import Final

from fairlane.server.acceptor import Acceptor
from fairlane.server.context import ServerContext
from fairlane.server.interfaces.http import HttpInterface
from fairlane.server.listener import BACKLOG
from fairlane.server.settings import ServerSettings, check_tls

try:
    import uvicorn

    from fairlane.server.interfaces.websocket import QuickSocket
except ImportError as error:
    raise ImportError("The server needs uvicorn and websockets: install fairlane[server].") from error

from fairlane.server.interfaces.http_connection import HttpConnection

_CLOSE_S: Final = 5


def http_config(app: HttpInterface, settings: ServerSettings) -> uvicorn.Config:
    """Return how uvicorn serves an application."""
    return uvicorn.Config(
        app,
        lifespan="off",
        log_config=None,
        access_log=False,
        http=HttpConnection,
        ws=QuickSocket,
        ws_max_size=settings.limits.body_bytes_max,
        ws_per_message_deflate=False,  # compression takes longer than a fast network
        server_header=False,
        proxy_headers=settings.trusted_proxies is not None,
        forwarded_allow_ips=settings.trusted_proxies or "",
        backlog=BACKLOG,
        timeout_graceful_shutdown=_CLOSE_S,
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
        ssl_ca_certs=settings.tls_client_ca,
        ssl_cert_reqs=ssl.CERT_REQUIRED if settings.tls_client_ca is not None else ssl.CERT_NONE,
    )


class HttpServer(uvicorn.Server):
    """A uvicorn server that accepts through an ``Acceptor``, and leaves signals to us."""

    def __init__(
        self,
        context: ServerContext,
        settings: ServerSettings,
        listener: socket.socket,
        *,
        first_reserved: int | None = None,
    ) -> None:
        """Serve nothing before ``serve``.

        Args:
            context: what is served.
            settings: how it is served.
            listener: where connections arrive.
            first_reserved: see ``Acceptor``.
        """
        self._app = HttpInterface(context)
        super().__init__(http_config(self._app, settings))
        self._context = context
        self._listener = listener
        self._first_reserved = first_reserved
        self._acceptor: Acceptor | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections, none of them through uvicorn."""
        await super().startup(sockets=sockets or [])
        self._acceptor = Acceptor(
            self._listener,
            self._context.connections,
            self._new_connection,
            tls=self.config.ssl,
            handshake_s=self._context.limits.handshake_timeout_ms / 1000,
            first_reserved=self._first_reserved,
        )
        self._acceptor.start()

    def _new_connection(self) -> HttpConnection:
        return HttpConnection(
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
            _loop=asyncio.get_running_loop(),
        )

    def renew_tls(self, settings: ServerSettings) -> None:
        """Use the TLS files as they are now for new connections.

        Raises:
            InvalidArgument: a file cannot be used; those that were read before stay in use.
        """
        check_tls(settings)
        renewed = http_config(self._app, settings)
        renewed.load()
        if self._acceptor is not None:
            self._acceptor.tls = renewed.ssl
        self._context.tls_renewals += 1

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept nothing more, and end the connections."""
        if self._acceptor is not None:
            await self._acceptor.stop()
        await super().shutdown(sockets=sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signals."""
        yield
