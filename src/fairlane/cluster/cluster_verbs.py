"""What some verbs do at a node of a cluster: those about no queue, about several, or about where queues are."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, cast

import msgspec

from fairlane.cluster.gateway import Answer, ClusterRouter, Special
from fairlane.cluster.groups import split_into
from fairlane.cluster.node import MILLIONTHS
from fairlane.cluster.partitions.operations import redrive, update
from fairlane.cluster.partitions.split import OPENING_S, delete_further, delete_here, split_queue
from fairlane.cluster.partitions.views import JOINT, queues_by_name, redrive_view
from fairlane.errors import Forbidden, InvalidArgument, QueueExists, QueueNotFound, QueuesApart, RedriveNotFound
from fairlane.gateway.caller import Caller
from fairlane.gateway.context import Origin
from fairlane.model.names import REDRIVE_AT, is_dlq, queue_name_fault
from fairlane.model.partitions import MARK, partition_name, queue_of, served_name
from fairlane.model.views import ClusterView, RedriveView, ThrottleView
from fairlane.verbs.cluster import DrainNode, GetCluster, MoveQueue
from fairlane.verbs.config import PRIVATE_PREFIX, ConfigValues, ListConfig, ListThrottles, SetConfig, ThrottleList
from fairlane.verbs.dead_letters import GetRedrive, ListRedrives, Redrive, RedriveList, StopRedrive
from fairlane.verbs.leases import Forward
from fairlane.verbs.queues import CreateQueue, DeleteQueue, ListQueues, QueueList, UpdateQueue
from fairlane.verbs.verb import Done

_DONE: Final = Done()


# --------------------------------------------------------------------------------------------------------------- queues


async def _create_queue(router: ClusterRouter, request: CreateQueue, caller: Caller, origin: Origin) -> Answer:
    """Let a queue be on the board first, and then make it where it belongs."""
    if (fault := queue_name_fault(request.queue)) is not None:
        raise InvalidArgument(fault)
    if not origin.is_forwarded:
        if MARK in request.queue or MARK in (request.group or ""):
            raise InvalidArgument(f"A name with {MARK} is that of a partition, which is made by splitting its queue.")
        if request.queue in router.groups.splits:
            await _check_split(router, request.queue)
        await router.changes.list_queue(request.queue, group=request.group)
        router.node.note()
    asking = msgspec.structs.replace(origin, follows=False)  # whoever makes a queue can't know yet where it will be
    return await router.at("create_queue", request, request.queue, caller, asking, patience_s=OPENING_S)


async def _check_split(router: ClusterRouter, queue: str) -> None:
    """Refuse to make a queue that is there, and split; of one that is gone, forget that it was split.

    Raises:
        QueueExists: it is there.
    """
    await router.node.refresh()
    if router.groups.location_of(queue) is not None:
        raise QueueExists(f"There is a queue {queue!r} already.")
    await router.changes.change_split(queue, lambda _entry: None)


async def _update_queue(router: ClusterRouter, request: UpdateQueue, caller: Caller, origin: Origin) -> Answer:
    """Change the policy of a queue, in all of its partitions."""
    if not origin.is_forwarded:
        _check_whole(request.queue)
        await router.node.refresh()
    split = router.split_of(request.queue)
    if split is not None:
        return await update(router.whole(request.queue, split, caller, origin), request)
    return await router.at("update_queue", request, request.queue, caller, origin)


def _check_whole(queue: str) -> None:
    if MARK in queue:
        raise InvalidArgument(f"{queue!r:.150} is a partition: name the queue as a whole.")


async def _delete_queue(router: ClusterRouter, request: DeleteQueue, caller: Caller, origin: Origin) -> Answer:
    """Remove a queue where it is, and then from the board; its further partitions before."""
    if MARK in request.queue and origin.is_forwarded:
        return await delete_here(router, request.queue, caller)
    _check_whole(request.queue)
    if is_dlq(request.queue):
        raise InvalidArgument(f"Queue {request.queue!r:.150} goes with the queue it belongs to: delete or purge that.")
    if not origin.is_forwarded:
        await router.node.refresh()
        await delete_further(router, request.queue, caller, origin)
    try:
        answer = await router.at("delete_queue", request, request.queue, caller, origin)
    except QueueNotFound:
        await router.changes.unlist_queue(request.queue)  # it was on the board, but never made
        raise
    await router.changes.unlist_queue(request.queue)
    router.node.note()
    return answer


async def _queues(router: ClusterRouter, request: ListQueues, caller: Caller, origin: Origin) -> QueueList:
    """Return the queues of all nodes."""
    answers: list[QueueList] = await router.everywhere("queues", request, caller, origin)
    found = {view.name: view for answer in answers for view in answer.queues}
    if router.groups.splits and not origin.is_forwarded:
        return QueueList(queues=queues_by_name(found.values(), router.groups.split_of))
    return QueueList(queues=[found[name] for name in sorted(found)])


async def _forward(router: ClusterRouter, request: Forward, caller: Caller, origin: Origin) -> Answer:
    """Forward within a group: what is more can't be one commit."""
    for target in request.messages:
        if (split := router.split_of(target)) is not None:
            raise split_into(target, split)
    groups = {queue: await _group_of(router, queue) for queue in (request.queue, *request.messages)}
    for queue, group in groups.items():
        if group != groups[request.queue]:
            raise QueuesApart(
                f"Queue {queue!r} is in the group {group!r}, and {request.queue!r} in {groups[request.queue]!r}."
            )
    messages = {served_name(queue): news for queue, news in request.messages.items()}
    named = msgspec.structs.replace(request, messages=messages)
    return await router.at("forward", named, request.queue, caller, origin)


