"""Reads the payload of a leased message piece by piece, for asyncio."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Protocol, Self

from fairlane.client.message_fields import MessageFields
from fairlane.verbs.uploads import PayloadRange


class AsyncPayloadSource(Protocol):
    """The part of a client that a reader uses."""

    async def read_payload(
        self, queue: str, message_id: str, *, token: int | None = None, offset: int = 0, count: int | None = None
    ) -> PayloadRange:
        """Return some of the payload of a message."""


class AsyncPayloadReader:
    """The payload of a leased message as a stream of bytes. It keeps one piece in memory.

    Read it with ``read``, or iterate over the pieces as they come. Reading extends the lease. A reader that pauses for
    as long as the lease lasts fails with ``LeaseMismatch``.

    Attributes:
        size: the size of the whole payload.
    """

    def __init__(self, client: AsyncPayloadSource, message: MessageFields) -> None:
        self._client = client
        self._message = message
        self.size = message.size
        self._offset = 0
        self._rest = memoryview(message.source.payload)

    async def read(self, size: int = -1) -> bytes:
        """Return up to ``size`` bytes, by default all that are left; no bytes at the end.

        Raises:
            MessageNotFound, LeaseMismatch: the lease has ended; stop the work.
        """
        parts: list[bytes] = []
        while size and (piece := await self._some(size)):
            parts.append(piece)
            size = size - len(piece) if size > 0 else size
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        piece = await self._some(-1)
        if not piece:
            raise StopAsyncIteration
        return piece

    async def copy_to(self, path: str | os.PathLike[str]) -> None:
        """Write what is left to a file. An existing file is replaced."""
        with await asyncio.to_thread(Path(path).open, "wb") as file:
            async for piece in self:
                await asyncio.to_thread(file.write, piece)

    async def _some(self, size: int) -> bytes:
        """Return some of the next bytes, up to ``size`` unless that is negative; no bytes at the end."""
        if not self._rest and self._offset < self.size:
            message = self._message
            found = await self._client.read_payload(message.queue, message.id, token=message.token, offset=self._offset)
            self._rest = memoryview(found.data)
        taken = self._rest if size < 0 else self._rest[:size]
        self._rest = self._rest[len(taken) :]
        self._offset += len(taken)
        return bytes(taken)
