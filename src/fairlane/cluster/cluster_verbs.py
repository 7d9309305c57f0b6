"""The verbs of a node that concern several queues, all queues, or where queues are."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, TypeAlias, cast

import msgspec

from fairlane.broker.handlers.checks import require
from fairlane.cluster.entries import Share
from fairlane.cluster.gateway import ClusterGateway, ClusterVerb
from fairlane.cluster.groups import split_into
from fairlane.cluster.message_lookup import look_up
from fairlane.cluster.node import MILLIONTHS
from fairlane.cluster.partitions.operations import redrive, update
from fairlane.cluster.partitions.split import OPENING_S, delete_further, delete_here, split_queue
from fairlane.cluster.partitions.views import JOINT, queues_by_name, redrive_view
from fairlane.core.decide.config import change_fault
from fairlane.errors import Forbidden, InvalidArgument, QueueExists, QueueNotFound, QueuesApart, RedriveNotFound
from fairlane.gateway.caller import Caller
from fairlane.gateway.context import CallContext
from fairlane.gateway.protocol import Answer
from fairlane.model.names import REDRIVE_AT, is_dlq, new_queue_name_fault
from fairlane.model.partitions import MARK, partition_name, queue_of, served_name
from fairlane.model.views import ClusterView, RedriveView, ThrottleView
from fairlane.verbs.cluster import DrainNode, GetCluster, MoveQueue
from fairlane.verbs.config import (
    PRIVATE_PREFIX,
    ConfigValue,
    ConfigValues,
    GetConfig,
    ListConfig,
    ListThrottles,
    SetConfig,
    ThrottleList,
)
from fairlane.verbs.dead_letters import GetRedrive, ListRedrives, Redrive, RedriveList, StopRedrive
from fairlane.verbs.fan_outs import FanOut
from fairlane.verbs.keys import EVERY
from fairlane.verbs.leases import Forward
from fairlane.verbs.queues import CreateQueue, DeleteQueue, EnsureQueue, ListQueues, QueueList, UpdateQueue
from fairlane.verbs.schedules import ListSchedules, ScheduleList
from fairlane.verbs.templates import base_fields, templates_in
from fairlane.verbs.verb import Done
from fairlane.wire.spread import for_partition

_DONE: Final = Done()
Creation: TypeAlias = CreateQueue | EnsureQueue


# --------------------------------------------------------------------------------------------------------------- queues


async def _create_queue(gateway: ClusterGateway, request: Creation, caller: Caller, context: CallContext) -> Answer:
    """Put a queue on the board first, and then create it at its owner."""
    require(new_queue_name_fault(request.queue))
    if not context.is_forwarded:
        if MARK in request.queue or MARK in (request.group or ""):
            raise InvalidArgument(f"Names with {MARK} are partitions; split the queue to create them.")
        if request.queue in gateway.groups.splits:
            await _check_split(gateway, request.queue)
        await gateway.member.changes.list_queue(request.queue, group=request.group)
        gateway.member.note()
        request = _with_template(gateway, request)
    asking = msgspec.structs.replace(context, follows=False)  # a client that creates a queue can't know its owner yet
    return await gateway.router.at(request.queue, request, caller, asking, patience_s=OPENING_S)


def _with_template(gateway: ClusterGateway, request: Creation) -> Creation:
    """Return a request with the fields of its template, which the group of a new queue may not know yet."""
    base = base_fields(templates_in(gateway.member.board.view.config), request.queue)
    return msgspec.structs.replace(request, policy=base | dict(request.policy))


async def _ensure_queue(gateway: ClusterGateway, request: EnsureQueue, caller: Caller, context: CallContext) -> Answer:
    """Compare a queue that exists with what is wanted, at its first partition if it is split, or create it."""
    if context.is_forwarded:
        return await gateway.router.at(request.queue, request, caller, context, patience_s=OPENING_S)
    await gateway.member.refresh()
    split = gateway.split_of(request.queue)
    if split is not None and gateway.groups.location_of(request.queue) is not None:
        whole = gateway.whole(request.queue, split, caller, context)
        return cast("Answer", await whole.ask(for_partition(request, 0)))
    return await _create_queue(gateway, request, caller, context)


async def _check_split(gateway: ClusterGateway, queue: str) -> None:
    """Refuse to create a split queue that exists. For one that was deleted, forget that it was split.

    Raises:
        QueueExists: it exists.
    """
    await gateway.member.refresh()
    if gateway.groups.location_of(queue) is not None:
        raise QueueExists(f"Queue {queue!r} already exists.")
    await gateway.member.changes.change_split(queue, lambda _entry: None)


async def _update_queue(gateway: ClusterGateway, request: UpdateQueue, caller: Caller, context: CallContext) -> Answer:
    """Change the policy of a queue in all of its partitions."""
    if not context.is_forwarded:
        _check_whole(request.queue)
        await gateway.member.refresh()
    split = gateway.split_of(request.queue)
    if split is not None:
        return await update(gateway.whole(request.queue, split, caller, context), request)
    return await gateway.router.at(request.queue, request, caller, context)


def _check_whole(queue: str) -> None:
    if MARK in queue:
        raise InvalidArgument(f"{queue!r:.150} is a partition; name the whole queue.")


async def _delete_queue(gateway: ClusterGateway, request: DeleteQueue, caller: Caller, context: CallContext) -> Answer:
    """Delete the further partitions of a queue, then the queue at its owner, then its entry on the board."""
    if MARK in request.queue and context.is_forwarded:
        return await delete_here(gateway, request.queue, caller)
    _check_whole(request.queue)
    if is_dlq(request.queue):
        raise InvalidArgument(f"Queue {request.queue!r:.150} is deleted with its queue; delete or purge that one.")
    if not context.is_forwarded:
        await gateway.member.refresh()
        await delete_further(gateway, request.queue, caller, context)
    try:
        answer = await gateway.router.at(request.queue, request, caller, context)
    except QueueNotFound:
        await gateway.member.changes.unlist_queue(request.queue)  # it was on the board, but never created
        raise
    await gateway.member.changes.unlist_queue(request.queue)
    gateway.member.note()
    return answer


async def _queues(gateway: ClusterGateway, request: ListQueues, caller: Caller, context: CallContext) -> QueueList:
    """Return the queues of all nodes."""
    answers: list[QueueList] = await gateway.router.everywhere(request, caller, context)
    found = {view.name: view for answer in answers for view in answer.queues}
    if gateway.groups.splits and not context.is_forwarded:
        return QueueList(queues=queues_by_name(found.values(), gateway.groups.split_of))
    return QueueList(queues=[found[name] for name in sorted(found)])


async def _together(gateway: ClusterGateway, request: Forward | FanOut, caller: Caller, context: CallContext) -> Answer:
    """Forward or fan out within a group, because several groups can't share a commit."""
    for target in request.messages:
        if (split := gateway.split_of(target)) is not None:
            raise split_into(target, split)
    groups = {request.queue: await _group_of(gateway, request.queue)}
    for queue in request.messages:
        groups[queue] = await _group_of_target(gateway, queue, groups[request.queue])
    for queue, group in groups.items():
        if group != groups[request.queue]:
            raise QueuesApart(
                f"Queue {queue!r} is in group {group!r}, but {request.queue!r} is in {groups[request.queue]!r}."
            )
    messages = {served_name(queue): news for queue, news in request.messages.items()}
    named = msgspec.structs.replace(request, messages=messages)
    return await gateway.router.at(request.queue, named, caller, context)


