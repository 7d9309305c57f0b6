"""What records of fan-outs change, and what the ends of messages change in fan-outs."""

from __future__ import annotations

from msgspec.structs import replace

from fairlane.core.dedup_ids import remembered_name
from fairlane.core.ledger import Ledger, Message
from fairlane.core.states.fan_outs import runs_of
from fairlane.journal.records import Enqueued, FannedOut, FanOutImage, OfMessages, Published


def fanned_out(ledger: Ledger, record: FannedOut, _at_ms: int) -> list[Message]:
    """Begin a fan-out, whose messages are there since the records before."""
    key = ledger.queues[record.queue].staged[record.number].key
    order = replace(record, name=remembered_name(key, record.name))
    ledger.fan_outs.add(FanOutImage(order, order.members))
    return []


def settle_members(ledger: Ledger, record: OfMessages, *, is_done: bool) -> None:
    """Note that messages have ended, as far as they are members of fan-outs."""
    fan_outs = ledger.fan_outs
    if fan_outs.members or fan_outs.left:
        fan_outs.settle(record.numbers, is_done=is_done)


def take_places(ledger: Ledger, record: Enqueued) -> None:
    """Put new messages in the place of the member that has forwarded them."""
    fan_out = None if record.cause is None else ledger.fan_outs.left.get(record.cause)
    if fan_out is not None:
        heirs = dict.fromkeys(range(record.sequence, record.sequence + record.count), record.queue)
        ledger.fan_outs.join(fan_out, runs_of(heirs))


def end_fan_outs(ledger: Ledger, record: Published, at_ms: int) -> None:
    """End the fan-outs whose continuations are published."""
    for number in record.numbers if not record.sink else ():
        ledger.fan_outs.end(number, at_ms)
