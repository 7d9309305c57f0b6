"""Large raw payloads over HTTP: a body becomes pieces as it arrives, and a payload is sent piece by piece.

Either way, at most a few pieces are in memory, whatever the size. A body that arrives faster than its pieces are stored
is not read from the socket meanwhile, and a payload is read from the store only as fast as the caller takes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from typing import Final, cast

import msgspec

from fairlane.errors import FairlaneError, TooManyWaiters
from fairlane.gateway.caller import Caller
from fairlane.model.message import Delivery, Key
from fairlane.model.uploads import UploadView
from fairlane.server.context import ServerContext
from fairlane.server.interfaces.exchange import RAW, Exchange, Gone
from fairlane.server.receiving.arrivals import FREE_BYTES
from fairlane.verbs.uploads import BeginUpload, DropUpload, PayloadRange, ReadPayload, UploadPiece

WHOLE_BYTES_MAX: Final = 1024 * 1024
"""A body that is not longer is one request; a longer one is stored in pieces."""
_IN_FLIGHT: Final = 8
_RETRY_S: Final = 0.1


# ------------------------------------------------------------------------------------------------------------------ in


async def received(
    server: ServerContext, exchange: Exchange, caller: Caller, queue: str, fairness_key: Key | None
) -> bytes | BodyUpload:
    """Return the body of a request, or the upload that has it if it is long.

    Raises:
        FairlaneError: it was refused; nothing of it is kept.
        Gone: the caller has disconnected; nothing of it is kept.
    """
    parts, first, length = exchange.parts(), bytearray(), exchange.content_length
    whole_max = min(WHOLE_BYTES_MAX, server.limits.body_bytes_max)
    if length is None or length <= whole_max:
        with ExitStack() as until_read:
            async for part in parts:
                if len(first) <= FREE_BYTES < len(first) + len(part):
                    until_read.callback((await exchange.admitted(length or whole_max)).end)
                first += part
                if len(first) > whole_max:
                    break
            else:
                return bytes(first)
    upload = BodyUpload(server, exchange, caller, queue)
    try:
        await upload.begin(fairness_key, length)
        await upload.store(first, parts)
    except BaseException:
        upload.abandon()
        raise
    return upload


class BodyUpload:
    """The upload of the body of one request."""

    def __init__(self, server: ServerContext, exchange: Exchange, caller: Caller, queue: str) -> None:
        self._server = server
        self._caller = caller
        self._context = exchange.context()
        self._queue = queue
        self._slots = asyncio.Semaphore(_IN_FLIGHT)
        self._piece_bytes = 0
        self.id = ""

    async def begin(self, fairness_key: Key | None, size: int | None) -> None:
        """Begin the upload, before anything of a body is read whose size is known."""
        request = BeginUpload(queue=self._queue, fairness_key=fairness_key, size=size)
        begun = cast("UploadView", await self._server.call(request, self._caller, self._context))
        self.id, self._piece_bytes = begun.id, begun.piece_bytes

    async def store(self, buffer: bytearray, parts: AsyncIterator[bytes]) -> None:
        """Store a body as it arrives, after what is in the buffer. A piece that is refused ends the reading."""
        try:
            async with asyncio.TaskGroup() as storing:
                async for index, data in _pieces(buffer, parts, self._piece_bytes):
                    await self._slots.acquire()
                    piece = UploadPiece(queue=self._queue, id=self.id, index=index, data=data)
                    storing.create_task(self._store(piece))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from failures

    async def _store(self, piece: UploadPiece) -> None:
        while True:
            try:
                await self._server.call(piece, self._caller, self._context)
            except TooManyWaiters:  # other uploads of this caller are under way
                await asyncio.sleep(_RETRY_S)
            else:
                self._slots.release()
                return

    def abandon(self) -> None:
        """Drop the upload without waiting for that: its body broke off, or no message has taken it."""
        if self.id:
            self._server.begin(self._drop())

    async def _drop(self) -> None:
        with suppress(FairlaneError):  # then it is dropped after a silence
            await self._server.call(DropUpload(queue=self._queue, id=self.id), self._caller, self._context)


async def _pieces(buffer: bytearray, parts: AsyncIterator[bytes], piece_bytes: int) -> AsyncIterator[tuple[int, bytes]]:
    """Yield a body as numbered pieces of one size; the last may be shorter."""
    index = 0
    async for part in parts:
        buffer += part
        while len(buffer) >= piece_bytes:
            yield index, bytes(memoryview(buffer)[:piece_bytes])
            del buffer[:piece_bytes]
            index += 1
    for at in range(0, len(buffer), piece_bytes):
        yield index + at // piece_bytes, bytes(buffer[at : at + piece_bytes])


# ----------------------------------------------------------------------------------------------------------------- out


async def send_delivery(
    server: ServerContext, exchange: Exchange, caller: Caller, delivery: Delivery, headers: dict[str, str]
) -> None:
    """Answer with the payload of a delivery, piece by piece.

    Raises:
        Gone: the caller has disconnected before the end.
        TooMuchUnread: other connections have too much to read already, so nothing was sent.
        FairlaneError: the lease has ended, or the store failed; the answer ends early.
    """
    request = ReadPayload(queue=delivery.queue, id=delivery.id, token=delivery.token)
    parts = _parts(server, exchange, caller, request, delivery.payload_size or 0)
    await _send(exchange, parts, headers | {"content-length": str(delivery.payload_size or 0)})


async def send_payload(server: ServerContext, exchange: Exchange, caller: Caller, request: ReadPayload) -> None:
    """Answer with a payload from an offset on, up to ``count`` bytes or the end; see ``send_delivery``."""
    first = cast("PayloadRange", await server.call(request, caller, exchange.context()))
    left = max(0, first.size - request.offset)
    count = left if request.count is None else min(request.count, left)
    rest = msgspec.structs.replace(request, offset=request.offset + len(first.data))
    parts = _parts(server, exchange, caller, rest, count - len(first.data))
    await _send(exchange, parts, {"x-fairlane-size": str(first.size), "content-length": str(count)}, first.data)


async def _parts(
    server: ServerContext, exchange: Exchange, caller: Caller, request: ReadPayload, count: int
) -> AsyncIterator[bytes]:
    """Yield ``count`` bytes of a payload from an offset on, up to the end of a piece at a time."""
    context, offset, end = exchange.context(), request.offset, request.offset + count
    while offset < end:
        part = msgspec.structs.replace(request, offset=offset, count=end - offset)
        data = cast("PayloadRange", await server.call(part, caller, context)).data
        if not data:
            raise Gone
        yield data
        offset += len(data)


async def _send(exchange: Exchange, parts: AsyncIterator[bytes], headers: dict[str, str], data: bytes = b"") -> None:
    """Send parts of a payload. One of them is in memory at a time, and counts as unread."""
    data = data or await anext(parts, b"")
    room = exchange.room_for(len(data))
    hanging_up = asyncio.ensure_future(exchange.hung_up())
    try:
        await exchange.begin(RAW, headers=headers)
        while data:
            if hanging_up.done():
                raise Gone
            await exchange.more(data)
            data = await anext(parts, b"")
            room.clear()
            room.add(len(data))
        await exchange.end()
    finally:
        hanging_up.cancel()
        room.clear()
