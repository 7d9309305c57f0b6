"""Strict order per key: which messages are kept in order, and what may become of those that are leased together.

Theory of operation
-------------------
The messages of one fairness key with one order key are a *group*. Their order is that of ``joined``: the sequence at
which each was enqueued, published or redriven. A message that is returned keeps it, so a retry keeps its place; a
redrive gives it another, at the tail.

The schedule hands out the first message of a group, or the first few to one consumer in one lease, and nothing else of
the group until all of these are done or returned (``scheduler/order.py``). So the leased messages of a group are always
its first ones, and two rules keep what is done in order:

- A message is acknowledged only after, or together with, those before it. Otherwise the ack is refused as
  ``out_of_order``, and the lease lasts.
- When a message is returned, whatever the reason, the leases of those behind it end with it. They are given back
  without a failed attempt, and an ack under such a lease is refused, even if it was on its way.

When a whole batch is lost, because its lease expired or its consumer disconnected, only the first message of each group
has had an attempt that counts: a consumer that works in order has not begun with the others.

A message that becomes a dead letter, expires or is removed is done, and those behind it go on.

The ledger keeps the leased messages of each group (``apply/counting.py``). Under a policy that was changed to strict
order, messages of a group may be leased that others are before; they end as these rules allow.
"""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.core.ledger import Group, Message, Queue


def in_order(queue: Queue, held: Sequence[Message]) -> set[int]:
    """Return the numbers of those of some leased messages that can be acknowledged together."""
    groups = queue.leased_groups
    asked = {message.number for message in held}
    if groups is None:
        return asked
    for name in {message.group for message in held}:
        is_first = True
        for message in sorted(groups[name].values(), key=_joined):
            is_first = is_first and message.number in asked
            if not is_first:
                asked.discard(message.number)
    return asked


def sent_back(queue: Queue, held: Sequence[Message], dead: set[int], *, is_lost: bool) -> list[Message]:
    """Return the messages that are given back without an attempt, because one before them is returned.

    Args:
        queue: the queue.
        held: the messages whose leases end.
        dead: the numbers of those of them that would become dead letters by themselves.
        is_lost: whether the consumer is silent or gone, so that only the first of each group was begun.
    """
    if queue.leased_groups is None:
        return []
    ending: dict[Group, list[Message]] = {}
    for message in sorted(held, key=_joined):
        ending.setdefault(message.group, []).append(message)
    found: list[Message] = []
    for name, messages in ending.items():
        begun = messages[:1] if is_lost else messages
        found += messages[len(begun) :]
        returned = [message for message in begun if message.number not in dead] + messages[len(begun) :]
        if returned:
            known = {message.number for message in messages}
            leased = (message for message in queue.leased_groups[name].values() if message.number not in known)
            found += [message for message in leased if message.joined > returned[0].joined]
    return found


def _joined(message: Message) -> int:
    return message.joined
