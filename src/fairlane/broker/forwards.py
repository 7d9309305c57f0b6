"""What the messages of a forward inherit from the one that it acknowledges, so that a chain of queues stays one story.

A message that says nothing else gets the correlation id, the fairness key and the trace of the acknowledged one. They
are put into the request before hooks see it, so the decision and the journal hold what the messages really have.
"""

from __future__ import annotations

import msgspec

from fairlane.broker.bodies import Bodies
from fairlane.core.ledger import Ledger, Message
from fairlane.errors import FairlaneError
from fairlane.model.message import NewMessage
from fairlane.model.trace import TRACEPARENT, TraceContext, trace_in, with_trace
from fairlane.verbs.leases import Forward


def inheriting(request: Forward, ledger: Ledger, bodies: Bodies) -> Forward:
    """Return a forward whose messages have what they inherit; the request itself if the lease is not the caller's."""
    message = ledger.find(request.queue, ledger.ids.number_of(request.receipt.id))
    if message is None or message.token != request.receipt.token:
        return request  # it will be refused
    given = [each for messages in request.messages.values() for each in messages]
    trace = None if all(map(_has_trace, given)) else _trace_of(message, bodies)
    messages = {queue: [_heir(new, message, trace) for new in news] for queue, news in request.messages.items()}
    return msgspec.structs.replace(request, messages=messages)


def _heir(new: NewMessage, message: Message, trace: TraceContext | None) -> NewMessage:
    if new.fairness_key is None:
        new = msgspec.structs.replace(new, fairness_key=message.key)
    if new.correlation_id is None:
        new = msgspec.structs.replace(new, correlation_id=message.correlation_id or message.id)
    return new if trace is None or _has_trace(new) else with_trace([new], trace)[0]


def _has_trace(new: NewMessage) -> bool:
    # A program may pass anything as headers; the decision refuses it.
    return not isinstance(new.headers, dict) or TRACEPARENT in new.headers


def _trace_of(message: Message, bodies: Bodies) -> TraceContext | None:
    try:
        ((headers, _, _),) = bodies.read([message])
    except FairlaneError:
        return None  # a body that is lost must not keep the message from being acknowledged
    return trace_in(headers)
