"""Verbs for work in batches, for asyncio. Those for threads are made from this file by ``tools/sync_verbs.py``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from fairlane.broker.verbs.asking_aio import AsyncAsking
from fairlane.broker.verbs.checking import check_messages, require
from fairlane.broker.views import queues as views
from fairlane.broker.waiting import claims as claiming
from fairlane.core import commands
from fairlane.core.checks import whole_fault
from fairlane.model import limits
from fairlane.model.claims import Claim, Claimed, ConsumerView
from fairlane.model.message import NewMessage
from fairlane.model.staging import Published, SinkView, Staged

STAGE_WAIT_MS = 30_000
_MOST = 1 << 53


class AsyncBatchVerbs(AsyncAsking):
    """What those do who work batch by batch, and must be able to repeat a batch."""

    # ------------------------------------------------------------------------------------------ registered consumers

    async def register_consumer(self, queue: str, consumer: str, *, idle_ms: int | None = None) -> ConsumerView:
        """Register a consumer by name, for good, and return what it is now. Registering again begins a new epoch.

        Whoever registered before under this name can claim no more; the claim it left open is the new one's to read
        and to end. With ``idle_ms``, an open claim is given back when nothing was heard of the consumer for so long.

        Raises:
            QueueNotFound, InvalidArgument: it was not registered.
        """
        command = commands.RegisterConsumer(queue=queue, consumer=consumer, idle_ms=idle_ms)
        return cast("ConsumerView", await self._do(command))

    async def claim(
        self,
        queue: str,
        consumer: str,
        *,
        epoch: int,
        done: int,
        count: int = limits.BATCH_MAX,
        size_bytes: int | None = None,
    ) -> Claim:
        """Let the claims up to ``done`` be done, and return the next one; all in one commit.

        What is still leased under a claim that is done is acked. If a later claim is open it is returned again, as it
        is, so a repeated call changes nothing. Otherwise up to ``count`` messages are leased in fair order under the
        next number, until they have ``size_bytes`` of payload if that is told; the last of them may exceed it. Their
        leases have no end. Where nothing may go now, or a ``count`` of 0 is asked for, the claim has a count of 0 and
        the number ``done``.

        Raises:
            QueueNotFound, ConsumerNotFound: there is no such consumer.
            ConsumerFenced: the consumer was registered anew, and its epoch is a later one.
            InvalidArgument: no claim has the number ``done`` yet, or a value is out of range.
        """
        require(whole_fault("count", count, least=0, most=limits.CLAIM_MAX))
        if size_bytes is not None:
            require(whole_fault("size_bytes", size_bytes, least=1, most=_MOST))
        command = commands.Claim(
            queue=queue, consumer=consumer, epoch=epoch, done=done, count=count, size_bytes=size_bytes
        )
        return cast("Claim", await self._do(command))

    async def read_claim(self, queue: str, consumer: str, *, claim: int, start: int = 0, count: int = 1_000) -> Claimed:
        """Return the messages of some places of the open claim: the same, under the same leases, until it is done.

        What was acked or nacked since with its own receipt is left out; the others keep their places.

        Raises:
            QueueNotFound, ConsumerNotFound, ClaimNotFound: there is no such claim, or none any more.
            InvalidArgument: a value is out of range.
        """
        require(whole_fault("claim", claim, least=0, most=_MOST))
        require(whole_fault("start", start, least=0, most=_MOST))
        require(whole_fault("count", count, least=1, most=limits.BATCH_MAX))
        engine = self._engine

        def ask() -> Claimed:
            engine.schedule.presence.hear(queue, consumer, engine.now_ms())
            return claiming.read_claim(
                engine.ledger, engine.bodies, queue=queue, consumer=consumer, claim=claim, start=start, count=count
            )

        return await self._read(ask)

    async def release_consumer(self, queue: str, consumer: str, *, by: str | None = None) -> int:
        """Forget a consumer. What it has claimed waits again, which is no failed attempt. Returns how many those are.

        Raises:
            QueueNotFound, ConsumerNotFound: there is no such consumer.
        """
        return cast("int", await self._do(commands.ReleaseConsumer(queue=queue, consumer=consumer, by=by)))

    async def consumers(self, queue: str) -> list[ConsumerView]:
        """Return the registered consumers of a queue, by name.

        Raises:
            QueueNotFound: there is none of this name.
        """
        engine = self._engine
        return await self._read(lambda: views.consumer_views(engine.ledger, engine.schedule, queue))

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
        """Append messages to a part of a batch, durably: all of them or none. They are in the queue once published.

        ``at`` is how many messages of the part were staged before. What is there already is not staged again, and what
        is for a batch that was published is not staged at all, so a repeated call changes nothing. Hooks are asked
        and limits count as for an enqueue; ``wait_ms`` is how long it may wait for room where the policy is to wait.

        Raises:
            QueueNotFound, InvalidArgument, PayloadTooLarge: nothing was staged.
            StageMismatch: the part does not end where these begin.
            QueueFull, KeyFull, GlobalFull: there is no room for all of them.
        """
        require(whole_fault("wait_ms", wait_ms, least=0, most=limits.TIMESPAN_MS_MAX))
        check_messages(messages)
        command = commands.Stage(queue=queue, sink=sink, batch=batch, part=part, at=at, messages=messages)
        return cast("Staged", await self._do(command, wait_ms=wait_ms))

    async def publish(self, queue: str, sink: str, *, batch: int, parts: Sequence[str]) -> Published:
        """Let what is staged in these parts of a batch be in the queue, in this order, all of it in one commit.

        Everything else that is staged for the sink up to this batch is dropped. A batch is published once: one that is
        not later than the sink's latest changes nothing.

        Raises:
            QueueNotFound, InvalidArgument: nothing was published.
            StageMismatch: one of the parts is not there.
        """
        return cast("Published", await self._do(commands.Publish(queue=queue, sink=sink, batch=batch, parts=parts)))

    async def sinks(self, queue: str) -> list[SinkView]:
        """Return the sinks of a queue, by name.

        Raises:
            QueueNotFound: there is none of this name.
        """
        return await self._read(lambda: views.sink_views(self._engine.ledger, queue))

    async def drop_sink(self, queue: str, sink: str, *, by: str | None = None) -> int:
        """Forget a sink and what it has published, and drop what is staged for it. Returns how many messages that were.

        Raises:
            QueueNotFound, SinkNotFound: there is no such sink.
        """
        return cast("int", await self._do(commands.DropSink(queue=queue, sink=sink, by=by)))
