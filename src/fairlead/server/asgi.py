"""The words of the ASGI protocol, as far as the doors speak them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

Scope: TypeAlias = MutableMapping[str, Any]
Event: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Event]]
Send: TypeAlias = Callable[[Event], Awaitable[None]]


def header(scope: Scope, name: bytes) -> str | None:
    """Return the value of a request header, the first if there are several, or None. The name is in lower case."""
    for field, value in scope["headers"]:
        if field == name:
            text: str = value.decode("latin-1")
            return text.strip()
    return None


def address_of(scope: Scope) -> str | None:
    """Return the address a request comes from, without the port; None if nobody knows."""
    client = scope.get("client")
    return None if client is None else str(client[0])
