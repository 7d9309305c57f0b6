"""Requests about queues, dead letters and hooks: how read-only ones are answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from fairlane.broker.handlers.checks import check_filter, check_keys_max
from fairlane.broker.views import queues as views
from fairlane.model.views import HookStatistics, QueueView, RedriveView
from fairlane.verbs.config import GetHookStatistics
from fairlane.verbs.dead_letters import GetRedrive, ListRedrives, Redrive, RedriveList
from fairlane.verbs.queues import GetStats, InspectQueue, ListQueues, QueueList

if TYPE_CHECKING:
    from fairlane.broker.engine.engine import Engine


def _queues(engine: Engine, _request: ListQueues) -> QueueList:
    return QueueList(queues=[views.queue_view(engine, name) for name in sorted(engine.ledger.queues)])


def _stats(engine: Engine, request: GetStats) -> QueueView:
    if request.keys_max:
        return views.queue_details(engine, request.queue, engine.now_ms(), keys_max=request.keys_max)
    return views.queue_view(engine, request.queue)


def _inspect(engine: Engine, request: InspectQueue) -> QueueView:
    return views.queue_details(engine, request.queue, engine.now_ms())


# --------------------------------------------------------------------------------------------------------- dead letters


def start_dry_run(engine: Engine, request: Redrive, *, by: str | None = None) -> RedriveView:
    """Count what a redrive would move, on behalf of a caller."""
    return engine.redrives.dry_runs.start(engine.ledger, request, engine.now_ms(), by)


def _get_redrive(engine: Engine, request: GetRedrive) -> RedriveView:
    return engine.redrives.view(engine.ledger, request.id)


def _redrives(engine: Engine, _request: ListRedrives) -> RedriveList:
    return RedriveList(redrives=engine.redrives.views(engine.ledger))


# ---------------------------------------------------------------------------------------------------------------- hooks


def _hook_statistics(engine: Engine, request: GetHookStatistics) -> HookStatistics:
    return engine.hooks.statistics(views.known(engine.ledger, request.queue).name, engine.now_ms())


READS: Final[Mapping[type, Callable[..., Any]]] = {
    ListQueues: _queues,
    GetStats: _stats,
    InspectQueue: _inspect,
    GetRedrive: _get_redrive,
    ListRedrives: _redrives,
    GetHookStatistics: _hook_statistics,
}


def _check_stats(request: GetStats) -> None:
    check_keys_max(request.keys_max)


def _check_redrive(request: Redrive) -> None:
    check_filter(request.wanted)


CHECKS: Final[Mapping[type, Callable[[Any], None]]] = {GetStats: _check_stats, Redrive: _check_redrive}
