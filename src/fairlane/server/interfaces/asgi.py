"""The parts of ASGI that the interfaces use, and the direct way to a WebSocket that our own server adds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final, Protocol, TypeAlias

Scope: TypeAlias = MutableMapping[str, Any]
Event: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Event]]
Send: TypeAlias = Callable[[Event], Awaitable[None]]
Headers: TypeAlias = Mapping[bytes, str]
"""The headers of a request, by their names in lower case."""

DIRECT_SOCKET: Final = "fairlane.direct_socket"
"""The extension of a WebSocket's scope that is a ``DirectSocket``; only our own server has it."""


class DirectSocket(Protocol):
    """A WebSocket whose messages are handed over by plain calls, without a task or a queue in between."""

    @property
    def has_capacity(self) -> bool:
        """Whether the client reads what it is sent."""

    @property
    def is_open(self) -> bool:
        """Whether anything can still be sent."""

    def take(self, on_message: Callable[[bytes], None], on_capacity: Callable[[], None]) -> None:
        """Call ``on_message`` with each binary message from now on, and ``on_capacity`` when more can be written."""

    def write(self, message: bytes) -> None:
        """Send a message."""

    def hold(self) -> None:
        """Read nothing and hand nothing over until ``resume``."""

    def resume(self) -> None:
        """Read on."""


def headers_of(scope: Scope) -> dict[bytes, str]:
    """Return the headers of a request. Of several with the same name, the first counts."""
    return {name: value.decode("latin-1").strip() for name, value in reversed(scope["headers"])}


def address_of(scope: Scope) -> str | None:
    """Return the address a request comes from, without the port; None if the server does not know it."""
    client = scope.get("client")
    return None if client is None else str(client[0])