async def _group_of_target(gateway: ClusterGateway, queue: str, group: str) -> str:
    """Return the group of a queue that messages are forwarded to. A queue that its template creates joins ``group``."""
    try:
        return await _group_of(gateway, queue)
    except QueueNotFound:
        if not await gateway.list_missing(queue, group=group):
            raise
        return await _group_of(gateway, queue)


async def _group_of(gateway: ClusterGateway, queue: str) -> str:
    location = gateway.groups.location_of(queue)
    if location is None:
        await gateway.member.refresh()
        location = gateway.groups.location_of(queue)
    if location is None:
        raise QueueNotFound(f"Queue {queue!r:.150} does not exist.")
    return location.group


async def _schedules(
    gateway: ClusterGateway, request: ListSchedules, caller: Caller, context: CallContext
) -> ScheduleList:
    """Return the schedules of a queue, which its first partition has, or of all nodes."""
    if request.queue is not None:
        asked = request if gateway.split_of(request.queue) is None else for_partition(request, 0)
        return cast("ScheduleList", await gateway.router.at(asked.queue or "", asked, caller, context))
    answers: list[ScheduleList] = await gateway.router.everywhere(request, caller, context)
    found = [view for answer in answers for view in answer.schedules]
    return ScheduleList(schedules=sorted(found, key=lambda view: (view.queue, view.name)))


