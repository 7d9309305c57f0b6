"""What those ask for who work batch by batch: from a request of the wire to the broker and back."""

from __future__ import annotations

from fairlane.broker.frontends.aio import AsyncBroker
from fairlane.gateway.caller import Caller
from fairlane.model.claims import Claim, Claimed, ConsumerView
from fairlane.model.staging import Published, Staged
from fairlane.wire import verbs as wire


async def register_consumer(broker: AsyncBroker, request: wire.RegisterConsumer, _: Caller) -> ConsumerView:
    """Register a consumer."""
    return await broker.register_consumer(request.queue, request.consumer, idle_ms=request.idle_ms)


async def claim(broker: AsyncBroker, request: wire.MakeClaim, _: Caller) -> Claim:
    """End claims and make the next."""
    return await broker.claim(
        request.queue,
        request.consumer,
        epoch=request.epoch,
        done=request.done,
        count=request.count,
        size_bytes=request.size_bytes,
    )


async def read_claim(broker: AsyncBroker, request: wire.ReadClaim, _: Caller) -> Claimed:
    """Read messages of a claim."""
    return await broker.read_claim(
        request.queue, request.consumer, claim=request.claim, start=request.start, count=request.count
    )


async def release_consumer(broker: AsyncBroker, request: wire.ConsumerRequest, caller: Caller) -> wire.Released:
    """Forget a consumer."""
    return wire.Released(count=await broker.release_consumer(request.queue, request.consumer, by=caller.name))


async def consumers(broker: AsyncBroker, request: wire.QueueRequest, _: Caller) -> wire.Consumers:
    """Return the registered consumers of a queue."""
    return wire.Consumers(consumers=await broker.consumers(request.queue))


async def stage(broker: AsyncBroker, request: wire.Stage, _: Caller) -> Staged:
    """Stage messages."""
    return await broker.stage(
        request.queue,
        request.sink,
        batch=request.batch,
        part=request.part,
        at=request.at,
        messages=request.messages,
        wait_ms=request.wait_ms,
    )


async def publish(broker: AsyncBroker, request: wire.Publish, _: Caller) -> Published:
    """Publish a batch."""
    return await broker.publish(request.queue, request.sink, batch=request.batch, parts=request.parts)


async def sinks(broker: AsyncBroker, request: wire.QueueRequest, _: Caller) -> wire.Sinks:
    """Return the sinks of a queue."""
    return wire.Sinks(sinks=await broker.sinks(request.queue))


async def drop_sink(broker: AsyncBroker, request: wire.SinkRequest, caller: Caller) -> wire.Purged:
    """Forget a sink."""
    return wire.Purged(count=await broker.drop_sink(request.queue, request.sink, by=caller.name))
