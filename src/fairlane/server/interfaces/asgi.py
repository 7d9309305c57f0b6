"""The parts of ASGI that the interfaces use, and the direct way to a WebSocket that our own server adds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final, Protocol, TypeAlias

from fairlane.server.receiving.arrivals import Reservation

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

    @property
    def is_sending(self) -> bool:
        """Whether the last message has not been taken by the connection."""

    def take(
        self, on_message: Callable[[bytes], None], on_capacity: Callable[[], None], reservation: Reservation
    ) -> None:
        """Call ``on_message`` with each binary message from now on, and ``on_capacity`` when more can be written.

        Messages that are being received are counted in the reservation.
        """

    def write(self, message: bytes) -> None:
        """Send a message."""

    def hold(self) -> None:
        """Read nothing and hand nothing over until ``resume``."""

    def resume(self) -> None:
        """Read on."""


def address_of(scope: Scope) -> str | None:
    """Return the address a request comes from, without the port; None if the server does not know it."""
    client = scope.get("client")
    return None if client is None else str(client[0])


class AsgiSocket:
    """A ``DirectSocket`` over the events of any ASGI server, for servers that are not ours.

    It sends one message at a time. ``run`` sends, and the task that receives waits for ``may_read`` after each message.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._message: bytes | None = None
        self._written = asyncio.Event()
        self._on_capacity: Callable[[], None] = lambda: None
        self.on_message: Callable[[bytes], None] = lambda _data: None
        self.is_open = True
        self.may_read = asyncio.Event()
        self.may_read.set()

    @property
    def has_capacity(self) -> bool:
        """Whether the last message has been taken."""
        return self._message is None

    @property
    def is_sending(self) -> bool:
        """Whether the last message has not been taken, or never will be."""
        return self._message is not None

    def take(
        self, on_message: Callable[[bytes], None], on_capacity: Callable[[], None], reservation: Reservation
    ) -> None:
        """Hand messages over from now on. What it receives, the ASGI server has received already."""
        del reservation
        self.on_message, self._on_capacity = on_message, on_capacity

    def write(self, message: bytes) -> None:
        """Send a message."""
        self._message = message
        self._written.set()

    def hold(self) -> None:
        """Read nothing until ``resume``."""
        self.may_read.clear()

    def resume(self) -> None:
        """Read on."""
        self.may_read.set()

    async def run(self) -> None:
        """Send what is written, until cancelled or the connection is gone."""
        while True:
            await self._written.wait()
            self._written.clear()
            await self._send({"type": "websocket.send", "bytes": self._message})
            self._message = None
            self._on_capacity()
