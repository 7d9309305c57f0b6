"""The context of a call: its correlation id and trace, and how it reached this process."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlane.model.message import NewMessage
from fairlane.model.trace import TraceContext, with_trace
from fairlane.verbs.batches import Stage
from fairlane.verbs.fan_outs import FanOut
from fairlane.verbs.leases import Forward
from fairlane.verbs.messages import Enqueue
from fairlane.verbs.verb import Request


class CallContext(msgspec.Struct, frozen=True):
    """What an interface knows about a call besides its request and its caller.

    Attributes:
        correlation_id: the name that the caller gave the call, for messages that have none of their own.
        trace: the span in which the caller made the call.
        follows: whether the caller goes to the node that owns a queue by itself, and only needs to be told which.
        is_forwarded: whether another node asks on behalf of a caller. It is answered from here only, so that no request
            goes round in circles.
    """

    correlation_id: str | None = None
    trace: TraceContext | None = None
    follows: bool = False
    is_forwarded: bool = False


PLAIN = CallContext()
"""The context of a call without a correlation id or trace."""


def with_context(request: Request[Any], context: CallContext) -> Request[Any]:
    """Return a request whose new messages carry the correlation id and trace of the call, or their own."""
    if isinstance(request, (Enqueue, Stage)):
        return msgspec.structs.replace(request, messages=_marked(request.messages, context))
    if isinstance(request, FanOut):
        members = {queue: _marked(news, context) for queue, news in request.messages.items()}
        return msgspec.structs.replace(request, messages=members, then=_marked([request.then], context)[0])
    if isinstance(request, Forward):
        messages = {queue: _marked(news, context) for queue, news in request.messages.items()}
        return msgspec.structs.replace(request, messages=messages)
    return request


def _marked(messages: list[NewMessage], context: CallContext) -> list[NewMessage]:
    replace, correlation_id = msgspec.structs.replace, context.correlation_id
    if correlation_id is not None:
        messages = [
            message if message.correlation_id is not None else replace(message, correlation_id=correlation_id)
            for message in messages
        ]
    return messages if context.trace is None else with_trace(messages, context.trace)
