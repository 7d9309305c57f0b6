"""Verbs for messages, for asyncio. Those for threads are made from this file by ``tools/sync_verbs.py``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Unpack

from fairlane.client.asking_aio import AsyncAsking
from fairlane.client.conversions import (
    Held,
    Leased,
    ends_of,
    errors_of,
    ids_of,
    message_of,
    only,
    receipt_of,
    receipts_of,
)
from fairlane.client.message_aio import AsyncMessage
from fairlane.client.tracing import traced
from fairlane.errors import FairlaneError, InvalidArgument
from fairlane.model.message import MessageTerms, MessageView, NewMessage
from fairlane.model.views import DeadLetterFilter, Explained
from fairlane.verbs.leases import (
    Ack,
    Etag,
    Extend,
    Forward,
    ForwardedIds,
    Lease,
    LeasedMessages,
    Nack,
    NackIntent,
    SetState,
)
from fairlane.verbs.messages import (
    Cancel,
    Enqueue,
    EnqueueResults,
    Explain,
    GetMessage,
    GetState,
    MessageList,
    Peek,
    Results,
    WorkflowState,
)

ENQUEUE_WAIT_MS = 30_000
_EVERYTHING = DeadLetterFilter()


class AsyncMessageVerbs(AsyncAsking):
    """What producers and consumers do with messages. Each verb is that of the broker and raises what it raises."""

    async def enqueue(
        self, queue: str, message: NewMessage | bytes, *, wait_ms: int = ENQUEUE_WAIT_MS, **terms: Unpack[MessageTerms]
    ) -> str:
        """Enqueue a message, or a payload with the fields of ``NewMessage`` as terms. Returns the message's id.

        Messages that are enqueued to a queue at the same time travel together. ``wait_ms`` is how long it may wait for
        room where the queue's policy is to wait.
        """
        return await self._enqueue_one(queue, message_of(message, terms), wait_ms)

    async def enqueue_many(
        self, queue: str, messages: Sequence[NewMessage], *, wait_ms: int = ENQUEUE_WAIT_MS
    ) -> list[str | FairlaneError]:
        """Enqueue messages, each on its own, in this order and in one commit. Returns an id or an error for each."""
        if not all(isinstance(message, NewMessage) for message in messages):
            raise InvalidArgument("What is enqueued are messages of the type NewMessage.")
        request = Enqueue(queue=queue, messages=self._stamped(traced(messages)), wait_ms=wait_ms)
        answer: EnqueueResults = await self._call("enqueue", request, wait_ms=wait_ms)
        return ids_of(answer.results)

    async def lease(
        self,
        queue: str,
        count: int = 1,
        *,
        wait_ms: int = 0,
        visibility_ms: int | None = None,
        owner: str | None = None,
        with_state: bool = False,
    ) -> list[AsyncMessage]:
        """Lease up to ``count`` messages, in fair order, waiting for the first of them if need be.

        Returns as soon as there is one; an empty list when none came in time. A call that is cancelled loses nothing:
        its leases are given back.
        """
        request = Lease(
            queue=queue,
            count=count,
            wait_ms=wait_ms,
            visibility_ms=visibility_ms,
            owner=owner,
            with_state=with_state,
        )
        answer: LeasedMessages = await self._call("lease", request, wait_ms=wait_ms)
        return [AsyncMessage(delivery, self) for delivery in answer.deliveries]

    async def ack(
        self,
        message: Held,
        *,
        cost: int | None = None,
        forward: Mapping[str, Sequence[NewMessage]] | None = None,
    ) -> list[str]:
        """Let a leased message be done, at its true cost if told.

        With ``forward``, messages by queue are enqueued in the same commit: all of it happens or nothing. Returns
        their ids, in order.
        """
        receipt = receipt_of(message, cost)
        if not forward:
            await self._ack_one(message.queue, receipt)
            return []
        news = {target: list(traced(messages)) for target, messages in forward.items()}
        request = Forward(queue=message.queue, receipt=receipt, messages=news)
        answer: ForwardedIds = await self._call("forward", request)
        return answer.ids

    async def ack_many(
        self, queue: str, leased: Sequence[Leased], *, costs: Sequence[int | None] | None = None
    ) -> list[FairlaneError | None]:
        """Let leased messages be done, each on its own. Returns None or an error for each."""
        if costs is None:
            receipts = receipts_of(leased)
        elif len(costs) == len(leased):
            receipts = [receipt_of(one, cost) for one, cost in zip(leased, costs, strict=True)]
        else:
            raise InvalidArgument(f"There are {len(costs)} costs for {len(leased)} messages.")
        answer: Results = await self._call("ack", Ack(queue=queue, receipts=receipts))
        return errors_of(answer.results)

    async def nack(
        self, message: Held, *, error: str = "", intent: NackIntent = "failure", delay_ms: int | None = None
    ) -> None:
        """Give a leased message back, because it failed, to defer it, or with intent ``dead`` to the dead letters."""
        only(await self.nack_many(message.queue, [message], error=error, intent=intent, delay_ms=delay_ms))

    async def nack_many(
        self,
        queue: str,
        leased: Sequence[Leased],
        *,
        error: str = "",
        intent: NackIntent = "failure",
        delay_ms: int | None = None,
    ) -> list[FairlaneError | None]:
        """Give leased messages back, each on its own; see ``nack``. Returns None or an error for each."""
        request = Nack(queue=queue, receipts=receipts_of(leased), intent=intent, error=error, delay_ms=delay_ms)
        answer: Results = await self._call("nack", request)
        return errors_of(answer.results)

    async def extend(self, message: Held, *, visibility_ms: int | None = None) -> int:
        """Let a lease last so long from now, by default the queue's visibility timeout. Returns when it ends."""
        return only(await self.extend_many(message.queue, [message], visibility_ms=visibility_ms))

    async def extend_many(
        self, queue: str, leased: Sequence[Leased], *, visibility_ms: int | None = None
    ) -> list[int | FairlaneError]:
        """Let leases last so long from now, each on its own. Returns when it ends, or an error, for each."""
        request = Extend(queue=queue, receipts=receipts_of(leased), visibility_ms=visibility_ms)
        answer: Results = await self._call("extend", request)
        return ends_of(answer.results)

    async def cancel(self, queue: str, message_id: str) -> None:
        """Take out a message that is not leased."""
        only(await self.cancel_many(queue, [message_id]))

    async def cancel_many(self, queue: str, message_ids: Sequence[str]) -> list[FairlaneError | None]:
        """Take out messages that are not leased, each on its own. Returns None or an error for each."""
        answer: Results = await self._call("cancel", Cancel(queue=queue, ids=list(message_ids)))
        return errors_of(answer.results)

    async def get(self, queue: str, message_id: str, *, with_body: bool = True) -> MessageView:
        """Return a message without leasing it."""
        request = GetMessage(queue=queue, id=message_id, with_body=with_body)
        answer: MessageView = await self._call("get", request)
        return answer

    async def peek(
        self,
        queue: str,
        count: int = 10,
        *,
        after: str | None = None,
        wanted: DeadLetterFilter = _EVERYTHING,
        with_body: bool = False,
    ) -> list[MessageView]:
        """Return messages without leasing them, in the order they came to the queue, after one of them if told."""
        request = Peek(queue=queue, count=count, after=after, wanted=wanted, with_body=with_body)
        answer: MessageList = await self._call("peek", request)
        return answer.messages

    async def explain(self, queue: str, message_id: str) -> Explained:
        """Tell why a message waits, in words and in fields."""
        answer: Explained = await self._call("explain", Explain(queue=queue, id=message_id))
        return answer

    async def get_state(self, queue: str, message_id: str) -> tuple[bytes | None, str | None]:
        """Return the workflow state of a message and its etag; None twice where there is none."""
        answer: WorkflowState = await self._call("get_state", GetState(queue=queue, id=message_id))
        return answer.state, answer.etag

    async def set_state(self, message: Held, state: bytes | None, *, etag: str | None) -> str | None:
        """Write the workflow state of a leased message, or with None remove it. Returns the etag of the new version.

        It is written only if the present version still is ``etag``, None for there being none.
        """
        request = SetState(queue=message.queue, receipt=receipt_of(message), state=state, etag=etag)
        answer: Etag = await self._call("set_state", request)
        return answer.etag
