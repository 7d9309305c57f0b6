"""Where a call comes from: the correlation id and the trace context that its messages carry on."""

from __future__ import annotations

import msgspec

from fairlane.errors import InvalidArgument
from fairlane.model.limits import CORRELATION_ID_LENGTH_MAX
from fairlane.model.message import NewMessage
from fairlane.verbs.batches import Stage
from fairlane.verbs.leases import Forward
from fairlane.verbs.messages import Enqueue
from fairlane.verbs.verb import Shape
from fairlane.wire.trace import TraceContext, with_trace


class Origin(msgspec.Struct, frozen=True):
    """What a door knows of a call beside its request and its caller.

    Attributes:
        correlation_id: what the caller names it by, or what the door has made up; the stream has none.
        trace: the span under which it is made, if the caller tells.
        follows: whether the caller goes by itself to the node that has a queue, and only has to be told which.
        is_forwarded: whether it is a node of the cluster that asks, for somebody else: it is answered from here only.
        lease_name: the name by which such a node may take back what is leased now; see ``withdrawals``.
    """

    correlation_id: str | None = None
    trace: TraceContext | None = None
    follows: bool = False
    is_forwarded: bool = False
    lease_name: str | None = None


def checked_correlation_id(given: str, name: str) -> str:
    """Return a correlation id that a caller gives under a name.

    Raises:
        InvalidArgument: it is none.
    """
    if not given or len(given) > CORRELATION_ID_LENGTH_MAX or not given.isascii() or not given.isprintable():
        raise InvalidArgument(f"{name} has from 1 to {CORRELATION_ID_LENGTH_MAX} printable ASCII characters.")
    return given


def marked(request: Shape, origin: Origin) -> Shape:
    """Return the request with the correlation id and the trace on each new message that has none of its own."""
    if origin.correlation_id is None and origin.trace is None:
        return request
    if isinstance(request, (Enqueue, Stage)):
        return msgspec.structs.replace(request, messages=_marked(request.messages, origin))
    if isinstance(request, Forward):
        messages = {queue: _marked(news, origin) for queue, news in request.messages.items()}
        return msgspec.structs.replace(request, messages=messages)
    return request


def _marked(messages: list[NewMessage], origin: Origin) -> list[NewMessage]:
    replace, correlation_id = msgspec.structs.replace, origin.correlation_id
    if correlation_id is not None:
        messages = [
            message if message.correlation_id is not None else replace(message, correlation_id=correlation_id)
            for message in messages
        ]
    return messages if origin.trace is None else with_trace(messages, origin.trace)
