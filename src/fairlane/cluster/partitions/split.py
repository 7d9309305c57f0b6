"""Splits a queue into partitions, and removes partitions that are no longer needed.

Every step can be repeated: if something failed or was interrupted, the same request finishes it. The partitions are
created first, and take new messages only when all of them exist. A partition is removed only when it is empty, which
its broker checks in one command. A caller that still enqueues there finds it gone, reads the board, and tries again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Iterable
from typing import Final, TypeAlias

import msgspec

from fairlane.cluster.entries import SplitEntry
from fairlane.cluster.gateway import ClusterGateway, WholeQueue
from fairlane.errors import InvalidArgument, QueueElsewhere, QueueExists, QueueNotFound
from fairlane.gateway.caller import Caller
from fairlane.gateway.context import CallContext
from fairlane.model.limits import PARTITIONS_MAX, QUEUE_NAME_LENGTH_MAX
from fairlane.model.message import Key
from fairlane.model.names import dlq_of, is_dlq
from fairlane.model.partitions import MARK, Split, partition_name, place_in, served_name
from fairlane.model.views import QueueView
from fairlane.verbs.cluster import SplitQueue
from fairlane.verbs.queues import CreateQueue, DeleteQueue, GetStats, PauseQueue, ResumeQueue, UpdateQueue
from fairlane.verbs.verb import Done
from fairlane.wire.spread import for_partition

OPENING_S: Final = 15.0
"""How long a request waits that creates a queue, because its store has to be opened first."""
_NAME_MAX: Final = QUEUE_NAME_LENGTH_MAX - len(f"{MARK}{PARTITIONS_MAX - 1}.dlq")
_WHOLE: Final = Split(partitions=1, made=1)
_DONE: Final = Done()
Model: TypeAlias = list[QueueView]
"""The first partition and its dead-letter queue, after which the others are created."""


async def split_queue(gateway: ClusterGateway, request: SplitQueue, caller: Caller, context: CallContext) -> Split:
    """Set how many partitions of a queue take new messages, and remove those beyond that are empty.

    Raises:
        InvalidArgument: the queue can't be split like this.
        QueueNotFound: there is no such queue.
        FairlaneError: not done, or only in part; call again.
    """
    _check(request)
    async with gateway.splitting:
        await gateway.member.refresh()
        before = gateway.groups.split_of(request.queue) or _WHOLE
        whole = gateway.whole(request.queue, before, caller, context)
        model = await _model(whole)
        await _make_all(whole, request.partitions, model)
        await _put(whole, request.partitions, model)
        again = await _model_still(whole)  # another caller may have changed the queue meanwhile, or removed a partition
        await _make_all(whole, request.partitions, again)
        if again[0].policy != model[0].policy:
            await _put(whole, request.partitions, again)
        return await _let_go(whole)


def _check(request: SplitQueue) -> None:
    queue, partitions = request.queue, request.partitions
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise InvalidArgument(f"A queue can have 1 to {PARTITIONS_MAX} partitions, not {partitions}.")
    if MARK in queue:
        raise InvalidArgument(f"{queue!r:.150} is a partition; name the whole queue.")
    if is_dlq(queue):
        raise InvalidArgument(f"{queue!r:.150} is a dead-letter queue, which is split with its queue; name that.")
    if len(queue) > _NAME_MAX:
        raise InvalidArgument(f"Only queues with names of up to {_NAME_MAX} characters can be split, not {len(queue)}.")


async def _all_done(doing: Iterable[Awaitable[None]]) -> None:
    """Wait until everything is done or has failed, and raise the first error."""
    for outcome in await asyncio.gather(*doing, return_exceptions=True):
        if outcome is not None:
            raise outcome


# -------------------------------------------------------------------------------------------------- creating partitions


async def _model(whole: WholeQueue) -> Model:
    """Return the first partition, and its dead-letter queue if the caller may administer that."""
    names = [whole.queue, dlq_of(whole.queue)]
    ruled = [name for name in names if name == whole.queue or whole.caller.may("admin", name)]
    return [await whole.ask(for_partition(GetStats(queue=name), 0)) for name in ruled]


async def _model_still(whole: WholeQueue) -> Model:
    """Return the first partition. If it has been deleted meanwhile, nothing is left to split."""
    try:
        return await _model(whole)
    except QueueNotFound:
        await whole.gateway.member.changes.change_split(whole.queue, lambda _entry: None)
        whole.gateway.member.note()
        raise


async def _make_all(whole: WholeQueue, partitions: int, model: Model) -> None:
    """Put partitions on the board, and create them like the first."""
    for at in range(1, partitions):  # one after the other, so that each node gets some of them
        name = partition_name(whole.queue, at)
        await whole.gateway.member.changes.list_queue(name, group=name)
    whole.gateway.member.note()
    await _all_done(_make(whole, at, model) for at in range(1, partitions))


async def _make(whole: WholeQueue, at: int, model: Model) -> None:
    """Create a partition unless it exists, and make it like the first.

    Another caller that wants fewer may remove it meanwhile. As long as the board needs it, it is created again.
    """
    name = partition_name(whole.queue, at)
    while not await _is_made(whole, name, model):
        await whole.gateway.member.refresh()
        if at >= (whole.gateway.groups.split_of(whole.queue) or _WHOLE).partitions:
            return
        await whole.gateway.member.changes.list_queue(name, group=name)
        whole.gateway.member.note()


async def _is_made(whole: WholeQueue, name: str, model: Model) -> bool:
    """Create a partition unless it exists, and make it like the first. Return False if it was removed meanwhile."""
    try:
        await whole.ask(GetStats(queue=name), patience_s=OPENING_S)
    except QueueNotFound:
        try:
            making = CreateQueue(queue=name, policy=msgspec.to_builtins(model[0].policy))
            await whole.ask(making, patience_s=OPENING_S)
        except QueueExists:
            pass  # another caller was faster
    try:
        for each, like in zip((name, dlq_of(name)), model, strict=False):
            await _be_like(whole, each, like)
    except QueueNotFound:
        return False
    return True


async def _be_like(whole: WholeQueue, name: str, model: QueueView) -> None:
    """Give a partition the policy and the pauses of the first."""
    view: QueueView = await whole.ask(GetStats(queue=name))
    if view.policy != model.policy:
        fields = msgspec.to_builtins(model.policy)
        await whole.ask(UpdateQueue(queue=name, policy=fields))
    if view.is_paused != model.is_paused:
        await _set_pause(whole, name, None, is_paused=model.is_paused)
    for key in set(model.paused_keys) ^ set(view.paused_keys):
        await _set_pause(whole, name, key, is_paused=key in model.paused_keys)


async def _set_pause(whole: WholeQueue, name: str, key: Key | None, *, is_paused: bool) -> None:
    if is_paused:
        await whole.ask(PauseQueue(queue=name, key=key))
    else:
        await whole.ask(ResumeQueue(queue=name, key=key))


async def _put(whole: WholeQueue, partitions: int, model: Model) -> None:
    """Put on the board how the queue is split. Partitions that another caller has created meanwhile stay."""
    policy = model[0].policy

    def edit(entry: SplitEntry | None) -> SplitEntry | None:
        made = max(partitions, 1 if entry is None else entry.made)
        if made == 1:
            return None
        return SplitEntry(
            partitions=partitions,
            made=made,
            key_from=policy.fairness_key_from,
            on_enqueue=policy.on_enqueue,
            hook_limits=policy.hook_limits,
        )

    await whole.gateway.member.changes.change_split(whole.queue, edit)
    whole.gateway.member.note()


# -------------------------------------------------------------------------------------------------- removing partitions


async def _let_go(whole: WholeQueue) -> Split:
    """Remove the last partitions that take no new messages and are empty. Return how the queue is split now."""
    gateway, queue = whole.gateway, whole.queue
    split = gateway.groups.split_of(queue) or _WHOLE
    while split.made > split.partitions:
        at = split.made - 1
        name = partition_name(queue, at)
        try:
            await _delete(whole, name)
        except QueueNotFound:
            pass  # it was removed before, but the board still has it
        except InvalidArgument:
            break  # it is not empty

        def edit(entry: SplitEntry | None, at: int = at) -> SplitEntry | None:
            if entry is None or entry.made != at + 1 or entry.partitions > at:
                return entry
            return None if at == 1 else msgspec.structs.replace(entry, made=at)

        await gateway.member.changes.change_split(queue, edit)
        gateway.member.note()
        split = gateway.groups.split_of(queue) or _WHOLE
        if split.made > at:
            break  # another caller needs it
        await gateway.member.changes.unlist_queue(name)
    gateway.member.note()
    return split


async def _delete(whole: WholeQueue, name: str) -> None:
    """Delete a partition where it is.

    Raises QueueNotFound if it does not exist. Raises InvalidArgument if it is not empty, or takes new messages.
    """
    try:
        await delete_here(whole.gateway, name, whole.caller)
    except QueueElsewhere as error:
        await whole.gateway.router.ask(error.at, DeleteQueue(queue=name), whole.caller, whole.context)


async def delete_here(gateway: ClusterGateway, name: str, caller: Caller) -> Done:
    """Delete a partition of this node that no longer belongs to its queue, or is empty and takes no new messages.

    Raises:
        InvalidArgument: it is not empty, or takes new messages.
        QueueNotFound, QueueElsewhere, QueueMoving: it is not here.
    """
    await gateway.member.refresh()
    broker = await gateway.router.find(name)
    queue, at = place_in(name)
    split = gateway.groups.split_of(queue) or _WHOLE
    if at is None or at < split.partitions:
        raise InvalidArgument(f"Partition {name!r:.150} takes new messages; reduce the number of partitions first.")
    if at >= split.made:
        await broker.delete_queue(served_name(name), by=caller.name)
    elif not await broker.delete_empty(served_name(name), by=caller.name):
        raise InvalidArgument(f"Partition {name!r:.150} is not empty; consume or purge it first.")
    return _DONE


async def delete_further(gateway: ClusterGateway, queue: str, caller: Caller, context: CallContext) -> None:
    """Delete all partitions of a queue except the first, with everything in them. The first is deleted next.

    The queue stops being split before anything is deleted, so that an interrupted deletion leaves a queue that can be
    used, and deleted again. Raises FairlaneError if not all are deleted; call again.
    """
    further = [
        name for at in range(1, PARTITIONS_MAX) if (name := partition_name(queue, at)) in gateway.groups.locations
    ]
    if gateway.groups.split_of(queue) is None and not further:
        return
    await gateway.member.changes.change_split(queue, lambda _entry: None)
    gateway.member.note()
    whole = gateway.whole(queue, _WHOLE, caller, context)
    await _all_done(_delete_all(whole, name) for name in further)
    gateway.member.note()


async def _delete_all(whole: WholeQueue, name: str) -> None:
    with contextlib.suppress(QueueNotFound):  # it was deleted before, but the board still has it
        await _delete(whole, name)
    await whole.gateway.member.changes.unlist_queue(name)