# ------------------------------------------------------------------------------------------------------------- redrives


async def _redrive(gateway: ClusterGateway, request: Redrive, caller: Caller, context: CallContext) -> RedriveView:
    """Start a redrive, for a split queue in each partition. Its id says where it runs."""
    split = gateway.split_of(request.queue)
    if split is not None:
        views = await redrive(gateway.whole(request.queue, split, caller, context), request)
        return redrive_view(request.queue, views)
    return cast("RedriveView", await gateway.router.at(request.queue, request, caller, context))


async def _of_redrive(
    gateway: ClusterGateway, request: GetRedrive | StopRedrive, caller: Caller, context: CallContext
) -> RedriveView:
    """Return or stop a redrive, wherever it runs."""
    parts = request.id.split(JOINT)
    asking = context if len(parts) == 1 else msgspec.structs.replace(context, follows=False)
    views = await asyncio.gather(*(_of_part(gateway, type(request)(id=part), caller, asking) for part in parts))
    return redrive_view(queue_of(views[0].queue), views)


async def _of_part(
    gateway: ClusterGateway, request: GetRedrive | StopRedrive, caller: Caller, context: CallContext
) -> RedriveView:
    queue = request.id.partition(REDRIVE_AT)[2]
    if not queue:
        raise RedriveNotFound(f"Redrive {request.id!r:.100} does not exist.")
    at = queue if MARK in queue else partition_name(queue, 0)  # brokers know the first partition by the plain name
    return cast("RedriveView", await gateway.router.at(at, request, caller, context))


async def _redrives(
    gateway: ClusterGateway, request: ListRedrives, caller: Caller, context: CallContext
) -> RedriveList:
    """Return the redrives of all nodes."""
    answers: list[RedriveList] = await gateway.router.everywhere(request, caller, context)
    found = [view for answer in answers for view in answer.redrives]
    return RedriveList(redrives=sorted(found, key=lambda view: view.started_ms))


# --------------------------------------------------------------------------------------------------- config and journal


async def _set_config(gateway: ClusterGateway, request: SetConfig, caller: Caller, _: CallContext) -> Done:
    """Set config values for all groups."""
    if any(key.startswith(PRIVATE_PREFIX) for key in request.values):
        raise Forbidden(f"Config keys that begin with {PRIVATE_PREFIX} belong to the server; use create_key().")
    if request.expire_after_ms is not None:
        raise InvalidArgument("A cluster has no temporary config values; leave out expire_after_ms.")
    require(change_fault(request))
    await gateway.member.config.set_config_many(request.values, by=caller.name)
    return _DONE


