"""What records of workflow state change."""

from __future__ import annotations

from fairlane.core.ledger import Ledger, Message
from fairlane.core.states.aftermath import Aftermath
from fairlane.journal import records


def state_set(ledger: Ledger, record: records.StateSet, _at_ms: int) -> list[Message]:
    """Set the workflow state of a message."""
    message = ledger.find(record.queue, record.number)
    if message is None:
        return []
    after = message.aftermath()
    drop_state(ledger, after)
    after.state, after.state_bytes = record.sequence, record.size
    return [message]


def state_removed(ledger: Ledger, record: records.StateRemoved, _at_ms: int) -> list[Message]:
    """Remove the workflow state of a message."""
    message = ledger.find(record.queue, record.number)
    if message is None or message.after is None:
        return []
    drop_state(ledger, message.after)
    return [message]


def drop_state(ledger: Ledger, after: Aftermath) -> None:
    """Drop the workflow state of a message, if it has one."""
    if after.state is not None:
        ledger.dropped.append(after.state)
        after.state, after.state_bytes = None, 0
