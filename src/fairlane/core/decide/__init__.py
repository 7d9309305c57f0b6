"""Decide what a request or command leads to, given the ledger and the current time. Nothing here changes anything."""

from __future__ import annotations

from typing import Final, TypeVar

from fairlane.core.commands import NOTHING_GIVEN, Command, Given
from fairlane.core.decide import (
    cancel,
    claims,
    config,
    dead_letters,
    enqueue,
    fan_outs,
    finished,
    journal,
    leases,
    queues,
    returns,
    schedules,
    staging,
    uploads,
    workflow_state,
)
from fairlane.core.decision import Deciders, Decision
from fairlane.core.ledger import Ledger
from fairlane.verbs.verb import Request

O = TypeVar("O")  # noqa: E741 - the outcome

DECIDERS: Final[Deciders] = {
    **queues.DECIDERS,
    **config.DECIDERS,
    **enqueue.DECIDERS,
    **staging.DECIDERS,
    **fan_outs.DECIDERS,
    **uploads.DECIDERS,
    **leases.DECIDERS,
    **cancel.DECIDERS,
    **workflow_state.DECIDERS,
    **finished.DECIDERS,
    **returns.DECIDERS,
    **dead_letters.DECIDERS,
    **claims.DECIDERS,
    **schedules.DECIDERS,
    **journal.DECIDERS,
}
"""How each request and command is decided, by its class."""


def decide(ledger: Ledger, command: Command[O] | Request[O], now_ms: int, given: Given = NOTHING_GIVEN) -> Decision[O]:
    """Return the records that a request or command leads to and its outcome, or a refusal. Changes nothing."""
    return DECIDERS[type(command)](ledger, command, now_ms, given)
