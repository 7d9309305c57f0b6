"""From leased messages to what a consumer gets."""

from __future__ import annotations

from fairlead.broker.bodies import Bodies
from fairlead.broker.requests import HandOut
from fairlead.core.ledger import Ledger, Message
from fairlead.model.message import PRIORITY_NAMES, DeadLetter, Delivery
from fairlead.model.names import id_of, number_of


def deliveries_of(ledger: Ledger, bodies: Bodies, hand_out: HandOut) -> list[Delivery]:
    """Return the deliveries of a hand-out, with payloads and if asked for with workflow state."""
    queue = hand_out.taker.queue
    messages = ledger.queues[queue].messages
    leased = [messages[number_of(receipt.id) or 0] for receipt in hand_out.receipts]
    read = bodies.read(leased)
    states = bodies.states(leased) if hand_out.taker.with_state else None
    deliveries = []
    for at, (receipt, message, (head, payload)) in enumerate(zip(hand_out.receipts, leased, read, strict=True)):
        after = message.after
        deliveries.append(
            Delivery(
                id=receipt.id,
                queue=queue,
                token=receipt.token,
                payload=payload,
                headers=head.headers,
                fairness_key=message.key,
                attempt=message.attempts,
                expires_ms=message.expires_ms,
                enqueued_ms=message.enqueued_ms,
                correlation_id=head.correlation_id or receipt.id,
                cost=message.cost,
                priority=PRIORITY_NAMES[message.priority],
                failures=message.failures,
                state=None if states is None else states[at],
                state_etag=None if after is None or after.state is None else id_of(after.state),
                dead=dead_letter_of(message),
            )
        )
    return deliveries


def dead_letter_of(message: Message) -> DeadLetter | None:
    """Return why a message is a dead letter, None if it is not."""
    after = message.after
    if after is None or after.origin is None:
        return None
    return DeadLetter(origin=after.origin, reason=after.dead_reason or "", at_ms=after.dead_ms)
