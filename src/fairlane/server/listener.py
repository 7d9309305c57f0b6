"""The listening socket of a server, and the banner that says where everything is."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final

from fairlane import __version__
from fairlane.assembly import shown_url
from fairlane.errors import InvalidArgument
from fairlane.server.settings import MEMORY, ServerSettings

BACKLOG: Final = 2048
"""Connections that the kernel queues before the server accepts them."""
_PROBES: Final = {"TCP_KEEPIDLE": 20, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 2}
"""After 20 seconds without a byte, two probes 10 seconds apart: a vanished client is noticed within 40 seconds."""


def listen(settings: ServerSettings) -> socket.socket:
    """Open the listening socket. Raises InvalidArgument if the address is not available."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _detect_vanished(listener)
        listener.bind(address)
        listener.listen(BACKLOG)  # connections queue up here and are served once everything is open
    except OSError as error:
        raise InvalidArgument(f"Cannot listen on {settings.host}:{settings.port}: {error}.") from error
    listener.setblocking(False)  # noqa: FBT003 - its only argument
    return listener


def _detect_vanished(listener: socket.socket) -> None:
    """Check idle connections with TCP probes, which accepted sockets inherit.

    A long poll sends nothing for as long as it waits. Without probes, a client that lost its power or network would
    hold its connection and its place for that long, and be given a message.
    """
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PROBES.items():
        if hasattr(socket, name):
            listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def address_of(settings: ServerSettings, listener: socket.socket) -> str:
    """Return the URL at which the server listens."""
    host, port = listener.getsockname()[:2]
    at = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return f"{'https' if settings.has_tls else 'http'}://{at}"


def print_banner(
    settings: ServerSettings, listener: socket.socket, grpc_address: str | None, echo: Callable[[str], None]
) -> None:
    """Print the addresses of everything the server offers."""
    address = address_of(settings, listener)
    stream = address.replace("http", "ws", 1)
    lines = {
        "stream": f"{stream}/v1/stream",
        "gRPC": grpc_address,
        "dashboard": f"{address}/",
        "API docs": f"{address}/docs",
        "metrics": f"{address}/metrics",
        "traces": settings.otlp_endpoint,
        "data": _data_of(settings),
        "node": settings.node and f"{settings.node}, advertised as {settings.advertise or address}",
        "auth": _auth_of(settings),
    }
    echo(f"Fairlane {__version__} listens on {address}")
    for name, value in lines.items():
        if value is not None:
            echo(f"  {name:<10} {value}")


def _auth_of(settings: ServerSettings) -> str:
    if settings.requires_auth:
        return "API keys required"
    return f"authentication disabled ({'loopback only' if settings.is_loopback else 'insecure'})"


def _data_of(settings: ServerSettings) -> str:
    if settings.store is not None:
        return shown_url(settings.store)
    return "in memory; lost when the process ends" if settings.data == MEMORY else settings.data
