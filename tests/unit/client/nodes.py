"""Nodes of a cluster as a client sees them: doors on loopback, each of which answers for some queues only.

Behind all of them is one broker in memory, so that a queue can move from one to the next in an instant.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import msgspec
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from fairlane.embedded import EmbeddedTransport
from fairlane.errors import FairlaneError, QueueElsewhere, QueueMoving
from fairlane.verbs.errors import body_of
from fairlane.verbs.leases import Lease, LeasedMessages
from fairlane.verbs.table import VERBS
from fairlane.wire.frames import CONSUME, SUBPROTOCOL, Answer, Call, Consume, Deliver, Ended, Refused, calls_of

_encode = msgspec.msgpack.Encoder().encode


class Nodes:
    """Some nodes, and whose the queues are.

    Attributes:
        owners: the number of the node that owns a queue; that of others is 0.
        moving: queues without an owner.
        cut_off: nodes that know nothing of what the others do, and only say that queues move.
        asked: what came where: the number of a node and a verb.
        follows: the header by which clients say that they follow, of each connection.
    """

    def __init__(self, broker: EmbeddedTransport) -> None:
        self.broker = broker
        self.owners: dict[str, int] = {}
        self.moving: set[str] = set()
        self.cut_off: set[int] = set()
        self.asked: list[tuple[int, str]] = []
        self.follows: list[str | None] = []
        self.servers: list[Server] = []
        self.addresses: list[str] = []
        self._doors: dict[str, list[_Door]] = {}

    async def start(self, number: int) -> None:
        """Start a node, at its earlier address if it had one."""
        port = int(self.addresses[number].rpartition(":")[2]) if number < len(self.addresses) else 0

        async def handle(connection: ServerConnection) -> None:
            await self._talk(number, connection)

        server = await serve(handle, "127.0.0.1", port, subprotocols=[SUBPROTOCOL], compression=None)  # type: ignore[list-item] # it is a name
        if number < len(self.servers):
            self.servers[number] = server
        else:
            self.servers.append(server)
            self.addresses.append(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")

    async def end(self, number: int) -> None:
        """Stop a node with all its connections."""
        for connection in list(self.servers[number].connections):
            connection.transport.abort()
        self.servers[number].close()
        await self.servers[number].wait_closed()

    async def move(self, queue: str, number: int) -> None:
        """Move a queue to another node; its channels end as those of a real node do."""
        self.owners[queue] = number
        for door in self._doors.pop(queue, []):
            await door.end(self.elsewhere(queue))

    def elsewhere(self, queue: str) -> QueueElsewhere:
        """Return what a node says that does not have a queue."""
        return QueueElsewhere(f"{queue!r} is elsewhere.", at=self.addresses[self.owners.get(queue, 0)])

    async def _talk(self, number: int, connection: ServerConnection) -> None:
        assert connection.request is not None
        self.follows.append(connection.request.headers.get("x-fairlane-follows"))
        tasks: list[asyncio.Task[None]] = []
        try:
            async for data in connection:
                assert isinstance(data, bytes)
                tasks += [asyncio.create_task(self._answer(number, connection, call)) for call in calls_of(data)]
        finally:
            for door in [door for doors in self._doors.values() for door in doors if door.connection is connection]:
                await door.leave()
            await asyncio.gather(*tasks)

    async def _answer(self, number: int, connection: ServerConnection, call: Call) -> None:
        try:
            frame: Any = Answer(call.number, msgspec.Raw(_encode(await self._do(number, connection, call))))
        except FairlaneError as error:
            frame = Refused(call.number, body_of(error))
        with suppress(ConnectionClosed):
            await connection.send(_encode(frame))

    async def _do(self, number: int, connection: ServerConnection, call: Call) -> Any:
        self.asked.append((number, call.verb))
        if call.verb == "stop":
            return None
        shape = Consume if call.verb == CONSUME else VERBS[call.verb].request
        request: Any = msgspec.msgpack.decode(call.request, type=shape)
        queue = getattr(request, "queue", None)
        if queue in self.moving or number in self.cut_off:
            raise QueueMoving(f"{queue!r} is moving.", retry_after_ms=5)
        if queue is not None and self.owners.get(queue, 0) != number:
            raise self.elsewhere(queue)
        if call.verb != CONSUME:
            return await self.broker.call(call.verb, request)
        self._doors.setdefault(request.queue, []).append(_Door(self.broker, connection, call, request))
        return None


class _Door:
    """Leases what a channel is to deliver, at most its credit in all, and sends it over a connection."""

    def __init__(self, broker: EmbeddedTransport, connection: ServerConnection, call: Call, request: Consume) -> None:
        self._broker = broker
        self.connection = connection
        self._number = call.number
        self._request = request
        self._pump = asyncio.get_running_loop().create_task(self._run())

    async def end(self, error: FairlaneError) -> None:
        """Send no more, and say why; what was sent stays leased."""
        await self.leave()
        await self.connection.send(_encode(Ended(self._number, body_of(error))))

    async def leave(self) -> None:
        """Send no more."""
        self._pump.cancel()
        await asyncio.wait([self._pump])

    async def _run(self) -> None:
        credit = self._request.credit
        while credit:
            asked = Lease(queue=self._request.queue, count=credit, wait_ms=60_000)
            leased: LeasedMessages = await self._broker.call("lease", asked)
            credit -= len(leased.deliveries)
            await self.connection.send(_encode(Deliver(self._number, leased.deliveries)))


@asynccontextmanager
async def nodes(count: int) -> AsyncIterator[Nodes]:
    """Return nodes that listen for as long as the context lasts."""
    broker = EmbeddedTransport()
    await broker.connect()
    made = Nodes(broker)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(broker.close)
        for number in range(count):
            await made.start(number)
            stack.push_async_callback(made.end, number)
        yield made
