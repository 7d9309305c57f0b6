"""Streams over HTTP: deliveries as they come, and events that messages are available."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager

import msgspec

from fairlane.broker.frontends.deliveries import AsyncDeliveries
from fairlane.broker.waiting.room import Room, delivery_bytes
from fairlane.errors import InvalidArgument, QueueElsewhere, QueueMoving, QueueNotFound
from fairlane.gateway.caller import Caller
from fairlane.journal.records import AnyRecord, Enqueued, Published, QueueRemoved, Redriven, Returned
from fairlane.server.context import ServerContext
from fairlane.server.interfaces.exchange import JSON, Exchange, line_of
from fairlane.verbs.leases import Lease
from fairlane.wire.frames import Consume, WatchQueue

EVENTS = "text/event-stream"
_LINES, _PIECES = "application/jsonl", "application/vnd.fairlane.stream"


async def subscribe(server: ServerContext, exchange: Exchange, caller: Caller, *, with_state: bool = False) -> None:
    """Send deliveries as they come, until the caller disconnects; then what it has not acknowledged goes back."""
    server.check_before_reading(Lease.verb, caller)
    request = await exchange.request(Consume, "subscribe")
    if with_state:
        request = msgspec.structs.replace(request, with_state=True)
    await _subscribe(request, server, exchange, caller)


async def _subscribe(request: Consume, server: ServerContext, exchange: Exchange, caller: Caller) -> None:
    server.tally.calls["subscribe"] += 1
    server.check_open()
    caller.check("consume", request.queue)
    broker, queue = await server.gateway.served(request.queue)
    room = server.room(caller)
    deliveries = AsyncDeliveries(
        broker,
        queue=queue,
        credit=request.credit,
        visibility_ms=request.visibility_ms,
        owner=request.owner,
        with_state=request.with_state,
        handlers=request.credit if request.handlers is None else request.handlers,
        room=room,
    )
    with server.subscription(exchange.holder):
        try:
            async with deliveries:
                await exchange.begin(_LINES if exchange.kind is JSON else _PIECES)
                sending = _send_all(deliveries, request.queue, room, server, exchange)
                endings = (_drain(deliveries, server), exchange.hung_up(), server.api_keys.ended(caller))
                await first_of(sending, *endings)
        finally:
            room.clear()  # however it ended: all connections share what it counts
        await exchange.end()


async def _send_all(
    deliveries: AsyncDeliveries, queue: str, room: Room, server: ServerContext, exchange: Exchange
) -> None:
    kind = exchange.kind
    async for delivery in deliveries:
        server.tally.delivered += 1
        if server.spans is not None:
            server.spans.delivered(queue, [delivery])
        await exchange.more(line_of(delivery, kind))
        room.remove(delivery_bytes(delivery))


async def _drain(deliveries: AsyncDeliveries, server: ServerContext) -> None:
    await server.draining.wait()
    deliveries._consumer.credit = 0  # what is in flight may still be acknowledged
    await server.closing.wait()


async def first_of(*coroutines: Awaitable[object]) -> None:
    """Run all until the first one ends, and raise what it raised."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


async def watch(server: ServerContext, exchange: Exchange, caller: Caller) -> None:
    """Send an event whenever messages become available, by enqueue, return or redrive. This leases nothing."""
    server.check_before_reading(Lease.verb, caller)
    queue = await _watched(exchange)
    server.tally.calls["watch"] += 1
    server.check_open()
    caller.check("consume", queue)
    broker, served = await server.gateway.served(queue)
    await broker.queue(served)  # or it is not found

    with server.subscription(exchange.holder):
        async with _arrivals(server, served) as arrived:
            await exchange.begin(EVENTS, headers={"cache-control": "no-store"})
            telling = _tell(server, exchange, queue, arrived)
            endings = (
                server.draining.wait(),
                exchange.hung_up(),
                server.api_keys.ended(caller),
                server.gateway.left(queue),
            )
            await first_of(telling, *endings)
        await exchange.end()


async def _watched(exchange: Exchange) -> str:
    if exchange.method == "POST":
        return (await exchange.request(WatchQueue, "watch")).queue
    queue = exchange.query("queue").get("queue")
    if queue is None:
        raise InvalidArgument("Missing parameter queue, as in /v1/queue/watch?queue=orders.")
    return queue


@asynccontextmanager
async def _arrivals(server: ServerContext, queue: str) -> AsyncIterator[asyncio.Event]:
    arrived = asyncio.Event()
    arrived.set()  # messages that are there already count, too

    def listener(records: Sequence[AnyRecord]) -> None:
        if any(_is_arrival(record, queue) for record in records):
            arrived.set()

    server.listeners.add(listener)
    try:
        yield arrived
    finally:
        server.listeners.discard(listener)


def _is_arrival(record: AnyRecord, queue: str) -> bool:
    if isinstance(record, Redriven):
        return record.target == queue
    return isinstance(record, (Enqueued, Published, Returned, QueueRemoved)) and record.queue == queue


async def _tell(server: ServerContext, exchange: Exchange, queue: str, arrived: asyncio.Event) -> None:
    while True:
        await arrived.wait()
        arrived.clear()
        try:
            view = await server.observed.queue(queue)
        except (QueueNotFound, QueueElsewhere, QueueMoving):
            return
        if view.waiting:
            word = msgspec.json.encode({"queue": queue, "waiting": view.waiting, "leased": view.leased})
            await exchange.more(b"event: available\ndata: " + word + b"\n\n")
