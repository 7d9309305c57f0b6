"""What records of redrives change. The moves themselves are in ``apply/messages.py``."""

from __future__ import annotations

import msgspec

from fairlane.core.ledger import Ledger, Message
from fairlane.core.states.redrives import ENDED_KEPT, RedriveState
from fairlane.journal.records import RedriveEnded, RedriveStarted


def redrive_started(ledger: Ledger, record: RedriveStarted, at_ms: int) -> list[Message]:
    """Note a redrive that was ordered."""
    ledger.redrives[record.sequence] = RedriveState(record, at_ms)
    return []


def redrive_ended(ledger: Ledger, record: RedriveEnded, _at_ms: int) -> list[Message]:
    """Note the end of a redrive, and forget the oldest of those that are over."""
    known = ledger.redrives.get(record.number)
    if known is not None:
        known.end = record.end
        wanted = msgspec.structs.replace(known.order.wanted, ids=None)  # the longest part, and of no use any more
        known.order = msgspec.structs.replace(known.order, wanted=wanted)
    over = [redrive.number for redrive in ledger.redrives.values() if redrive.end is not None]
    for number in over[:-ENDED_KEPT]:
        del ledger.redrives[number]
    return []
