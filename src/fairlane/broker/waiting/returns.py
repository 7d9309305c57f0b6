"""How messages go back to their queue when the consumer that holds them leaves."""

from __future__ import annotations

from typing import Final

from fairlane.broker.calls import run_call, take_nack
from fairlane.broker.cycle import Cycle, Executor
from fairlane.broker.requests import AfterRelease, Call
from fairlane.core.commands import Given
from fairlane.model.message import Receipt
from fairlane.verbs.leases import Nack
from fairlane.verbs.verb import Reply

_RELEASED: Final = Given(reason="release")


def take_back(
    executor: Executor,
    queue: str,
    receipts: list[Receipt],
    freed: list[Receipt],
    unseen: set[str],
    cycle: Cycle,
    reply: Reply,
) -> None:
    """Return messages that a consumer held to their queue: what it never saw is deferred, the rest is lost.

    The reply is answered when all are back: a script that decides about failures may need time. What is deferred does
    not wait for that. Should this cycle fail while the rest waits, then what it has deferred, and what left the
    consumer's hands in it before, is held after all. So the decision about the rest is about these too.
    """
    if queue not in executor.ledger.queues:
        receipts = []
    untouched = [receipt for receipt in receipts if receipt.id in unseen]
    lost = [receipt for receipt in receipts if receipt.id not in unseen]
    _defer(executor, queue, untouched, cycle)
    if lost:
        untouched += [receipt for receipt in freed if receipt.id in unseen]
        lost += [receipt for receipt in freed if receipt.id not in unseen]
        request = Nack(queue=queue, receipts=lost, error="The consumer went away.")
        call = Call(request, AfterRelease(reply), given=_RELEASED)
        take_nack(executor, call, request, cycle, before=lambda later, at: _defer(later, queue, untouched, at))
    else:
        cycle.answer(reply, None)


def _defer(executor: Executor, queue: str, receipts: list[Receipt], cycle: Cycle) -> None:
    """Return messages that were not seen, as far as they are still under these leases."""
    ledger = executor.ledger
    number_of = ledger.ids.number_of
    held = [receipt for receipt in receipts if ledger.token_of(queue, number_of(receipt.id)) == receipt.token]
    if held:
        run_call(executor, Call(Nack(queue=queue, receipts=held, intent="defer", delay_ms=0)), cycle)
