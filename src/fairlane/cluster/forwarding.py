"""Asking another node on a caller's behalf: a verb as a POST of msgpack, over connections that are kept.

What another node answers bit by bit is listened to over a connection of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

import msgspec

from fairlane.errors import Disconnected, FairlaneError, InternalError, QueueMoving
from fairlane.gateway.protocol import RemoteAnswer
from fairlane.verbs.errors import error_of
from fairlane.verbs.table import VERBS
from fairlane.wire.errors import ErrorAnswer

_OK: Final = 200
_MSGPACK: Final = "application/msgpack"
_KEPT: Final = 32
"""Connections to one node that are kept while nobody needs them."""
_IDLE_S: Final = 2.0
"""A connection that was idle for longer may be one that the other side is about to close."""
_CONNECT_S: Final = 2.0
_ANSWER_S: Final = 10.0
"""How long an answer may take, beside what the request itself may wait."""
_HEAD_BYTES_MAX: Final = 64 * 1024
_END_OF_LINE, _END_OF_HEAD = b"\r\n", b"\r\n\r\n"
_FAULTS: Final = (OSError, EOFError, TimeoutError, ValueError, asyncio.LimitOverrunError)
_encode = msgspec.msgpack.Encoder().encode
_decoders: Final = {name: msgspec.msgpack.Decoder(verb.answer) for name, verb in VERBS.items()}
_error_decoder: Final = msgspec.msgpack.Decoder(ErrorAnswer)


class _Connection:
    """One connection to a node."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.freed_s = 0.0

    @property
    def is_open(self) -> bool:
        return not self._reader.at_eof() and not self._writer.is_closing()

    def close(self) -> None:
        self._writer.close()

    async def closed(self) -> None:
        with contextlib.suppress(OSError):  # the other side was quicker
            await self._writer.wait_closed()

    async def ask(self, head: bytes, body: bytes) -> tuple[int, bool, bytes]:
        """Send a request, and return the status of the answer, whether the connection stays open, and the body."""
        status, fields = await self._begin(head + body)
        body = await self._reader.readexactly(int(fields[b"content-length"]))
        return status, fields.get(b"connection", b"").lower() != b"close", body

    async def listen(self, head: bytes) -> RemoteAnswer:
        """Send a request, and return an answer whose body is still to come."""
        status, fields = await self._begin(head)
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in fields.items()}
        return RemoteAnswer(status, headers, self._pieces(fields))

    async def _begin(self, request: bytes) -> tuple[int, dict[bytes, bytes]]:
        """Send a request, and return the status and the headers of the answer."""
        self._writer.write(request)
        await self._writer.drain()
        lines = (await self._reader.readuntil(_END_OF_HEAD)).split(_END_OF_LINE)
        pairs = (line.partition(b":") for line in lines[1:])
        return int(lines[0].split(b" ", 2)[1]), {name.strip().lower(): value.strip() for name, _, value in pairs}

    async def _pieces(self, fields: Mapping[bytes, bytes]) -> AsyncIterator[bytes]:
        """Yield the body of an answer, in the pieces in which it comes."""
        if b"content-length" in fields:
            yield await self._reader.readexactly(int(fields[b"content-length"]))
            return
        while size := int((await self._reader.readuntil(_END_OF_LINE)).partition(b";")[0], 16):
            yield (await self._reader.readexactly(size + len(_END_OF_LINE)))[:size]


