"""Methods for work in batches, for asyncio. Those for threads are made from this file by ``tools/sync_verbs.py``."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.model.claims import Claim, Claimed, ConsumerView
from fairlane.model.limits import BATCH_MAX
from fairlane.model.message import NewMessage
from fairlane.model.staging import PublishResult, SinkView, StageResult
from fairlane.verbs.batches import (
    STAGE_WAIT_MS,
    DropSink,
    ListConsumers,
    ListSinks,
    MakeClaim,
    Publish,
    ReadClaim,
    RegisterConsumer,
    ReleaseConsumer,
    Stage,
)
from fairlane.verbs.methods.base_aio import AsyncVerbs
from fairlane.verbs.methods.conversions import messages_of


class AsyncBatchVerbs(AsyncVerbs):
    """Methods for programs that work batch by batch and must be able to repeat a batch."""

    # ------------------------------------------------------------------------------------------ registered consumers

    async def register_consumer(self, queue: str, consumer: str, *, idle_ms: int | None = None) -> ConsumerView:
        """Register a consumer by name. Registering it again begins a new epoch.

        An earlier registration under this name can claim no more; its open claim belongs to the new one. With
        ``idle_ms``, an open claim is returned to the queue when the consumer was silent for that long.

        Raises:
            QueueNotFound, InvalidArgument: it was not registered.
        """
        return await self.call(RegisterConsumer(queue=queue, consumer=consumer, idle_ms=idle_ms))

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
        """Complete the claims up to ``done`` and return the next one, all in one commit.

        Messages that are still leased under a completed claim are acknowledged. A later claim that is open is returned
        again as it is, so a repeated call changes nothing. Otherwise up to ``count`` messages are leased in fair order
        under the next number, until they have ``size_bytes``; the last may exceed it. Their leases have no
        end. If no message may go now, or ``count`` is 0, the claim has a count of 0 and the number ``done``.

        Raises:
            QueueNotFound, ConsumerNotFound: there is no such consumer.
            ConsumerFenced: the consumer was registered again, in a later epoch.
            InvalidArgument: no claim has the number ``done`` yet, or a value is out of range.
        """
        request = MakeClaim(queue=queue, consumer=consumer, epoch=epoch, done=done, count=count, size_bytes=size_bytes)
        return await self.call(request)

    async def read_claim(self, queue: str, consumer: str, *, claim: int, start: int = 0, count: int = 1_000) -> Claimed:
        """Return messages of the open claim: the same ones under the same leases until the claim is completed.

        Messages that were settled with their own receipts are left out; the others keep their indexes.

        Raises:
            QueueNotFound, ConsumerNotFound, ClaimNotFound: there is no such claim.
            InvalidArgument: a value is out of range.
        """
        return await self.call(ReadClaim(queue=queue, consumer=consumer, claim=claim, start=start, count=count))

    async def release_consumer(self, queue: str, consumer: str, *, by: str | None = None) -> int:
        """Delete a consumer. Its claimed messages wait again, without a failed attempt. Returns how many.

        Raises:
            QueueNotFound, ConsumerNotFound: there is no such consumer.
        """
        answer = await self.call(ReleaseConsumer(queue=queue, consumer=consumer), by=by)
        return answer.count

    async def consumers(self, queue: str) -> list[ConsumerView]:
        """Return the registered consumers of a queue, by name.

        Raises:
            QueueNotFound: the queue does not exist.
        """
        answer = await self.call(ListConsumers(queue=queue))
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
    ) -> StageResult:
        """Append messages to a part of a batch, durably: all of them or none. They enter the queue when published.

        ``at`` is how many messages of the part were staged before. Messages that are staged already are not staged
        again, and nothing is staged for a batch that was published, so a repeated call changes nothing. Hooks and
        limits apply as for an enqueue; ``wait_ms`` is how long to wait for capacity where the policy is to wait.

        Raises:
            QueueNotFound, InvalidArgument, PayloadTooLarge: nothing was staged.
            StageMismatch: the part does not end where these messages begin.
            QueueFull, KeyFull, GlobalFull: there is no capacity for all of them.
        """
        request = Stage(
            queue=queue, sink=sink, batch=batch, part=part, at=at, messages=messages_of(messages), wait_ms=wait_ms
        )
        return await self.call(request)

    async def publish(self, queue: str, sink: str, *, batch: int, parts: Sequence[str]) -> PublishResult:
        """Publish the staged parts of a batch to the queue, in this order and in one commit.

        Everything else that is staged for the sink up to this batch is deleted. A batch is published once: one that is
        not later than the sink's latest changes nothing.

        Raises:
            QueueNotFound, InvalidArgument: nothing was published.
            StageMismatch: a part is missing.
        """
        names = parts if isinstance(parts, str) else list(parts)
        request = Publish(queue=queue, sink=sink, batch=batch, parts=names)  # type: ignore[arg-type]  # a text is refused
        return await self.call(request)

    async def sinks(self, queue: str) -> list[SinkView]:
        """Return the sinks of a queue, by name.

        Raises:
            QueueNotFound: the queue does not exist.
        """
        answer = await self.call(ListSinks(queue=queue))
        return answer.sinks

    async def drop_sink(self, queue: str, sink: str, *, by: str | None = None) -> int:
        """Delete a sink, the record of what it published, and its staged messages. Returns how many were staged.

        Raises:
            QueueNotFound, SinkNotFound: there is no such sink.
        """
        answer = await self.call(DropSink(queue=queue, sink=sink), by=by)
        return answer.count
