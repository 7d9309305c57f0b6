"""Registered consumers and what they claim."""

from __future__ import annotations

import msgspec

from fairlane.model.message import Delivery


class ConsumerView(msgspec.Struct, frozen=True, kw_only=True):
    """A registered consumer of a queue.

    Attributes:
        epoch: grows with each registration; whoever has an older one may claim no more.
        claimed: the number of its latest claim, 0 before the first.
        done: its claims up to this number are over.
        open_messages: messages that are leased under its open claim.
        heard_ms: when it last registered, claimed or read.
        idle_ms: after so long without a word its open claim is given back; None for never.
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
    """A claim, or with a count of 0 that there was nothing to claim.

    Attributes:
        number: 1 for a consumer's first claim, 2 for its second, and so on; without a claim the number that is done.
        count: how many messages it has, those included that were settled since with receipts of their own.
        size_bytes: the payloads of the messages that are still leased under it.
    """

    number: int
    count: int
    size_bytes: int


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of a claim.

    Attributes:
        deliveries: those of the places asked for, without what was settled since with a receipt of its own.
        total: how many places the claim has.
    """

    deliveries: list[Delivery]
    total: int
