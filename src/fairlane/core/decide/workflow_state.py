"""Workflow state: written under a lease, if its version is still the one that the consumer knows."""

from __future__ import annotations

from typing import Final

from fairlane.core.commands import Given
from fairlane.core.decide.leases import held_under
from fairlane.core.decision import Deciders, Decision, known_queue, refuse
from fairlane.core.ledger import Ledger
from fairlane.errors import FairlaneError, InvalidArgument, StateMismatch
from fairlane.journal.records import AnyRecord, StateRemoved, StateSet
from fairlane.model import limits
from fairlane.model.ids import number_text
from fairlane.verbs.leases import Etag, SetState


def set_state(ledger: Ledger, request: SetState, now_ms: int, _given: Given) -> Decision[Etag]:
    """Write or remove workflow state under a lease. The outcome is the etag of what is there now, None for nothing."""
    queue = known_queue(ledger, request.queue)
    if isinstance(queue, FairlaneError):
        return refuse(queue)
    held, outcome = held_under(ledger, queue, (request.receipt,), now_ms)
    if outcome[0] is not None:
        return refuse(outcome[0])
    message = held[0]
    state = message.after.state if message.after is not None else None
    etag = None if state is None else number_text(state)
    if request.etag != etag:
        return refuse(StateMismatch(f"The state of message {message.id} is at version {etag}."))
    if request.state is None:
        records: list[AnyRecord] = []
        if state is not None:
            records.append(StateRemoved(ledger.next_sequence, queue.name, message.number))
        return Decision(records, Etag(correlation_id=message.correlation_id))
    if type(request.state) is not bytes or len(request.state) > limits.STATE_BYTES_MAX:
        return refuse(InvalidArgument(f"Workflow state must be bytes, at most {limits.STATE_BYTES_MAX} of them."))
    sequence = ledger.next_sequence
    record = StateSet(sequence, queue.name, message.number, len(request.state))
    written = Etag(etag=number_text(sequence), correlation_id=message.correlation_id)
    return Decision([record], written, [(sequence, request.state)])


DECIDERS: Final[Deciders] = {SetState: set_state}
