"""The messages that a client sends while its request waits: kept in order for the application, within bounds."""

from __future__ import annotations

import asyncio
from collections import deque

from fairlane.asgi.protocol import Message, Receive

READ_AHEAD_MAX_BYTES = 65_536


class Inbox:
    """Reads ahead of the application, to detect that the client has left.

    A read that has begun is never cancelled and repeated: servers and other middleware may lose a message that way. The
    application takes over the pending read instead.
    """

    __slots__ = ("_body_bytes", "_messages", "_read", "_receive")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._messages: deque[Message] = deque()
        self._body_bytes = 0
        self._read: asyncio.Future[Message] | None = None

    async def wait_for(self, turn: asyncio.Future[None]) -> bool:
        """Read ahead until the turn has come. Return False as soon as the client has left.

        Once ``READ_AHEAD_MAX_BYTES`` of the body have been read it stops reading, and can no longer detect that.
        """
        while not turn.done():
            if self._body_bytes >= READ_AHEAD_MAX_BYTES:
                await asyncio.wait((turn,))
                return True
            read = self._begin_read()
            await asyncio.wait((turn, read), return_when=asyncio.FIRST_COMPLETED)
            if read.done():
                self._read = None
                message = read.result()
                if message["type"] == "http.disconnect":
                    return False
                self._body_bytes += len(message.get("body", b""))
                self._messages.append(message)
        return True

    async def receive(self) -> Message:
        """Return the next message: first those kept, then the pending read, then new ones."""
        while True:
            if self._messages:
                return self._messages.popleft()
            read = self._read
            if read is None:
                return await self._receive()
            await asyncio.wait((read,))
            if self._read is read:  # else another task of the application has taken this message
                self._read = None
                return read.result()

    def close(self) -> None:
        """Cancel a pending read."""
        if self._read is not None:
            self._read.cancel()

    def _begin_read(self) -> asyncio.Future[Message]:
        if self._read is None:
            self._read = asyncio.ensure_future(self._receive())
            self._read.add_done_callback(_see_error)
        return self._read


def _see_error(read: asyncio.Future[Message]) -> None:
    # Retrieve the exception, so that the event loop does not warn about a read whose result is no longer needed.
    if not read.cancelled():
        read.exception()
