"""Requests of web pages, while authentication is disabled.

A browser sends requests for any page that it shows, even to servers that only its own machine or network can reach.
Without API keys two headers have to tell these requests apart. ``Origin`` names the page's site, which must be this
server's. ``Host`` names the server that the browser believes it is asking: a site can point its own name to our address
(DNS rebinding), but it can't make the browser send another name, nor an IP address.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Sequence
from typing import Final
from urllib.parse import urlsplit

from fairlane.errors import Forbidden, InvalidArgument
from fairlane.server.interfaces.asgi import Headers

ANY_ADDRESS: Final = "any IP address"
"""Stands for all IP addresses among the allowed hosts; no host has this name."""
_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_SITES: Final = {"http": "http", "https": "https", "ws": "http", "wss": "https"}


def check_host_once(fields: Sequence[tuple[bytes, bytes]]) -> None:
    """Refuse a request with several ``Host`` headers, of which a proxy may have read another one than we do.

    Raises:
        InvalidArgument: it has several.
    """
    count = sum(name == b"host" for name, _ in fields)
    if count > 1:
        raise InvalidArgument(f"The request has {count} Host headers; it may have only one.")


def check_origin(headers: Headers, scheme: str, hosts: Collection[str] | None) -> None:
    """Refuse a request that a browser sends for a page of another site.

    Args:
        headers: the headers of the request.
        scheme: how the request arrived: ``http``, ``https``, ``ws`` or ``wss``.
        hosts: the names in ``Host`` that are allowed; None for any.

    Raises:
        Forbidden: its host is not allowed, or its origin is another site.
    """
    host = headers.get(b"host", "")
    name, port = _split(host)
    if hosts is not None and not _is_allowed(name, hosts):
        expected = ", ".join(sorted(hosts))
        raise Forbidden(f"Host {host!r:.100} is not allowed; expected one of {expected}. Add it to allowed_hosts.")
    origin = headers.get(b"origin")
    if origin is not None and _site(origin) != (_SITES.get(scheme), name, port or _PORTS.get(scheme)):
        raise Forbidden(f"Cross-origin request from {origin!r:.100} rejected: authentication is disabled.")


def _split(host: str) -> tuple[str, int | None]:
    """Return the name and the port of a host, such as ``localhost:7420`` or ``[::1]:7420``."""
    name, _, port = host.rpartition(":")
    if not name or not port.isdecimal() or not port.isascii():
        return host.strip("[]").lower(), None
    return name.strip("[]").lower(), int(port[:6])


def _site(origin: str) -> tuple[str, str, int | None] | None:
    try:
        parts = urlsplit(origin)
        return parts.scheme, parts.hostname or "", parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return None


def _is_allowed(name: str, hosts: Collection[str]) -> bool:
    if name in hosts:
        return True
    if ANY_ADDRESS not in hosts:
        return False
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
