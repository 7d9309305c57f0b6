"""What those ask for who work batch by batch: from a request of the wire to the broker and back."""

from __future__ import annotations

from fairlane.broker.frontends.aio import AsyncBroker
from fairlane.gateway.caller import Caller
from fairlane.model.claims import Claim, Claimed, ConsumerView
from fairlane.model.staging import Published, Staged
from fairlane.verbs.batches import (
    ConsumerList,
    DropSink,
    ListConsumers,
    ListSinks,
    MakeClaim,
    Publish,
    ReadClaim,
    RegisterConsumer,
    ReleaseConsumer,
    SinkList,
    Stage,
)
from fairlane.verbs.queues import MessageCount


async def register_consumer(broker: AsyncBroker, request: RegisterConsumer, _: Caller) -> ConsumerView:
    """Register a consumer."""
    return await broker.register_consumer(request.queue, request.consumer, idle_ms=request.idle_ms)


async def claim(broker: AsyncBroker, request: MakeClaim, _: Caller) -> Claim:
    """End claims and make the next."""
    return await broker.claim(
        request.queue,
        request.consumer,
        epoch=request.epoch,
        done=request.done,
        count=request.count,
        size_bytes=request.size_bytes,
    )


async def read_claim(broker: AsyncBroker, request: ReadClaim, _: Caller) -> Claimed:
    """Read messages of a claim."""
    return await broker.read_claim(
        request.queue, request.consumer, claim=request.claim, start=request.start, count=request.count
    )


async def release_consumer(broker: AsyncBroker, request: ReleaseConsumer, caller: Caller) -> MessageCount:
    """Forget a consumer."""
    return MessageCount(count=await broker.release_consumer(request.queue, request.consumer, by=caller.name))


async def consumers(broker: AsyncBroker, request: ListConsumers, _: Caller) -> ConsumerList:
    """Return the registered consumers of a queue."""
    return ConsumerList(consumers=await broker.consumers(request.queue))


async def stage(broker: AsyncBroker, request: Stage, _: Caller) -> Staged:
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


async def publish(broker: AsyncBroker, request: Publish, _: Caller) -> Published:
    """Publish a batch."""
    return await broker.publish(request.queue, request.sink, batch=request.batch, parts=request.parts)


async def sinks(broker: AsyncBroker, request: ListSinks, _: Caller) -> SinkList:
    """Return the sinks of a queue."""
    return SinkList(sinks=await broker.sinks(request.queue))


async def drop_sink(broker: AsyncBroker, request: DropSink, caller: Caller) -> MessageCount:
    """Forget a sink."""
    return MessageCount(count=await broker.drop_sink(request.queue, request.sink, by=caller.name))
