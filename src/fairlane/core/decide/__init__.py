"""Deciding: what a command leads to, given the ledger and the present instant. Nothing here changes anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairlane.core import commands
from fairlane.core.decide import claims, dead_letters, enqueue, journal, leases, queues, staging
from fairlane.core.decision import Decision
from fairlane.core.ledger import Ledger

DECIDERS: dict[type[commands.Command], Callable[[Ledger, Any, int], Decision]] = {
    commands.CreateQueue: queues.create,
    commands.UpdateQueue: queues.update,
    commands.DeleteQueue: queues.delete,
    commands.Pause: queues.pause,
    commands.Purge: queues.purge,
    commands.SetConfig: queues.set_config,
    commands.Enqueue: enqueue.enqueue,
    commands.Stage: staging.stage,
    commands.Publish: staging.publish,
    commands.Unstage: staging.unstage,
    commands.DropSink: staging.drop,
    commands.Cancel: leases.cancel,
    commands.Remove: leases.remove,
    commands.Lease: leases.lease,
    commands.Ack: leases.ack,
    commands.Nack: leases.nack,
    commands.Extend: leases.extend,
    commands.SetState: leases.set_state,
    commands.Redrive: dead_letters.redrive,
    commands.RegisterConsumer: claims.register,
    commands.Claim: claims.claim,
    commands.Unclaim: claims.unclaim,
    commands.ReleaseConsumer: claims.release,
    commands.SetReader: journal.set_reader,
    commands.Open: journal.opened,
    commands.Seal: journal.seal,
    commands.Trim: journal.trim,
    commands.MoveBase: journal.move_base,
    commands.Carry: journal.carry,
}


def decide(ledger: Ledger, command: commands.Command, now_ms: int) -> Decision:
    """Return the records a command leads to and its outcome, or a refusal. Changes nothing."""
    return DECIDERS[type(command)](ledger, command, now_ms)
