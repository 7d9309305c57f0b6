"""Leased messages as columns, for takers that know them: no object is made for a message on its way out."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.broker.bodies import Bodies
from fairlane.broker.requests import HandOut
from fairlane.core.ledger import Message
from fairlane.scheduler.item import Priority
from fairlane.verbs.columns import COLUMNS_FROM, DeliveryColumns

_NORMAL = Priority.NORMAL


def columns_of(bodies: Bodies, hand_out: HandOut) -> DeliveryColumns | None:
    """Return what a hand-out gives to its taker; None if there is more to say about a message than columns hold.

    Raises StoreCorrupt if a body is missing.
    """
    messages = hand_out.messages
    if len(messages) < COLUMNS_FROM or hand_out.taker.with_state or not _are_plain(messages):
        return None
    numbers = [message.number for message in messages]
    journal = messages[0].queue.ids.journal_of(numbers)
    found = bodies.read(messages)
    if journal is None or any(headers or correlation_id for headers, correlation_id, _ in found):
        return None
    return DeliveryColumns(
        hand_out.taker.queue,
        journal=journal,
        numbers=numbers,
        token=hand_out.token,
        expires_ms=messages[0].expires_ms,
        keys=[message.key for message in messages],
        attempts=[message.attempts for message in messages],
        enqueued_ms=[message.enqueued_ms for message in messages],
        payloads=[payload for _, _, payload in found],
    )


def _are_plain(messages: Sequence[Message]) -> bool:
    expires_ms = messages[0].expires_ms
    for message in messages:
        if (
            message.after is not None
            or message.deadline_ms is not None
            or message.cost != 1
            or message.priority is not _NORMAL
            or message.expires_ms != expires_ms
        ):
            return False
    return True
