"""Requests of registered consumers and sinks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from fairlane.broker.handlers.checks import check_messages, check_wait, require
from fairlane.broker.views import queues as views
from fairlane.broker.waiting.claims import read_claim
from fairlane.core.checks import whole_fault
from fairlane.core.producer import LimitedProducer
from fairlane.model import limits
from fairlane.model.claims import Claimed
from fairlane.verbs.batches import (
    ConsumerList,
    ListConsumers,
    ListSinks,
    MakeClaim,
    ReadClaim,
    SinkList,
    Stage,
)

if TYPE_CHECKING:
    from fairlane.broker.engine.engine import Engine

_MOST: Final = 1 << 53


def _read_claim(engine: Engine, request: ReadClaim) -> Claimed:
    engine.schedule.presence.hear(request.queue, request.consumer, engine.now_ms())
    return read_claim(engine.ledger, engine.bodies, request)


def _consumers(engine: Engine, request: ListConsumers) -> ConsumerList:
    return ConsumerList(consumers=views.consumer_views(engine.ledger, engine.schedule, request.queue))


def _sinks(engine: Engine, request: ListSinks, producer: LimitedProducer | None) -> SinkList:
    found = views.sink_views(engine.ledger, request.queue)
    if producer is not None:
        found = [view for view in found if producer.may_use_sink(view.queue, view.name)]
    return SinkList(sinks=found)


READS: Final[Mapping[type, Callable[..., Any]]] = {
    ReadClaim: _read_claim,
    ListConsumers: _consumers,
}
LISTS: Final[Mapping[type, Callable[..., Any]]] = {ListSinks: _sinks}


def _check_claim(request: MakeClaim) -> None:
    require(whole_fault("count", request.count, least=0, most=limits.CLAIM_MAX))
    if request.size_bytes is not None:
        require(whole_fault("size_bytes", request.size_bytes, least=1, most=_MOST))


def _check_read_claim(request: ReadClaim) -> None:
    require(whole_fault("claim", request.claim, least=0, most=_MOST))
    require(whole_fault("start", request.start, least=0, most=_MOST))
    require(whole_fault("count", request.count, least=1, most=limits.BATCH_MAX))


def _check_stage(request: Stage) -> None:
    check_wait(request.wait_ms)
    check_messages(request.messages)


CHECKS: Final[Mapping[type, Callable[[Any], None]]] = {
    MakeClaim: _check_claim,
    ReadClaim: _check_read_claim,
    Stage: _check_stage,
}
