"""The verbs that are asked most, for a door that has replies of its own: they need neither a task nor a future."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fairlane.broker.requests import Reply, Submission
from fairlane.broker.verbs import asked
from fairlane.server.verbs import messages
from fairlane.verbs.leases import Ack, Lease, LeasedMessages
from fairlane.verbs.messages import Enqueue

if TYPE_CHECKING:
    import msgspec


class Quick(NamedTuple):
    """A verb in two halves.

    Attributes:
        ask: returns what the broker is asked, for a request and a reply.
        answer: returns the answer, for what the reply was told.
    """

    ask: Callable[[Any, Reply], Submission]
    answer: Callable[[Any], msgspec.Struct]


def _enqueue(request: Enqueue, reply: Reply) -> Submission:
    return asked.enqueue(request.queue, request.messages, reply, wait_ms=request.wait_ms)


def _lease(request: Lease, reply: Reply) -> Submission:
    return asked.lease(
        request.queue,
        request.count,
        reply,
        wait_ms=request.wait_ms,
        visibility_ms=request.visibility_ms,
        owner=request.owner,
        with_state=request.with_state,
    )


def _ack(request: Ack, reply: Reply) -> Submission:
    return asked.ack(request.queue, request.receipts, reply, costs=messages.costs_of(request.receipts))


QUICK: Final[Mapping[str, Quick]] = {
    "enqueue": Quick(_enqueue, messages.enqueued),
    "lease": Quick(_lease, lambda deliveries: LeasedMessages(deliveries=deliveries)),
    "ack": Quick(_ack, messages.acked),
}
