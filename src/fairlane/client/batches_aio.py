"""Verbs for work in batches, for asyncio. Those for threads are made from this file by ``tools/sync_verbs.py``."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.client.asking_aio import AsyncAsking
from fairlane.errors import InvalidArgument
from fairlane.model.claims import Claim, Claimed, ConsumerView
from fairlane.model.limits import BATCH_MAX
from fairlane.model.message import NewMessage
from fairlane.model.staging import Published, SinkView, Staged
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

STAGE_WAIT_MS = 30_000


class AsyncBatchVerbs(AsyncAsking):
    """What those do who work batch by batch; see the broker's verbs. What may be repeated safely is repeated."""

    # ------------------------------------------------------------------------------------------ registered consumers

    async def register_consumer(self, queue: str, consumer: str, *, idle_ms: int | None = None) -> ConsumerView:
        """Register a consumer by name, for good, and return what it is now. Registering again begins a new epoch."""
        request = RegisterConsumer(queue=queue, consumer=consumer, idle_ms=idle_ms)
        answer: ConsumerView = await self._call("register_consumer", request)
        return answer

    async def claim(
        self,
        queue: str,
        consumer: str,
        *,
        epoch: int,
        done: int,
        count: int = BATCH_MAX,
        size_bytes: int | None = None,
    ) -> Claim:
        """Let the claims up to ``done`` be done, and return the next one: the one that is open, or a new one."""
        request = MakeClaim(queue=queue, consumer=consumer, epoch=epoch, done=done, count=count, size_bytes=size_bytes)
        answer: Claim = await self._call("claim", request)
        return answer

    async def read_claim(self, queue: str, consumer: str, *, claim: int, start: int = 0, count: int = 1_000) -> Claimed:
        """Return the messages of some places of the open claim: the same, under the same leases, until it is done."""
        request = ReadClaim(queue=queue, consumer=consumer, claim=claim, start=start, count=count)
        answer: Claimed = await self._call("read_claim", request)
        return answer

    async def release_consumer(self, queue: str, consumer: str) -> int:
        """Forget a consumer. What it has claimed waits again, as no failed attempt. Returns how many those are."""
        answer: MessageCount = await self._call("release_consumer", ReleaseConsumer(queue=queue, consumer=consumer))
        return answer.count

    async def consumers(self, queue: str) -> list[ConsumerView]:
        """Return the registered consumers of a queue, by name."""
        answer: ConsumerList = await self._call("consumers", ListConsumers(queue=queue))
        return answer.consumers

    # --------------------------------------------------------------------------------------------------------- sinks

    async def stage(
        self,
        queue: str,
        sink: str,
        *,
        batch: int,
        part: str,
        at: int,
        messages: Sequence[NewMessage],
        wait_ms: int = STAGE_WAIT_MS,
    ) -> Staged:
        """Append messages to a part of a batch, all of them or none. They are in the queue once published."""
        if not all(isinstance(message, NewMessage) for message in messages):
            raise InvalidArgument("What is staged are messages of the type NewMessage.")
        request = Stage(queue=queue, sink=sink, batch=batch, part=part, at=at, messages=list(messages), wait_ms=wait_ms)
        answer: Staged = await self._call("stage", request, wait_ms=wait_ms)
        return answer

    async def publish(self, queue: str, sink: str, *, batch: int, parts: Sequence[str]) -> Published:
        """Let what is staged in these parts of a batch be in the queue, in this order, in one commit, and once."""
        request = Publish(queue=queue, sink=sink, batch=batch, parts=list(parts))
        answer: Published = await self._call("publish", request)
        return answer

    async def sinks(self, queue: str) -> list[SinkView]:
        """Return the sinks of a queue, by name."""
        answer: SinkList = await self._call("sinks", ListSinks(queue=queue))
        return answer.sinks

    async def drop_sink(self, queue: str, sink: str) -> int:
        """Forget a sink and what it has published, and drop what is staged for it. Returns how many messages."""
        answer: MessageCount = await self._call("drop_sink", DropSink(queue=queue, sink=sink))
        return answer.count
