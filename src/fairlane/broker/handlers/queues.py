"""Requests about queues, dead letters and hooks: how those that look are answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from fairlane.broker.handlers.checks import check_filter, check_keys_max
from fairlane.broker.views import queues as views
from fairlane.model.names import REDRIVE_AT
from fairlane.model.views import HookStatistics, QueueView, RedriveView
from fairlane.verbs.config import GetHookStatistics
from fairlane.verbs.dead_letters import GetRedrive, ListRedrives, Redrive, RedriveList, StopRedrive
from fairlane.verbs.queues import GetStats, InspectQueue, ListQueues, QueueList

if TYPE_CHECKING:
    from fairlane.broker.engine.engine import Engine


def _queues(engine: Engine, _request: ListQueues) -> QueueList:
    ledger, consumers = engine.ledger, engine.consumers
    return QueueList(queues=[views.queue_view(ledger, consumers, name) for name in sorted(ledger.queues)])


def _stats(engine: Engine, request: GetStats) -> QueueView:
    if request.keys_max:
        return views.queue_details(engine, request.queue, engine.now_ms(), keys_max=request.keys_max)
    return views.queue_view(engine.ledger, engine.consumers, request.queue)


def _inspect(engine: Engine, request: InspectQueue) -> QueueView:
    return views.queue_details(engine, request.queue, engine.now_ms())


# --------------------------------------------------------------------------------------------------------- dead letters


def start_redrive(engine: Engine, request: Redrive, *, by: str | None = None) -> RedriveView:
    """Start moving dead letters back, on behalf of a caller."""
    return engine.redrives.start(
        engine.ledger,
        request.queue,
        wanted=request.wanted,
        count=request.count,
        rate=request.rate,
        is_dry_run=request.is_dry_run,
        target=request.target,
        by=by,
        now_ms=engine.now_ms(),
    )


def _get_redrive(engine: Engine, request: GetRedrive) -> RedriveView:
    return engine.redrives.view(_local(request.id))


def _redrives(engine: Engine, _request: ListRedrives) -> RedriveList:
    return RedriveList(redrives=engine.redrives.views())


def _stop_redrive(engine: Engine, request: StopRedrive) -> RedriveView:
    return engine.redrives.stop(_local(request.id), engine.now_ms())


def _local(redrive_id: str) -> str:
    """Return the id that this broker knows: in a cluster the name of the queue follows it."""
    return redrive_id.partition(REDRIVE_AT)[0]


# ---------------------------------------------------------------------------------------------------------------- hooks


def _hook_statistics(engine: Engine, request: GetHookStatistics) -> HookStatistics:
    return engine.hooks.statistics(views.known(engine.ledger, request.queue).name, engine.now_ms())


READS: Final[Mapping[type, Callable[..., Any]]] = {
    ListQueues: _queues,
    GetStats: _stats,
    InspectQueue: _inspect,
    Redrive: start_redrive,
    GetRedrive: _get_redrive,
    ListRedrives: _redrives,
    StopRedrive: _stop_redrive,
    GetHookStatistics: _hook_statistics,
}


def _check_stats(request: GetStats) -> None:
    check_keys_max(request.keys_max)


def _check_redrive(request: Redrive) -> None:
    check_filter(request.wanted)


CHECKS: Final[Mapping[type, Callable[[Any], None]]] = {GetStats: _check_stats, Redrive: _check_redrive}