class Forwarder:
    """Asks other nodes."""

    def __init__(self, node: str, *, tls: ssl.SSLContext | None = None) -> None:
        """Keep no connection yet.

        Args:
            node: the name of the node that asks.
            tls: how nodes at ``https`` are known; by default by the authorities that the system trusts.
        """
        self._node = node
        self._tls = tls
        self._idle: dict[str, list[_Connection]] = {}
        self._now: Callable[[], float] = asyncio.get_running_loop().time

    async def ask(self, address: str, verb: str, request: msgspec.Struct, headers: Mapping[str, str]) -> msgspec.Struct:
        """Return what the node at an address answers.

        Raises:
            QueueMoving: nobody is there; nothing was done.
            Disconnected: nobody knows whether it was done.
            FairlaneError: it was refused there.
        """
        limit_s = _ANSWER_S + getattr(request, "wait_ms", 0) / 1000
        body = _encode(request)
        kinds = {"content-type": _MSGPACK, "accept": _MSGPACK, "content-length": str(len(body))}
        head = self._head(address, f"POST /v1/{VERBS[verb].path}", {**kinds, **headers})
        connection = await self._connected(address)
        try:
            async with asyncio.timeout(limit_s):
                status, stays_open, answer = await connection.ask(head, body)
        except _FAULTS as error:
            connection.close()
            raise _unanswered(address, error) from error
        except BaseException:
            connection.close()  # whoever asked has gone: the other side sees it, and gives back what it leased
            raise
        if stays_open:
            self._keep(address, connection)
        else:
            connection.close()
        return self._answer(verb, status, answer)

    @asynccontextmanager
    async def listen(self, address: str, target: str, headers: Mapping[str, str]) -> AsyncIterator[RemoteAnswer]:
        """Lend what the node at an address answers bit by bit, until it ends or nobody wants to hear more.

        Args:
            address: that of the node.
            target: the path, and what is behind it.
            headers: what it is told of the caller, and of what it may answer.

        Raises:
            QueueMoving: nobody is there.
            Disconnected: the answer broke off.
        """
        connection = await self._connected(address)
        try:
            async with asyncio.timeout(_ANSWER_S):
                heard = await connection.listen(self._head(address, f"GET {target}", headers))
            yield heard
        except _FAULTS as error:
            raise _unanswered(address, error) from error
        finally:
            connection.close()

    @staticmethod
    def _answer(verb: str, status: int, body: bytes) -> msgspec.Struct:
        try:
            if status == _OK:
                answer: msgspec.Struct = _decoders[verb].decode(body)
                return answer
            error: FairlaneError = error_of(_error_decoder.decode(body).error)
        except msgspec.DecodeError as fault:
            raise InternalError(f"Another node answered what can't be read: {fault}.") from fault
        raise error

    def _head(self, address: str, line: str, headers: Mapping[str, str]) -> bytes:
        fields = {"host": urlsplit(address).netloc, "x-fairlane-forwarded": self._node, **headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        return f"{line} HTTP/1.1\r\n{lines}\r\n".encode("latin-1")

    # ----------------------------------------------------------------------------------------------------- connections

    async def _connected(self, address: str) -> _Connection:
        idle = self._idle.get(address, [])
        while idle:
            connection = idle.pop()
            if connection.is_open and self._now() - connection.freed_s < _IDLE_S:
                return connection
            connection.close()
        parts = urlsplit(address)
        tls = (self._tls or ssl.create_default_context()) if parts.scheme == "https" else None
        try:
            async with asyncio.timeout(_CONNECT_S):
                streams = await asyncio.open_connection(parts.hostname, parts.port, ssl=tls, limit=_HEAD_BYTES_MAX)
        except (OSError, TimeoutError) as error:
            raise QueueMoving(f"The node at {address} can't be reached: {error}.", retry_after_ms=250) from error
        return _Connection(*streams)

    def _keep(self, address: str, connection: _Connection) -> None:
        idle = self._idle.setdefault(address, [])
        connection.freed_s = self._now()
        idle.append(connection)
        if len(idle) > _KEPT:
            idle.pop(0).close()

    async def close(self) -> None:
        """Let all connections go."""
        connections = [connection for idle in self._idle.values() for connection in idle]
        self._idle.clear()
        for connection in connections:
            connection.close()
            await connection.closed()


def _unanswered(address: str, error: BaseException) -> Disconnected:
    return Disconnected(f"The node at {address} did not answer: {type(error).__name__}.")