async def _list_config(gateway: ClusterGateway, request: ListConfig, _: Caller, __: CallContext) -> ConfigValues:
    """Return config values."""
    await gateway.member.refresh()
    values = await gateway.member.config.list_config(request.prefix)
    return ConfigValues(values={key: value for key, value in values.items() if not key.startswith(PRIVATE_PREFIX)})


async def _get_config(gateway: ClusterGateway, request: GetConfig, caller: Caller, context: CallContext) -> ConfigValue:
    """Return one config value."""
    found = await _list_config(gateway, ListConfig(prefix=request.key), caller, context)
    return ConfigValue(value=found.values.get(request.key))


async def _throttles(
    gateway: ClusterGateway, request: ListThrottles, caller: Caller, context: CallContext
) -> ThrottleList:
    """Return throttles as they are set for the cluster, with the tokens and the buckets of all groups."""
    answers: list[ThrottleList] = await gateway.router.everywhere(request, caller, context)
    found: dict[str, list[ThrottleView]] = {}
    for view in (view for answer in answers for view in answer.throttles):
        found.setdefault(view.name, []).append(view)
    totals = sorted(gateway.member.throttles().items())
    return ThrottleList(throttles=[_throttle(name, total, found.get(name, [])) for name, total in totals])


def _throttle(name: str, total: Share, parts: list[ThrottleView]) -> ThrottleView:
    is_pattern = name.endswith(EVERY)
    return ThrottleView(
        name=name,
        rate=total.rate / MILLIONTHS,
        burst=total.burst,
        tokens=sum(part.tokens for part in parts),
        buckets=sum(part.buckets or 0 for part in parts) if is_pattern else None,
        charges_cost=any(part.charges_cost for part in parts),
    )


async def _of_journal(gateway: ClusterGateway, request: Any, caller: Caller, context: CallContext) -> Answer:  # noqa: ANN401
    """Read the journal of the group of a queue."""
    queue = getattr(request, "queue", None)
    if queue is None:
        raise InvalidArgument("Each group of a cluster has its own journal: name a queue of the group.")
    return await gateway.router.at(queue, request, caller, context)


# -------------------------------------------------------------------------------------------------------------- cluster


async def _cluster(gateway: ClusterGateway, _request: GetCluster, _: Caller, __: CallContext) -> ClusterView:
    """Return the cluster as this node sees it."""
    await gateway.member.refresh()
    return gateway.member.seen()


async def _move_queue(gateway: ClusterGateway, request: MoveQueue, _: Caller, __: CallContext) -> Done:
    """Move the group of a queue to a node."""
    await gateway.member.changes.move_queue(served_name(request.queue), request.node)
    gateway.member.note()
    return _DONE


async def _drain_node(gateway: ClusterGateway, request: DrainNode, _: Caller, __: CallContext) -> Done:
    """Drain a node, or let it own groups again."""
    await gateway.member.changes.drain_node(request.node, is_draining=request.is_draining)
    gateway.member.note()
    return _DONE


SPECIAL: Final[Mapping[str, ClusterVerb]] = {
    "create_queue": _create_queue,
    "ensure_queue": _ensure_queue,
    "update_queue": _update_queue,
    "delete_queue": _delete_queue,
    "queues": _queues,
    "schedules": _schedules,
    "forward": _together,
    "fan_out": _together,
    "redrive": _redrive,
    "redrive_view": _of_redrive,
    "stop_redrive": _of_redrive,
    "redrives": _redrives,
    "set_config": _set_config,
    "list_config": _list_config,
    "get_config": _get_config,
    "throttles": _throttles,
    "read_journal": _of_journal,
    "set_reader": _of_journal,
    "remove_reader": _of_journal,
    "readers": _of_journal,
    "read_store": _of_journal,
    "cluster": _cluster,
    "move_queue": _move_queue,
    "split_queue": split_queue,
    "drain_node": _drain_node,
    "status": look_up,
    "result": look_up,
}
"""The verbs for which it is not enough to find the broker of their queue."""
