"""Leases of a cycle that failed. They may have been committed, and then no consumer has received their messages."""

from __future__ import annotations

from collections.abc import Iterable

from fairlane.broker.cycle import Executor
from fairlane.broker.requests import Call, HandOut
from fairlane.model.message import Receipt
from fairlane.model.names import number_of
from fairlane.verbs.leases import Nack


class Undelivered:
    """Remembers such leases until recovery has shown which of them there are."""

    def __init__(self) -> None:
        self._receipts: list[tuple[str, Receipt]] = []

    def take_in(self, hand_outs: Iterable[HandOut]) -> None:
        """Remember what was handed out in a cycle that has failed."""
        for hand_out in hand_outs:
            self._receipts.extend((hand_out.taker.queue, receipt) for receipt in hand_out.receipts())

    def reclaim(self, executor: Executor) -> None:
        """Give back the leases that are there after all."""
        for queue, receipt in self._receipts:
            if executor.ledger.token_of(queue, number_of(receipt.id)) == receipt.token:
                executor.submit(Call(Nack(queue=queue, receipts=[receipt], intent="defer", delay_ms=0)))
        self._receipts = []
