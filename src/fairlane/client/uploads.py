"""Enqueues a payload of any size: reads it from its source piece by piece, and uploads the pieces.

A payload that is smaller than a piece is enqueued as it is. A larger one is uploaded with a few pieces under way at the
same time, so that the memory it takes does not depend on its size, and then enqueued by the name of the upload. If
anything fails, the upload is dropped; if this program is killed, the broker drops it after a silence.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final, Protocol, TypeAlias, cast

from fairlane.errors import FairlaneError, InvalidArgument, TooManyWaiters
from fairlane.model.limits import PIECE_BYTES
from fairlane.model.message import Key
from fairlane.model.uploads import UploadView

PayloadInput: TypeAlias = str | os.PathLike[str] | BinaryIO | Iterable[bytes] | AsyncIterable[bytes] | bytes
"""What a payload is read from: the path of a file, a binary file, an iterable of bytes, or bytes."""
_IN_FLIGHT: Final = 8
_RETRY_S: Final = 0.1
_READ_BYTES: Final = 256 * 1024
_END: Final = object()
_NONE_READ: Final = "The file has no bytes yet and returned None; a payload is read from a file in blocking mode."
_NONE_YIELDED: Final = "A payload is read as bytes, got None; leave out the parts that are None."


class Uploading(Protocol):
    """The part of a client that uploads."""

    async def begin_upload(self, queue: str, *, fairness_key: Key | None = None, size: int | None = None) -> UploadView:
        """Begin an upload."""

    async def upload_piece(self, queue: str, upload_id: str, index: int, data: bytes) -> None:
        """Store a piece."""

    async def drop_upload(self, queue: str, upload_id: str) -> None:
        """Drop an upload."""


async def parts_of(source: PayloadInput) -> AsyncIterator[bytes]:
    """Yield the bytes of a source in parts of any size. Files and iterables are read in a thread, as they may block.

    Raises:
        InvalidArgument: it is nothing that a payload can be read from.
    """
    if isinstance(source, bytes | bytearray | memoryview):
        yield bytes(source)
    elif isinstance(source, str | os.PathLike):
        with await asyncio.to_thread(Path(source).open, "rb") as opened:
            async for part in parts_of(opened):
                yield part
    elif hasattr(source, "read"):
        file = cast("BinaryIO", source)
        while part := _checked(await asyncio.to_thread(file.read, _READ_BYTES), _NONE_READ):
            yield part
    elif isinstance(source, AsyncIterable):
        async for part in source:
            yield _checked(part)
    elif isinstance(source, Iterable):
        following = partial(next, iter(source), _END)
        while (given := await asyncio.to_thread(following)) is not _END:
            yield _checked(given)
    else:
        raise InvalidArgument(f"Expected a path, a binary file or an iterable of bytes, got {type(source).__name__}.")


def _checked(part: object, none: str = _NONE_YIELDED) -> bytes:
    if part is None:
        raise InvalidArgument(none)
    if not isinstance(part, bytes | bytearray | memoryview):
        raise InvalidArgument(f"A payload must be bytes, got {type(part).__name__}; open the file in binary mode.")
    return bytes(part)


async def pieces_of(parts: AsyncIterator[bytes], piece_bytes: int) -> AsyncIterator[bytes]:
    """Yield parts as pieces of one size; the last may be shorter."""
    buffer = bytearray()
    async for part in parts:
        buffer += part
        while len(buffer) >= piece_bytes:
            yield bytes(memoryview(buffer)[:piece_bytes])
            del buffer[:piece_bytes]
    if buffer:
        yield bytes(buffer)


class PayloadUpload:
    """An upload that is under way."""

    def __init__(self, client: Uploading, queue: str, *, fairness_key: Key | None) -> None:
        self._client = client
        self._queue = queue
        self._fairness_key = fairness_key
        self._view: UploadView | None = None
        self._slots = asyncio.Semaphore(_IN_FLIGHT)

    async def send(self, source: PayloadInput) -> bytes | str:
        """Upload a payload and return the id of the upload, or return the payload itself if it is small.

        Raises:
            FairlaneError: it was refused, and the upload was dropped.
        """
        parts = parts_of(source)
        first = bytearray()
        async for part in parts:
            first += part
            if len(first) > PIECE_BYTES:
                break
        else:
            return bytes(first)
        self._view = await self._client.begin_upload(
            self._queue, fairness_key=self._fairness_key, size=_known_size(source)
        )
        await self._store_all(self._view, _rejoined(bytes(first), parts))
        return self._view.id

    async def _store_all(self, view: UploadView, parts: AsyncIterator[bytes]) -> None:
        """Store a payload as it is read. A piece that is refused ends the reading."""
        index = 0
        try:
            async with asyncio.TaskGroup() as storing:
                async for piece in pieces_of(parts, view.piece_bytes):
                    await self._slots.acquire()
                    storing.create_task(self._store(view.id, index, piece))
                    index += 1
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from failures

    async def _store(self, upload_id: str, index: int, piece: bytes) -> None:
        while True:
            try:
                await self._client.upload_piece(self._queue, upload_id, index, piece)
            except TooManyWaiters as error:  # other uploads of this caller are under way
                await asyncio.sleep(_RETRY_S if error.retry_after_ms is None else error.retry_after_ms / 1000)
            else:
                self._slots.release()
                return

    async def drop(self) -> None:
        """Drop the upload, because it failed or no message has taken it."""
        if self._view is not None:
            with suppress(FairlaneError):  # then it is dropped after a silence
                await self._client.drop_upload(self._queue, self._view.id)


def _known_size(source: PayloadInput) -> int | None:
    """Return the size of a file that is given by its path, or of bytes; None if it shows only at the end."""
    if isinstance(source, bytes | bytearray):
        return len(source)
    path = Path(source) if isinstance(source, str | os.PathLike) else None
    return path.stat().st_size if path is not None and path.is_file() else None


async def _rejoined(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for part in rest:
        yield part
