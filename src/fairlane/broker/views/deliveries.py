"""From leased messages to what a consumer gets, and to how long they waited."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from fairlane.broker.bodies import Bodies
from fairlane.broker.measurements import Waited
from fairlane.broker.requests import HandOut
from fairlane.core.ledger import Message
from fairlane.model.message import PRIORITY_NAMES, DeadLetterOrigin, Delivery
from fairlane.model.names import id_of, ids_of
from fairlane.scheduler.item import Priority


def deliveries_of(bodies: Bodies, hand_out: HandOut) -> list[Delivery]:
    """Return the deliveries of a hand-out, with payloads and if asked for with workflow state."""
    messages = hand_out.messages
    tokens = range(hand_out.token, hand_out.token + len(messages))
    return delivered(bodies, hand_out.taker.queue, messages, tokens, with_state=hand_out.taker.with_state)


def delivered(
    bodies: Bodies, queue: str, messages: Sequence[Message], tokens: Iterable[int], *, with_state: bool = False
) -> list[Delivery]:
    """Return messages of a queue, each leased under its token, as their holder gets them."""
    ids = ids_of([message.number for message in messages])
    states = bodies.states(messages) if with_state else [None] * len(messages)
    deliveries = []
    for message, message_id, token, (headers, correlation_id, payload), state in zip(
        messages, ids, tokens, bodies.read(messages), states, strict=True
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
            delivery = _with_rarities(delivery, message, state)
        deliveries.append(delivery)
    return deliveries


def _with_rarities(delivery: Delivery, message: Message, state: bytes | None) -> Delivery:
    """Return a delivery with what few have; to say it of all would take four times as long."""
    after = message.after
    return msgspec.structs.replace(
        delivery,
        cost=message.cost,
        priority=PRIORITY_NAMES[message.priority],
        failures=message.failures,
        state=state,
        state_etag=None if after is None or after.state is None else id_of(after.state),
        errors=() if after is None else after.errors,
        dead=dead_letter_of(message),
    )


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
