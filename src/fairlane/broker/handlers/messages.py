"""Requests about messages and leases: what is checked before they are decided, and how read-only ones are answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from fairlane.broker.handlers.checks import (
    check_batch,
    check_filter,
    check_messages,
    check_numbers,
    check_wait,
    require,
)
from fairlane.broker.progress import report
from fairlane.broker.views import queues as views
from fairlane.broker.waiting.peeks import PeekSearch
from fairlane.core.checks import whole_fault
from fairlane.model import limits
from fairlane.model.bounds import excess_of
from fairlane.model.message import MessageView
from fairlane.model.views import DeadLetterFilter, Explained
from fairlane.verbs.fan_outs import FanOut
from fairlane.verbs.leases import Ack, Extend, Forward, Nack
from fairlane.verbs.messages import (
    Cancel,
    Enqueue,
    Explain,
    GetMessage,
    GetState,
    MessageList,
    Peek,
    WorkflowState,
)
from fairlane.verbs.status import ReportProgress

if TYPE_CHECKING:
    from fairlane.broker.engine.engine import Engine


_SHORT: Final = 100
_ALL: Final = DeadLetterFilter()


def _get(engine: Engine, request: GetMessage) -> MessageView:
    message = views.known_message(engine.ledger, request.queue, request.id)
    return views.views_of(engine.bodies, [message], with_body=request.with_body, now_ms=engine.now_ms())[0]


def _peek(engine: Engine, request: Peek) -> MessageList | PeekSearch:
    search = PeekSearch(request)
    return search.answer if search.advance(engine) else search


def is_long(request: Peek) -> bool:
    """Return whether a cycle may look at many messages for a peek."""
    return request.count > _SHORT or request.status is not None or request.wanted != _ALL


def _explain(engine: Engine, request: Explain) -> Explained:
    return views.explain(engine.ledger, engine.schedule, engine.consumers, request.queue, request.id, engine.now_ms())


def _get_state(engine: Engine, request: GetState) -> WorkflowState:
    message = views.known_message(engine.ledger, request.queue, request.id)
    etag = views.message_view(message, engine.now_ms()).state_etag
    state = engine.bodies.states([message])[0]
    return WorkflowState(state=state, etag=etag, correlation_id=message.correlation_id)


READS: Final[Mapping[type, Callable[..., Any]]] = {
    GetMessage: _get,
    Peek: _peek,
    Explain: _explain,
    GetState: _get_state,
    ReportProgress: report,
}


def _check_enqueue(request: Enqueue) -> None:
    check_wait(request.wait_ms)
    check_messages(request.messages)
    if request.producer is not None or request.numbers:
        check_numbers(request)


def _check_forward(request: Forward) -> None:
    require(excess_of("messages", request.messages, "FORWARD_QUEUES_MAX"))
    for messages in request.messages.values():
        check_messages(messages)
    if len(request.messages) > 1:  # together they have to be within the same bounds
        check_messages([message for messages in request.messages.values() for message in messages])


def _check_fan_out(request: FanOut) -> None:
    require(excess_of("messages", request.messages, "FORWARD_QUEUES_MAX"))
    check_messages([*(message for messages in request.messages.values() for message in messages), request.then])


def _check_receipts(request: Ack | Nack | Extend) -> None:
    check_batch("receipts", request.receipts)


def _check_cancel(request: Cancel) -> None:
    check_batch("ids", request.ids)


def _check_peek(request: Peek) -> None:
    require(whole_fault("count", request.count, least=1, most=limits.BATCH_MAX))
    check_filter(request.wanted)


CHECKS: Final[Mapping[type, Callable[[Any], None]]] = {
    Enqueue: _check_enqueue,
    Forward: _check_forward,
    FanOut: _check_fan_out,
    Ack: _check_receipts,
    Nack: _check_receipts,
    Extend: _check_receipts,
    Cancel: _check_cancel,
    Peek: _check_peek,
}
