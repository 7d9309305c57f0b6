"""The words of the ASGI protocol, as far as the doors speak them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, Protocol, TypeAlias

Scope: TypeAlias = MutableMapping[str, Any]
Event: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Event]]
Send: TypeAlias = Callable[[Event], Awaitable[None]]

SHORT_WAY: Final = "fairlane.short_way"
"""The extension of a WebSocket's scope that is a ``ShortWay``; only our own server has it."""


class ShortWay(Protocol):
    """A WebSocket whose messages are handed over by plain calls, without a task or a queue between."""

    @property
    def has_room(self) -> bool:
        """Whether the client reads what it is sent."""

    @property
    def is_open(self) -> bool:
        """Whether anything can still be sent."""

    def take(self, on_message: Callable[[bytes], None], on_room: Callable[[], None]) -> None:
        """From now on hand each binary message to the one, and tell the other when there is room to write again."""

    def write(self, message: bytes) -> None:
        """Send a message."""

    def hold(self) -> None:
        """Hand on and read nothing until ``go_on``."""

    def go_on(self) -> None:
        """Read on."""


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
