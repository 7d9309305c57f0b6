"""Methods about messages, for asyncio. Those for threads are made from this file by ``tools/sync_verbs.py``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar, Unpack

from fairlane.errors import FairlaneError
from fairlane.model.message import (
    Became,
    Delivery,
    FailureDetail,
    MessageStatus,
    MessageTerms,
    MessageView,
    NewMessage,
    Receipt,
)
from fairlane.model.payloads import NO_VALUE, NoValue
from fairlane.model.views import DeadLetterFilter, Explained
from fairlane.verbs.fan_outs import FannedOutIds, FanOut, OnFailure
from fairlane.verbs.leases import Ack, Extend, Forward, Lease, Nack, NackIntent, SetState
from fairlane.verbs.messages import ENQUEUE_WAIT_MS, Cancel, Enqueue, EnqueueResult, Explain, GetMessage, GetState, Peek
from fairlane.verbs.methods.base_aio import AsyncVerbs
from fairlane.verbs.methods.conversions import (
    Held,
    LeasedMessage,
    ends_of,
    enqueued_of,
    errors_of,
    fates_of,
    held,
    ids_of,
    message_of,
    messages_of,
    only,
    receipts_of,
)

M = TypeVar("M")
_EVERYTHING = DeadLetterFilter()


class AsyncMessageVerbs(AsyncVerbs, Generic[M]):
    """What producers and consumers do with messages. The type parameter is what ``lease`` returns."""

    # ------------------------------------------------------------------------------------------- what clients refine

    @abstractmethod
    def _delivered(self, deliveries: list[Delivery]) -> list[M]:
        """Return leased messages as the program gets them."""

    def _prepared(self, messages: list[NewMessage]) -> list[NewMessage]:
        """Return new messages as they are sent."""
        return messages

    def _receipts(
        self,
        leased: Sequence[LeasedMessage],
        costs: Sequence[int | None] | None,
        results: Sequence[bytes | None] | None,
    ) -> list[Receipt]:
        """Return the receipts of messages that are acknowledged together."""
        return receipts_of(leased, costs, results)

    async def _enqueue_one(self, queue: str, message: NewMessage, wait_ms: int) -> EnqueueResult:
        """Enqueue one message. Clients send messages of the same moment together."""
        answer = await self.call(Enqueue(queue=queue, messages=self._prepared([message]), wait_ms=wait_ms))
        return only(enqueued_of(answer.results))

    async def _ack_one(self, queue: str, receipt: Receipt) -> None:
        """Acknowledge one message. Clients send acknowledgements of the same moment together."""
        answer = await self.call(Ack(queue=queue, receipts=[receipt]))
        only(errors_of(answer.results))

    # ------------------------------------------------------------------------------------------------------- messages

    async def enqueue(
        self,
        queue: str,
        message: NewMessage | bytes | NoValue = NO_VALUE,
        *,
        json: object = NO_VALUE,
        wait_ms: int = ENQUEUE_WAIT_MS,
        **terms: Unpack[MessageTerms],
    ) -> str:
        """Enqueue a message, or a payload with the fields of ``NewMessage`` as terms. Returns the message's id.

        ``json`` is a value that is sent as JSON in place of a payload: plain values, dataclasses, Structs of msgspec,
        or models of pydantic.
        ``wait_ms`` is how long it may wait for capacity where the queue's policy is to wait.

        Raises:
            QueueNotFound, InvalidArgument, PayloadTooLarge: it was not enqueued.
            QueueFull, KeyFull, GlobalFull: a limit was reached.
        """
        return only(ids_of([await self._enqueue_one(queue, message_of(message, json, terms), wait_ms)]))

    async def enqueue_one(
        self,
        queue: str,
        message: NewMessage | bytes | NoValue = NO_VALUE,
        *,
        json: object = NO_VALUE,
        wait_ms: int = ENQUEUE_WAIT_MS,
        **terms: Unpack[MessageTerms],
    ) -> EnqueueResult:
        """Enqueue a message as ``enqueue`` does. Returns its id, and in ``is_repeat`` whether it repeats another.

        Raises:
            QueueNotFound, InvalidArgument, PayloadTooLarge: it was not enqueued.
            QueueFull, KeyFull, GlobalFull: a limit was reached.
        """
        return await self._enqueue_one(queue, message_of(message, json, terms), wait_ms)

    async def enqueue_many(
        self, queue: str, messages: Sequence[NewMessage], *, wait_ms: int = ENQUEUE_WAIT_MS
    ) -> list[str | FairlaneError]:
        """Enqueue messages in this order and in one commit. Returns an id or an error for each.

        Raises:
            QueueNotFound, InvalidArgument: no message was enqueued.
        """
        prepared = self._prepared(messages_of(messages))
        answer = await self.call(Enqueue(queue=queue, messages=prepared, wait_ms=wait_ms))
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
        handlers: int | None = None,
    ) -> list[M]:
        """Lease up to ``count`` messages in fair order, waiting up to ``wait_ms`` for the first.

        Returns as soon as a message is available, and an empty list if none became available in time. The answer ends
        once it has ``answer_bytes_max``, which its last message may exceed. The leases are durable.
        Consumers that wait are served in the order in which they came. With ``handlers``, the number that you can start
        at once, no more than that are leased while messages with a deadline or a throttle, or of a key with a cap, may
        go. A cancelled call loses nothing: its leases are
        returned to the queue.

        Raises:
            QueueNotFound, InvalidArgument, TooManyWaiters: nothing was leased.
        """
        request = Lease(
            queue=queue,
            count=count,
            wait_ms=wait_ms,
            visibility_ms=visibility_ms,
            owner=owner,
            with_state=with_state,
            handlers=handlers,
        )
        answer = await self.call(request)
        return self._delivered(answer.deliveries)

    async def ack(
        self,
        message: Held,
        *,
        cost: int | None = None,
        result: bytes | None = None,
        forward: Mapping[str, Sequence[NewMessage]] | None = None,
    ) -> list[str]:
        """Acknowledge a leased message, with its actual cost if it is known. The broker deletes it with its state.

        A result is kept for the message's ``result_ttl_ms``, and dropped if that is 0; see ``result``.
        With ``forward``, messages by queue are enqueued in the same commit: everything happens or nothing. They inherit
        the correlation id, fairness key and trace of the acknowledged message unless they have their own. Returns their
        ids, in order.

        Raises:
            MessageNotFound, LeaseMismatch, MessageCancelled, ResultTooLarge: it was not acknowledged, and nothing was
                enqueued.
            QueueNotFound, InvalidArgument, PayloadTooLarge, QueueFull, KeyFull, GlobalFull: a message to forward was
                refused; nothing was acknowledged or enqueued.
        """
        queue, receipt = held(message, cost, result)
        if not forward:
            await self._ack_one(queue, receipt)
            return []
        messages = {target: self._forwarded(messages_of(news)) for target, news in forward.items()}
        answer = await self.call(Forward(queue=queue, receipt=receipt, messages=messages))
        return answer.ids

    async def fan_out(
        self,
        queue: str,
        then: NewMessage,
        messages: Mapping[str, Sequence[NewMessage]],
        *,
        name: str,
        on_failure: OnFailure = "dead",
    ) -> FannedOutIds:
        """Enqueue messages by queue, the members, and ``then``, which enters ``queue`` when all of them have ended.

        Everything happens or nothing. A member has ended when it is acknowledged, is a dead letter, or is removed; what
        it forwards takes its place. If one was not acknowledged, ``then`` becomes a dead letter, or still runs with
        ``on_failure="run"``. Safe to repeat: a ``name`` that is known returns the same ids.

        Raises:
            QueueNotFound, InvalidArgument, PayloadTooLarge, QueueFull, KeyFull, GlobalFull: a message was refused;
                nothing was enqueued.
        """
        members = {target: self._forwarded(messages_of(news)) for target, news in messages.items()}
        (last,) = self._forwarded([then])
        request = FanOut(queue=queue, name=name, messages=members, then=last, on_failure=on_failure)
        return await self.call(request)

    def _forwarded(self, messages: list[NewMessage]) -> list[NewMessage]:
        """Return messages to forward as they are sent."""
        return messages

    async def ack_many(
        self,
        queue: str,
        leased: Sequence[LeasedMessage],
        *,
        costs: Sequence[int | None] | None = None,
        results: Sequence[bytes | None] | None = None,
    ) -> list[FairlaneError | None]:
        """Acknowledge leased messages, with their costs and results where these are given. Returns None or an error
        for each.

        Raises:
            QueueNotFound, InvalidArgument: no message was acknowledged.
        """
        answer = await self.call(Ack(queue=queue, receipts=self._receipts(leased, costs, results)))
        return errors_of(answer.results)

    async def nack(
        self,
        message: Held,
        *,
        error: str = "",
        intent: NackIntent = "failure",
        delay_ms: int | None = None,
        detail: FailureDetail | None = None,
    ) -> Became:
        """Return a leased message to its queue, because it failed or to defer it, or with ``dead`` to the dead letters.

        Returns what became of it: ``waiting``, ``delayed``, ``dead``, or ``expired`` if its deadline has passed.

        The error is kept with the message, and so is a ``detail`` of where and how the attempt failed.
        A failed message waits for the hook's or the policy's backoff unless a delay is given, and becomes a dead letter
        after ``max_attempts`` failures. Deferring does not count as a failure. Either way the message goes to the end
        of its line.

        Raises:
            MessageNotFound, LeaseMismatch, InvalidArgument: it was not returned.
        """
        queue, receipt = held(message)
        request = Nack(queue=queue, receipts=[receipt], intent=intent, error=error, delay_ms=delay_ms, detail=detail)
        answer = await self.call(request)
        return only(fates_of(answer.results))

    async def nack_many(
        self,
        queue: str,
        leased: Sequence[LeasedMessage],
        *,
        error: str = "",
        intent: NackIntent = "failure",
        delay_ms: int | None = None,
        detail: FailureDetail | None = None,
    ) -> list[Became | FairlaneError]:
        """Return leased messages to their queue; see ``nack``. Returns what became of each, or an error.

        Raises:
            QueueNotFound, InvalidArgument: no message was returned.
        """
        receipts = receipts_of(leased)
        request = Nack(queue=queue, receipts=receipts, intent=intent, error=error, delay_ms=delay_ms, detail=detail)
        answer = await self.call(request)
        return fates_of(answer.results)

    async def extend(self, message: Held, *, visibility_ms: int | None = None) -> int:
        """Renew a lease, by default for the queue's visibility timeout. Returns when it ends.

        Raises:
            MessageNotFound, LeaseMismatch, InvalidArgument: it was not extended.
        """
        queue, receipt = held(message)
        answer = await self.call(Extend(queue=queue, receipts=[receipt], visibility_ms=visibility_ms))
        return only(ends_of(answer.results))

    async def extend_many(
        self, queue: str, leased: Sequence[LeasedMessage], *, visibility_ms: int | None = None
    ) -> list[int | FairlaneError]:
        """Renew leases. Returns for each when it ends, or an error.

        Raises:
            QueueNotFound, InvalidArgument: no lease was extended.
        """
        answer = await self.call(Extend(queue=queue, receipts=receipts_of(leased), visibility_ms=visibility_ms))
        return ends_of(answer.results)

    async def cancel(self, queue: str, message_id: str, *, reason: str = "", only_waiting: bool = False) -> None:
        """Remove a message. If it is leased, its lease is revoked at once, unless it should be removed only while it
        waits.

        The consumer is notified over its stream, and its later calls about the message raise ``MessageCancelled``.

        Raises:
            QueueNotFound, MessageNotFound, MessageCancelled, NotPending: it was not removed.
        """
        only(await self.cancel_many(queue, [message_id], reason=reason, only_waiting=only_waiting))

    async def cancel_many(
        self, queue: str, message_ids: Sequence[str], *, reason: str = "", only_waiting: bool = False
    ) -> list[FairlaneError | None]:
        """Remove messages; see ``cancel``. Returns None or an error for each.

        Raises:
            QueueNotFound, InvalidArgument: no message was removed.
        """
        ids = message_ids if isinstance(message_ids, str) else list(message_ids)
        request = Cancel(queue=queue, ids=ids, reason=reason, only_waiting=only_waiting)  # type: ignore[arg-type]  # the broker refuses a text
        answer = await self.call(request)
        return errors_of(answer.results)

    async def get(self, queue: str, message_id: str, *, with_body: bool = True) -> MessageView:
        """Return a message without leasing it.

        Raises:
            QueueNotFound, MessageNotFound: it does not exist.
        """
        return await self.call(GetMessage(queue=queue, id=message_id, with_body=with_body))

    async def peek(
        self,
        queue: str,
        count: int = 10,
        *,
        after: str | None = None,
        wanted: DeadLetterFilter = _EVERYTHING,
        status: MessageStatus | None = None,
        with_body: bool = False,
    ) -> list[MessageView]:
        """Return messages without leasing them, in the order in which they came, from the one after ``after``.

        ``wanted`` selects messages, mostly dead letters, and ``status`` those that wait, are delayed or leased. With
        bodies the answer ends once it has ``answer_bytes_max``: request those after the last one next.

        Raises:
            QueueNotFound, InvalidArgument: there is no answer.
        """
        request = Peek(queue=queue, count=count, after=after, wanted=wanted, status=status, with_body=with_body)
        answer = await self.call(request)
        return answer.messages

    async def explain(self, queue: str, message_id: str) -> Explained:
        """Explain why a message is waiting, in words and in fields.

        Raises:
            QueueNotFound, MessageNotFound: it does not exist.
        """
        return await self.call(Explain(queue=queue, id=message_id))

    # -------------------------------------------------------------------------------------------------- workflow state

    async def get_state(self, queue: str, message_id: str) -> tuple[bytes | None, str | None]:
        """Return the workflow state of a message and its etag; both are None if there is none.

        Raises:
            QueueNotFound, MessageNotFound: the message does not exist.
        """
        answer = await self.call(GetState(queue=queue, id=message_id))
        return answer.state, answer.etag

    async def set_state(self, message: Held, state: bytes | None, *, etag: str | None) -> str | None:
        """Write the workflow state of a leased message, or with None remove it. Returns the new etag.

        The state is written only if the current version is ``etag``; None means that there is none. State stays with
        the message through retries and dead letters, and is deleted when the message is acknowledged.

        Raises:
            MessageNotFound, LeaseMismatch, StateMismatch, InvalidArgument: it was not written.
        """
        queue, receipt = held(message)
        answer = await self.call(SetState(queue=queue, receipt=receipt, state=state, etag=etag))
        return answer.etag
