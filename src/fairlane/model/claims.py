"""Registered consumers and their claims."""

from __future__ import annotations

import msgspec

from fairlane.model.message import Delivery


class ConsumerView(msgspec.Struct, frozen=True, kw_only=True):
    """A registered consumer of a queue.

    Attributes:
        epoch: grows with each registration; a consumer with an older one may no longer claim.
        claimed: the number of its latest claim, 0 before the first.
        done: its claims up to this number are completed.
        open_messages: messages that are leased under its open claim.
        heard_ms: when it last registered, claimed or read.
        idle_ms: after this long without a call its open claim is returned; None for never.
    """

    queue: str
    name: str
    epoch: int
    claimed: int
    done: int
    open_messages: int
    heard_ms: int
    idle_ms: int | None = None


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A claim, or with a count of 0 the result that there was nothing to claim.

    Attributes:
        number: 1 for a consumer's first claim, 2 for its second, and so on; without a claim the last completed number.
        count: how many messages it has, including those settled since with receipts of their own.
        size_bytes: the payload bytes of the messages that are still leased under it.
    """

    number: int
    count: int
    size_bytes: int


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of a claim.

    Attributes:
        deliveries: the messages at the requested positions, without those settled since with a receipt of their own.
        total: how many positions the claim has.
    """

    deliveries: list[Delivery]
    total: int
