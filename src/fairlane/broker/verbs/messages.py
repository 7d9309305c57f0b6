"""Verbs for messages, for threads. Made from its twin by ``tools/sync_verbs.py``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Unpack, cast

from fairlane.broker.requests import Reply, Waiter
from fairlane.broker.verbs import asked
from fairlane.broker.verbs.asking import Asking
from fairlane.broker.verbs.checking import (
    Leased,
    check_batch,
    check_delivery,
    check_filter,
    check_messages,
    only,
    require,
)
from fairlane.broker.views import queues as views
from fairlane.core import commands
from fairlane.core.checks import whole_fault
from fairlane.core.commands import NackIntent
from fairlane.errors import FairlaneError, InvalidArgument
from fairlane.model import limits
from fairlane.model.message import Delivery, MessageTerms, MessageView, NewMessage, Receipt
from fairlane.model.views import DeadLetterFilter, Explained

ENQUEUE_WAIT_MS = 30_000
_EVERYTHING = DeadLetterFilter()


class MessageVerbs(Asking):
    """What producers and consumers do with messages."""

    # -------------------------------------------------------------------------------------------------------- messages

    def enqueue(
        self, queue: str, message: NewMessage | bytes, *, wait_ms: int = ENQUEUE_WAIT_MS, **terms: Unpack[MessageTerms]
    ) -> str:
        """Enqueue a message, or a payload with the fields of ``NewMessage`` as terms. Returns the message's id.

        ``wait_ms`` is how long it may wait for room where the queue's policy is to wait.

        Raises:
            QueueNotFound, InvalidArgument, PayloadTooLarge: it can't be enqueued.
            QueueFull, KeyFull, GlobalFull: there is no room.
        """
        results = self.enqueue_many(queue, [_message(message, terms)], wait_ms=wait_ms)
        return only(results)

    def enqueue_many(
        self, queue: str, messages: Sequence[NewMessage], *, wait_ms: int = ENQUEUE_WAIT_MS
    ) -> list[str | FairlaneError]:
        """Enqueue messages, each on its own, in this order and in one commit. Returns an id or an error for each.

        Raises:
            QueueNotFound, InvalidArgument: none was enqueued.
        """
        outcome = self._ask(lambda reply: asked.enqueue(queue, messages, reply, wait_ms=wait_ms))
        return cast("list[str | FairlaneError]", outcome)

    def lease(
        self,
        queue: str,
        count: int = 1,
        *,
        wait_ms: int = 0,
        visibility_ms: int | None = None,
        owner: str | None = None,
        with_state: bool = False,
    ) -> list[Delivery]:
        """Lease up to ``count`` messages, in fair order, waiting for the first of them if need be.

        Returns as soon as there is one; an empty list when none came in time. There are no more once they have
        ``answer_bytes_max`` of payload, which the last of them may exceed. The leases are durable. Consumers that wait
        are served first come, first served. A call that is cancelled loses nothing: its leases are given back.

        Raises:
            QueueNotFound, InvalidArgument, TooManyWaiters: nothing was leased.
        """

        def make(reply: Reply) -> Waiter:
            return asked.lease(
                queue,
                count,
                reply,
                wait_ms=wait_ms,
                visibility_ms=visibility_ms,
                owner=owner,
                with_state=with_state,
            )

        return cast("list[Delivery]", self._ask(make))

    def ack(
        self,
        delivery: Delivery,
        *,
        cost: int | None = None,
        forward: Mapping[str, Sequence[NewMessage]] | None = None,
    ) -> list[str]:
        """Let a leased message be done, at its true cost if told; it and its workflow state are gone.

        With ``forward``, messages by queue are enqueued in the same commit: all of it happens or nothing. Returns
        their ids, in order.

        Raises:
            MessageNotFound, LeaseMismatch: it was not acked, and nothing enqueued.
            QueueNotFound, InvalidArgument, PayloadTooLarge, QueueFull, KeyFull, GlobalFull: one of those to be
                forwarded was refused; it was not acked, and nothing enqueued.
        """
        check_delivery(delivery)
        for news in (forward or {}).values():
            check_messages(news)
        parts = [commands.Enqueue(queue=target, messages=list(news)) for target, news in (forward or {}).items()]
        costs = None if cost is None else [cost]
        command = commands.Ack(queue=delivery.queue, receipts=[delivery], costs=costs, forward=parts)  # type: ignore[list-item] # it has id and token
        outcome = self._do(command)
        if parts:
            return [message_id for ids in outcome for message_id in ids]
        only(outcome)
        return []

    def ack_many(
        self, queue: str, leased: Sequence[Leased], *, costs: Sequence[int | None] | None = None
    ) -> list[FairlaneError | None]:
        """Let leased messages be done, each on its own. Returns None or an error for each.

        Raises:
            QueueNotFound, InvalidArgument: none was acked.
        """
        outcome = self._ask(lambda reply: asked.ack(queue, leased, reply, costs=costs))
        return cast("list[FairlaneError | None]", outcome)

    def nack(
        self, delivery: Delivery, *, error: str = "", intent: NackIntent = "failure", delay_ms: int | None = None
    ) -> None:
        """Give a leased message back, because it failed, to defer it, or with intent ``dead`` to the dead letters.

        A failed one waits by the hook's or the policy's backoff unless a delay is given, and after ``max_attempts``
        failures it is a dead letter. A deferred one counts as no failure. Either goes to the back of its line.

        Raises:
            MessageNotFound, LeaseMismatch, InvalidArgument: it was not given back.
        """
        check_delivery(delivery)
        results = self.nack_many(delivery.queue, [delivery], error=error, intent=intent, delay_ms=delay_ms)
        only(results)

    def nack_many(
        self,
        queue: str,
        leased: Sequence[Leased],
        *,
        error: str = "",
        intent: NackIntent = "failure",
        delay_ms: int | None = None,
    ) -> list[FairlaneError | None]:
        """Give leased messages back, each on its own; see ``nack``. Returns None or an error for each.

        Raises:
            QueueNotFound, InvalidArgument: none was given back.
        """
        check_batch(leased)
        command = commands.Nack(
            queue=queue,
            receipts=leased,  # type: ignore[arg-type] # they have id and token
            intent=intent,
            delay_ms=delay_ms,
            error=error,
        )
        return cast("list[FairlaneError | None]", self._do(command))

    def extend(self, delivery: Delivery, *, visibility_ms: int | None = None) -> int:
        """Let a lease last so long from now, by default the queue's visibility timeout. Returns when it ends.

        Raises:
            MessageNotFound, LeaseMismatch, InvalidArgument: it was not extended.
        """
        check_delivery(delivery)
        results = self.extend_many(delivery.queue, [delivery], visibility_ms=visibility_ms)
        return only(results)

    def extend_many(
        self, queue: str, leased: Sequence[Leased], *, visibility_ms: int | None = None
    ) -> list[int | FairlaneError]:
        """Let leases last so long from now, each on its own. Returns when it ends, or an error, for each.

        Raises:
            QueueNotFound, InvalidArgument: none was extended.
        """
        check_batch(leased)
        command = commands.Extend(queue=queue, receipts=leased, visibility_ms=visibility_ms)  # type: ignore[arg-type] # they have id and token
        return cast("list[int | FairlaneError]", self._do(command))

    def cancel(self, queue: str, message_id: str) -> None:
        """Take out a message that is not leased.

        Raises:
            QueueNotFound, MessageNotFound, NotPending: it was not taken out.
        """
        only(self.cancel_many(queue, [message_id]))

    def cancel_many(self, queue: str, message_ids: Sequence[str]) -> list[FairlaneError | None]:
        """Take out messages that are not leased, each on its own. Returns None or an error for each.

        Raises:
            QueueNotFound: there is no such queue.
        """
        check_batch(message_ids)
        command = commands.Cancel(queue=queue, ids=message_ids)
        return cast("list[FairlaneError | None]", self._do(command))

    def get(self, queue: str, message_id: str, *, with_body: bool = True) -> MessageView:
        """Return a message without leasing it.

        Raises:
            QueueNotFound, MessageNotFound: there is none.
        """
        engine = self._engine

        def ask() -> MessageView:
            message = views.known_message(engine.ledger, queue, message_id)
            return views.views_of(engine.bodies, [message], with_body=with_body, now_ms=engine.now_ms())[0]

        return self._read(ask)

    def peek(
        self,
        queue: str,
        count: int = 10,
        *,
        after: str | None = None,
        wanted: DeadLetterFilter = _EVERYTHING,
        with_body: bool = False,
    ) -> list[MessageView]:
        """Return messages without leasing them, in the order they came to the queue, after one of them if told.

        For dead letters, and for others as far as it makes sense, a filter says which are wanted. With bodies there are
        no more once they have ``answer_bytes_max`` of payload: ask for those after the last.

        Raises:
            QueueNotFound, InvalidArgument: it can't be answered.
        """
        require(whole_fault("count", count, least=1, most=limits.BATCH_MAX))
        check_filter(wanted)
        engine = self._engine

        def ask() -> list[MessageView]:
            return views.peek(
                engine.ledger,
                engine.bodies,
                queue,
                limit=count,
                after=after,
                wanted=wanted,
                with_body=with_body,
                bytes_max=engine.settings.answer_bytes_max,
                now_ms=engine.now_ms(),
            )

        return self._read(ask)

    def explain(self, queue: str, message_id: str) -> Explained:
        """Tell why a message waits, in words and in fields.

        Raises:
            QueueNotFound, MessageNotFound: there is none.
        """
        engine = self._engine
        return self._read(
            lambda: views.explain(engine.ledger, engine.schedule, engine.consumers, queue, message_id, engine.now_ms())
        )

    # -------------------------------------------------------------------------------------------------- workflow state

    def get_state(self, queue: str, message_id: str) -> tuple[bytes | None, str | None]:
        """Return the workflow state of a message and its etag; None twice where there is none.

        Raises:
            QueueNotFound, MessageNotFound: there is no such message.
        """
        engine = self._engine

        def ask() -> tuple[bytes | None, str | None]:
            message = views.known_message(engine.ledger, queue, message_id)
            return engine.bodies.states([message])[0], views.message_view(message, engine.now_ms()).state_etag

        return self._read(ask)

    def set_state(self, delivery: Delivery, state: bytes | None, *, etag: str | None) -> str | None:
        """Write the workflow state of a leased message, or with None remove it. Returns the etag of the new version.

        It is written only if the present version still is ``etag``, None for there being none. State stays with the
        message through nack, expiry, dead letters and back, and goes with its ack.

        Raises:
            MessageNotFound, LeaseMismatch, StateMismatch, InvalidArgument: it was not written.
        """
        check_delivery(delivery)
        receipt = Receipt(delivery.id, delivery.token)
        command = commands.SetState(queue=delivery.queue, receipt=receipt, state=state, etag=etag)
        return cast("str | None", self._do(command))


def _message(message: NewMessage | bytes, terms: MessageTerms) -> NewMessage:
    if isinstance(message, NewMessage):
        if terms:
            raise InvalidArgument("Say the terms in the message, or give a payload and terms, not both.")
        return message
    try:
        return NewMessage(payload=message, **terms)
    except TypeError as error:
        raise InvalidArgument(f"A message has no such term: {error}.") from error