async def _group_of(router: ClusterRouter, queue: str) -> str:
    place = router.groups.location_of(queue)
    if place is None:
        await router.node.refresh()
        place = router.groups.location_of(queue)
    if place is None:
        raise QueueNotFound(f"There is no queue {queue!r:.150}.")
    return place.group


# ------------------------------------------------------------------------------------------------------------- redrives


async def _redrive(router: ClusterRouter, request: Redrive, caller: Caller, origin: Origin) -> RedriveView:
    """Start a redrive, in each partition if there are several; its id tells where it runs."""
    split = router.split_of(request.queue)
    if split is not None:
        views = await redrive(router.whole(request.queue, split, caller, origin), request)
        return redrive_view(request.queue, [_named(view) for view in views])
    view = cast("RedriveView", await router.at("redrive", request, request.queue, caller, origin))
    return _named(view)


async def _of_redrive(
    name: str, router: ClusterRouter, request: GetRedrive | StopRedrive, caller: Caller, origin: Origin
) -> RedriveView:
    """Look at a redrive, or stop it, wherever it runs."""
    parts = request.id.split(JOINT)
    asking = origin if len(parts) == 1 else msgspec.structs.replace(origin, follows=False)
    views = await asyncio.gather(*(_of_part(name, router, type(request)(id=part), caller, asking) for part in parts))
    return redrive_view(queue_of(views[0].queue), views)


async def _of_part(
    name: str, router: ClusterRouter, request: GetRedrive | StopRedrive, caller: Caller, origin: Origin
) -> RedriveView:
    queue = request.id.partition(REDRIVE_AT)[2]
    if not queue:
        raise RedriveNotFound(f"There is no redrive {request.id!r:.100}.")
    at = queue if MARK in queue else partition_name(queue, 0)  # brokers know the first partition by the plain name
    return _named(cast("RedriveView", await router.at(name, request, at, caller, origin)))


async def _redrives(router: ClusterRouter, request: ListRedrives, caller: Caller, origin: Origin) -> RedriveList:
    """Return the redrives of all nodes."""
    answers: list[RedriveList] = await router.everywhere("redrives", request, caller, origin)
    found = [_named(view) for answer in answers for view in answer.redrives]
    return RedriveList(redrives=sorted(found, key=lambda view: view.started_ms))


