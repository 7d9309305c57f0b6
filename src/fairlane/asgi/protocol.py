"""The words of the ASGI protocol, as far as the middleware speaks them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]
"""An application. Each framework has types of its own for the three arguments, so ours must not insist."""


def header(scope: Scope, name: str) -> str | None:
    """Return the value of a request header, the first if there are several, or None if there is none.

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
