"""Splitting a queue into partitions, and letting partitions go that are needed no more.

All that is done may be done again: whatever has failed, or was interrupted, the same request finishes it. First the
partitions are made, and only when all of them are there new messages go to them. A partition goes only when nothing is
in it, which its broker sees to in one step; whoever would still enqueue there finds it gone, and looks again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Iterable
from typing import Final, TypeAlias

import msgspec

from fairlane.cluster.entries import SplitEntry
from fairlane.cluster.gateway import ClusterRouter, Whole
from fairlane.errors import InvalidArgument, QueueElsewhere, QueueExists, QueueNotFound
from fairlane.gateway.caller import Caller
from fairlane.gateway.context import Origin
from fairlane.model.limits import PARTITIONS_MAX, QUEUE_NAME_LENGTH_MAX
from fairlane.model.message import Key
from fairlane.model.names import dlq_of, is_dlq
from fairlane.model.partitions import MARK, Split, partition_name, place_in, served_name
from fairlane.model.views import QueueView
from fairlane.verbs.cluster import SplitQueue
from fairlane.verbs.queues import CreateQueue, DeleteQueue, GetStats, PauseQueue, ResumeQueue, UpdateQueue
from fairlane.verbs.verb import Done
from fairlane.wire.spreading import for_partition

OPENING_S: Final = 15.0
"""So long a request waits that makes a queue: its store has to be opened first."""
_NAME_MAX: Final = QUEUE_NAME_LENGTH_MAX - len(f"{MARK}{PARTITIONS_MAX - 1}.dlq")
_WHOLE: Final = Split(partitions=1, made=1)
_DONE: Final = Done()
Model: TypeAlias = list[QueueView]
"""The first partition and its dead-letter queue, which the others are made like."""


async def split_queue(router: ClusterRouter, request: SplitQueue, caller: Caller, origin: Origin) -> Split:
    """Let a queue have so many partitions that take new messages, and let those go that are empty and take none.

    Raises:
        InvalidArgument: it can't be split so.
        QueueNotFound: there is no such queue.
        FairlaneError: it is not done, or only in part; ask again.
    """
    _check(request)
    async with router.splitting:
        await router.node.refresh()
        before = router.groups.split_of(request.queue) or _WHOLE
        whole = router.whole(request.queue, before, caller, origin)
        model = await _model(whole)
        await _make_all(whole, request.partitions, model)
        await _put(whole, request.partitions, model)
        again = await _model_still(whole)  # others may have changed it meanwhile, or have let a partition go
        await _make_all(whole, request.partitions, again)
        if again[0].policy != model[0].policy:
            await _put(whole, request.partitions, again)
        return await _let_go(whole)


def _check(request: SplitQueue) -> None:
    queue, partitions = request.queue, request.partitions
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise InvalidArgument(f"A queue has from 1 to {PARTITIONS_MAX} partitions, not {partitions}.")
    if MARK in queue:
        raise InvalidArgument(f"{queue!r:.150} is a partition itself: name the queue.")
    if is_dlq(queue):
        raise InvalidArgument(f"{queue!r:.150} is split with the queue whose dead letters it holds: name that.")
    if len(queue) > _NAME_MAX:
        raise InvalidArgument(f"To be split a queue has a name of at most {_NAME_MAX} characters, not {len(queue)}.")


async def _all_done(doing: Iterable[Awaitable[None]]) -> None:
    """Wait until everything is done or has failed, and raise what failed first."""
    for outcome in await asyncio.gather(*doing, return_exceptions=True):
        if outcome is not None:
            raise outcome


# ------------------------------------------------------------------------------------------------------- making them


async def _model(whole: Whole) -> Model:
    """Return the first partition, and its dead-letter queue if that is for the caller to rule."""
    names = [whole.queue, dlq_of(whole.queue)]
    ruled = [name for name in names if name == whole.queue or whole.caller.may("admin", name)]
    return [await whole.ask("stats", for_partition(GetStats(queue=name), 0)) for name in ruled]


async def _model_still(whole: Whole) -> Model:
    """Return the first partition; if it has been deleted meanwhile, there is nothing left to be split."""
    try:
        return await _model(whole)
    except QueueNotFound:
        await whole.router.changes.change_split(whole.queue, lambda _entry: None)
        whole.router.node.note()
        raise


async def _make_all(whole: Whole, partitions: int, model: Model) -> None:
    """Let partitions be on the board, and be there, like the first."""
    for at in range(1, partitions):  # one after the other, so that each node gets its part of them
        name = partition_name(whole.queue, at)
        await whole.router.changes.list_queue(name, group=name)
    whole.router.node.note()
    await _all_done(_make(whole, at, model) for at in range(1, partitions))


async def _make(whole: Whole, at: int, model: Model) -> None:
    """Let a partition be there, and be like the first."""
    name = partition_name(whole.queue, at)
    try:
        await whole.ask("stats", GetStats(queue=name), patience_s=OPENING_S)
    except QueueNotFound:
        try:
            making = CreateQueue(queue=name, policy=model[0].policy)
            await whole.ask("create_queue", making, patience_s=OPENING_S)
        except QueueExists:
            pass  # another was quicker
    for each, like in zip((name, dlq_of(name)), model, strict=False):
        await _be_like(whole, each, like)


async def _be_like(whole: Whole, name: str, model: QueueView) -> None:
    """Let a partition have the policy and the pauses of the first."""
    view: QueueView = await whole.ask("stats", GetStats(queue=name))
    if view.policy != model.policy:
        fields = msgspec.to_builtins(model.policy)
        await whole.ask("update_queue", UpdateQueue(queue=name, policy=fields))
    if view.is_paused != model.is_paused:
        await _set_pause(whole, name, None, is_paused=model.is_paused)
    for key in set(model.paused_keys) ^ set(view.paused_keys):
        await _set_pause(whole, name, key, is_paused=key in model.paused_keys)


async def _set_pause(whole: Whole, name: str, key: Key | None, *, is_paused: bool) -> None:
    if is_paused:
        await whole.ask("pause", PauseQueue(queue=name, key=key))
    else:
        await whole.ask("resume", ResumeQueue(queue=name, key=key))


async def _put(whole: Whole, partitions: int, model: Model) -> None:
    """Put on the board how the queue is split. What others have made meanwhile stays."""
    policy = model[0].policy

    def edit(entry: SplitEntry | None) -> SplitEntry | None:
        made = max(partitions, 1 if entry is None else entry.made)
        if made == 1:
            return None
        return SplitEntry(
            partitions=partitions, made=made, key_from=policy.fairness_key_from, on_enqueue=policy.on_enqueue
        )

    await whole.router.changes.change_split(whole.queue, edit)
    whole.router.node.note()


# -------------------------------------------------------------------------------------------------- letting them go


async def _let_go(whole: Whole) -> Split:
    """Let partitions at the end go that take nothing new and are empty, and return how the queue is split now."""
    router, queue = whole.router, whole.queue
    split = router.groups.split_of(queue) or _WHOLE
    while split.made > split.partitions:
        at = split.made - 1
        name = partition_name(queue, at)
        try:
            await _delete(whole, name)
        except QueueNotFound:
            pass  # it went before, and nobody could say so
        except InvalidArgument:
            break  # something is in it

        def edit(entry: SplitEntry | None, at: int = at) -> SplitEntry | None:
            if entry is None or entry.made != at + 1 or entry.partitions > at:
                return entry
            return None if at == 1 else msgspec.structs.replace(entry, made=at)

        await router.changes.change_split(queue, edit)
        router.node.note()
        split = router.groups.split_of(queue) or _WHOLE
        if split.made > at:
            break  # somebody else wants it
        await router.changes.unlist_queue(name)
    router.node.note()
    return split


async def _delete(whole: Whole, name: str) -> None:
    """Delete a partition where it is, if it may go.

    Raises:
        QueueNotFound: there is none.
        InvalidArgument: it may not.
    """
    try:
        await delete_here(whole.router, name, whole.caller)
    except QueueElsewhere as error:
        await whole.router.ask(error.at, "delete_queue", DeleteQueue(queue=name), whole.caller, whole.origin)


async def delete_here(router: ClusterRouter, name: str, caller: Caller) -> Done:
    """Delete a partition that this node has: one that belongs to its queue no more, or that is empty and takes nothing.

    Raises:
        InvalidArgument: it may not go.
        QueueNotFound, QueueElsewhere, QueueMoving: it is not here.
    """
    await router.node.refresh()
    broker = await router.find(name)
    queue, at = place_in(name)
    split = router.groups.split_of(queue) or _WHOLE
    if at is None or at < split.partitions:
        raise InvalidArgument(f"The partition {name!r:.150} takes new messages.")
    if at >= split.made:
        await broker.delete_queue(served_name(name), by=caller.name)
    elif not await broker.delete_empty(served_name(name), by=caller.name):
        raise InvalidArgument(f"The partition {name!r:.150} is not empty.")
    return _DONE


async def delete_further(router: ClusterRouter, queue: str, caller: Caller, origin: Origin) -> None:
    """Delete all partitions of a queue but the first, which is deleted next, with everything in them.

    From the first moment on the queue is split no more, so that what is left half done is a queue that can be used, and
    deleted again.

    Raises:
        FairlaneError: not all are gone; ask again.
    """
    further = [
        name for at in range(1, PARTITIONS_MAX) if (name := partition_name(queue, at)) in router.groups.locations
    ]
    if router.groups.split_of(queue) is None and not further:
        return
    await router.changes.change_split(queue, lambda _entry: None)
    router.node.note()
    whole = router.whole(queue, _WHOLE, caller, origin)
    await _all_done(_delete_all(whole, name) for name in further)
    router.node.note()


async def _delete_all(whole: Whole, name: str) -> None:
    with contextlib.suppress(QueueNotFound):  # it went before, and was still on the board
        await _delete(whole, name)
    await whole.router.changes.unlist_queue(name)
