"""The types of the ASGI protocol that the middleware uses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]
"""An application. Each framework has types of its own for the three arguments, so ours accept any."""


def header(scope: Scope, name: str) -> str | None:
    """Return the first value of a request header, or None.

    Args:
        scope: the ASGI scope of the request.
        name: the header's name, in any case.
    """
    wanted = name.lower().encode("latin-1")
    for field, value in scope["headers"]:
        if field == wanted:
            text: str = value.decode("latin-1")
            return text.strip()
    return None