def _named(view: RedriveView) -> RedriveView:
    return view if REDRIVE_AT in view.id else msgspec.structs.replace(view, id=f"{view.id}{REDRIVE_AT}{view.queue}")


# --------------------------------------------------------------------------------------------------- config and journal


async def _set_config(router: ClusterRouter, request: SetConfig, caller: Caller, _: Origin) -> Done:
    """Set config values for all groups."""
    if any(key.startswith(PRIVATE_PREFIX) for key in request.values):
        raise Forbidden(f"What begins with {PRIVATE_PREFIX} belongs to the server; keys are made with keys/create.")
    await router.node.config.set_config_many(request.values, by=caller.name)
    return _DONE


async def _list_config(router: ClusterRouter, request: ListConfig, _: Caller, __: Origin) -> ConfigValues:
    """Return config values."""
    await router.node.refresh()
    values = await router.node.config.list_config(request.prefix)
    return ConfigValues(values={key: value for key, value in values.items() if not key.startswith(PRIVATE_PREFIX)})


async def _throttles(router: ClusterRouter, request: ListThrottles, caller: Caller, origin: Origin) -> ThrottleList:
    """Return throttles as they are set for all groups, with the tokens that these have together."""
    answers: list[ThrottleList] = await router.everywhere("throttles", request, caller, origin)
    tokens: Counter[str] = Counter()
    for view in (view for answer in answers for view in answer.throttles):
        tokens[view.name] += view.tokens
    views = [
        ThrottleView(name=name, rate=total.rate / MILLIONTHS, burst=total.burst, tokens=tokens[name])
        for name, total in sorted(router.node.throttles().items())
    ]
    return ThrottleList(throttles=views)


async def _of_journal(name: str, router: ClusterRouter, request: Any, caller: Caller, origin: Origin) -> Answer:  # noqa: ANN401
    """Read the journal of the group of a queue."""
    queue = getattr(request, "queue", None)
    if queue is None:
        raise InvalidArgument("In a cluster every group has a journal of its own: say whose, by a queue of it.")
    return await router.at(name, request, queue, caller, origin)


# -------------------------------------------------------------------------------------------------------------- cluster


async def _cluster(router: ClusterRouter, _request: GetCluster, _: Caller, __: Origin) -> ClusterView:
    """Return the cluster as this node sees it."""
    await router.node.refresh()
    return router.node.seen()


async def _move_queue(router: ClusterRouter, request: MoveQueue, _: Caller, __: Origin) -> Done:
    """Let a queue, with its group, go to a node."""
    await router.changes.move_queue(served_name(request.queue), request.node)
    router.node.note()
    return _DONE


async def _drain_node(router: ClusterRouter, request: DrainNode, _: Caller, __: Origin) -> Done:
    """Drain a node, or let it have groups again."""
    await router.changes.drain_node(request.node, is_draining=request.is_draining)
    router.node.note()
    return _DONE


SPECIAL: Final[Mapping[str, Special]] = {
    "create_queue": _create_queue,
    "update_queue": _update_queue,
    "delete_queue": _delete_queue,
    "queues": _queues,
    "forward": _forward,
    "redrive": _redrive,
    "redrive_view": partial(_of_redrive, "redrive_view"),
    "stop_redrive": partial(_of_redrive, "stop_redrive"),
    "redrives": _redrives,
    "set_config": _set_config,
    "list_config": _list_config,
    "throttles": _throttles,
    "read_journal": partial(_of_journal, "read_journal"),
    "set_reader": partial(_of_journal, "set_reader"),
    "remove_reader": partial(_of_journal, "remove_reader"),
    "readers": partial(_of_journal, "readers"),
    "cluster": _cluster,
    "move_queue": _move_queue,
    "split_queue": split_queue,
    "drain_node": _drain_node,
}
"""The verbs for which it is not enough to find the broker of their queue."""
