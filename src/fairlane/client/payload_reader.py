"""Reads the payload of a leased message piece by piece, for threads."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from fairlane.client.message_fields import MessageFields
from fairlane.verbs.uploads import PayloadRange

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_BUFFER_BYTES = 512 * 1024


class PayloadSource(Protocol):
    """The part of a client that a reader uses."""

    def read_payload(
        self, queue: str, message_id: str, *, token: int | None = None, offset: int = 0, count: int | None = None
    ) -> PayloadRange:
        """Return some of the payload of a message."""


class _RawPayload(io.RawIOBase):
    """A payload without a buffer. It keeps one piece in memory."""

    def __init__(self, message: MessageFields, read_from: Callable[[int], bytes]) -> None:
        self._read_from = read_from
        self._size = message.size
        self._offset = 0
        self._rest = memoryview(message.delivery.payload)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read some bytes into a buffer, and return how many; 0 at the end."""
        if not self._rest and self._offset < self._size:
            self._rest = memoryview(self._read_from(self._offset))
        target = memoryview(buffer).cast("B")
        taken = self._rest[: len(target)]
        target[: len(taken)] = taken
        self._rest = self._rest[len(taken) :]
        self._offset += len(taken)
        return len(taken)


class PayloadReader(io.BufferedReader):
    """The payload of a leased message as a binary file to read from. It keeps one or two pieces in memory.

    Reading extends the lease. A reader that pauses for as long as the lease lasts fails with ``LeaseMismatch``.

    Attributes:
        size: the size of the whole payload.
    """

    def __init__(self, client: PayloadSource, message: MessageFields) -> None:
        def read_from(offset: int) -> bytes:
            return client.read_payload(message.queue, message.id, token=message.token, offset=offset).data

        super().__init__(_RawPayload(message, read_from), _BUFFER_BYTES)
        self.size = message.size

    def copy_to(self, path: str | os.PathLike[str]) -> None:
        """Write what is left to a file. An existing file is replaced."""
        with Path(path).open("wb") as file:
            shutil.copyfileobj(self, file, _BUFFER_BYTES)
