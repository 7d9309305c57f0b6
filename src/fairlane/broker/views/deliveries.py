"""Turns leased messages into what a consumer gets, and works out how long they waited."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Final, cast

import msgspec

from fairlane.broker.bodies import Bodies
from fairlane.broker.cycle import Executor
from fairlane.broker.measurements import Waited
from fairlane.broker.requests import AttachedConsumer, Call, HandOut, Waiter
from fairlane.broker.views.delivery_columns import columns_of
from fairlane.core.ledger import Message
from fairlane.errors import FairlaneError
from fairlane.model.ids import number_text
from fairlane.model.message import PRIORITY_NAMES, DeadLetterOrigin, Delivery, Receipt
from fairlane.scheduler.item import Priority
from fairlane.verbs.leases import LeasedMessages, Nack

_time_left_ms: Final = attrgetter("time_left_ms")
_UNREADABLE_MS: Final = 1_000
"""How long a message that could not be read waits. Its queue may have no backoff, and then it would come back at once,
for as long as the store has its trouble.
"""


def deliver(executor: Executor, hand_out: HandOut) -> None:
    """Give leased messages to their taker, now that the leases are durable; if it is gone, they go back."""
    taker = hand_out.taker
    if taker.room is not None:
        taker.room.settle()
    is_gone = taker.is_closed if isinstance(taker, AttachedConsumer) else taker.reply.done()
    if is_gone:
        request = Nack(queue=taker.queue, receipts=hand_out.receipts(), intent="defer", delay_ms=0)
        executor.submit(Call(request))
        if taker.room is not None:
            taker.room.serve_passed_over()  # it was kept for a reader that is gone
        return
    try:
        deliveries = deliveries_of(executor, hand_out)
    except FairlaneError as error:
        deliveries = _readable(executor, hand_out)
        if not deliveries:
            if isinstance(taker, Waiter):
                taker.reply.set_exception(error)
            return
    if type(deliveries) is list and any(map(_time_left_ms, deliveries)):  # most messages have no deadline
        deliveries = _in_time(executor, deliveries)
    if isinstance(taker, AttachedConsumer):
        if deliveries:  # none would mean that no more will come
            taker.deliver(deliveries)
    else:
        taker.reply.set_result(LeasedMessages(deliveries=deliveries))


def _readable(executor: Executor, hand_out: HandOut) -> list[Delivery]:
    """Return the deliveries whose bodies can be read. The others go back as failed attempts, or they would circle."""
    deliveries: list[Delivery] = []
    for token, message in enumerate(hand_out.messages, hand_out.token):
        single = HandOut(hand_out.taker, [message], token)
        try:
            deliveries.extend(deliveries_of(executor, single))
        except FairlaneError as error:
            queue = hand_out.taker.queue
            request = Nack(queue=queue, receipts=single.receipts(), error=str(error), delay_ms=_UNREADABLE_MS)
            executor.submit(Call(request))
    return deliveries


def _in_time(executor: Executor, deliveries: list[Delivery]) -> list[Delivery]:
    """Return the deliveries whose deadlines have not passed during the commit. The late ones go back, and expire."""
    late = [delivery for delivery in deliveries if (delivery.time_left_ms or 0) < 0]
    if not late:
        return deliveries
    receipts = [Receipt(delivery.id, delivery.token) for delivery in late]
    executor.submit(Call(Nack(queue=late[0].queue, receipts=receipts, intent="defer", delay_ms=0)))
    return [delivery for delivery in deliveries if (delivery.time_left_ms or 0) >= 0]


def deliveries_of(executor: Executor, hand_out: HandOut) -> list[Delivery]:
    """Return the deliveries of a hand-out, with payloads and if asked for with workflow state.

    They are columns if the taker knows these and all messages are plain.
    """
    if hand_out.taker.has_columns:
        columns = columns_of(executor.bodies, hand_out)
        if columns is not None:
            return cast("list[Delivery]", columns)
    messages = hand_out.messages
    tokens = range(hand_out.token, hand_out.token + len(messages))
    taker, now_ms = hand_out.taker, executor.now_ms
    return delivered(executor.bodies, taker.queue, messages, tokens, with_state=taker.with_state, now_ms=now_ms)


def delivered(
    bodies: Bodies,
    queue: str,
    messages: Sequence[Message],
    tokens: Iterable[int],
    *,
    with_state: bool = False,
    now_ms: Callable[[], int] | None = None,
) -> list[Delivery]:
    """Return messages of a queue, each leased under its token, as their holder gets them.

    With a clock, those with a deadline have the time that is left until then.
    """
    ids = messages[0].queue.ids.ids_of([message.number for message in messages]) if messages else []
    states = bodies.states(messages) if with_state else [None] * len(messages)
    deliveries = []
    for message, message_id, token, (headers, correlation_id, payload), state in zip(
        messages, ids, tokens, bodies.read(messages, with_pieces=True), states, strict=True
    ):
        delivery = Delivery(
            id=message_id,
            queue=queue,
            token=token,
            payload=payload,
            headers=headers,
            fairness_key=message.key,
            attempt=message.attempts,
            expires_ms=message.expires_ms,
            enqueued_ms=message.enqueued_ms,
            correlation_id=correlation_id or message_id,
        )
        if message.after is not None or message.cost != 1 or message.priority is not Priority.NORMAL:
            delivery = _with_rarities(delivery, message, state, is_streamed=bodies.is_streamed(message))
        if message.deadline_ms is not None:
            delivery = _with_deadline(delivery, message.deadline_ms, now_ms)
        deliveries.append(delivery)
    return deliveries


def _with_rarities(delivery: Delivery, message: Message, state: bytes | None, *, is_streamed: bool) -> Delivery:
    """Return a delivery with what few have; to say it of all would take four times as long."""
    after = message.after
    return msgspec.structs.replace(
        delivery,
        cost=message.cost,
        priority=PRIORITY_NAMES[message.priority],
        failures=message.failures,
        state=state,
        state_etag=None if after is None or after.state is None else number_text(after.state),
        errors=() if after is None else after.errors,
        dead=dead_letter_of(message),
        payload_size=message.size if is_streamed else None,
        order_key=None if after is None else after.order_key,
    )


def _with_deadline(delivery: Delivery, deadline_ms: int, now_ms: Callable[[], int] | None) -> Delivery:
    left_ms = None if now_ms is None else deadline_ms - now_ms()
    return msgspec.structs.replace(delivery, deadline_ms=deadline_ms, time_left_ms=left_ms)


def dead_letter_of(message: Message) -> DeadLetterOrigin | None:
    """Return why a message is a dead letter, None if it is not."""
    after = message.after
    if after is None or after.origin is None:
        return None
    return DeadLetterOrigin(origin=after.origin, reason=after.dead_reason or "", at_ms=after.dead_ms)


def waited(message: Message) -> Waited:
    """Return how a message waited that was just handed out."""
    ready_ms = message.ready_ms
    # of a message that was handed out or moved before, the delay is backoff or a redrive's
    is_new = message.attempts <= 1 and message.since_ms == message.enqueued_ms
    return Waited(message.key, message.cost, ready_ms, ready_ms - message.enqueued_ms if is_new else 0)
