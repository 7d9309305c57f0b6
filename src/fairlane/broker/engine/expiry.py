"""What time does by itself within a turn: leases end, consumers and sinks fall silent, deadlines pass."""

from __future__ import annotations

from fairlane.broker.cycle import Desk, Turn
from fairlane.core.commands import Nack, Remove, Unclaim, Unstage
from fairlane.model.message import Receipt
from fairlane.model.names import id_of


def expire(desk: Desk, turn: Turn, *, most: int) -> None:
    """Take back leases that have ended, about so many, and take out what has come too late."""
    schedule = desk.schedule
    for queue, messages in schedule.expired_leases(turn.now_ms, most=most):
        receipts = [Receipt(id_of(message.number), message.token) for message in messages]
        desk.meters.expired(messages, turn.now_ms)
        command = Nack(queue=queue, receipts=receipts, reason="expiry", error="The lease ended.")
        desk.run_command(command, turn)
    for queue, consumer in schedule.presence.idle_consumers(turn.now_ms):
        desk.execute(Unclaim(queue=queue, consumer=consumer), turn)
    for queue, sink in schedule.presence.silent_sinks(turn.now_ms):
        desk.execute(Unstage(queue=queue, sink=sink), turn)
    remove_departed(desk, turn)


def remove_departed(desk: Desk, turn: Turn) -> None:
    """Take out the messages whose deadlines have passed."""
    for queue, messages in desk.schedule.departed(turn.now_ms):
        known = desk.ledger.queues[queue].messages
        numbers = [message.number for message in messages if message.number in known]  # others were taken out since
        if numbers:
            desk.execute(Remove(queue=queue, numbers=numbers, reason="deadline"), turn)
