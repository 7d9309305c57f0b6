"""Splitting a queue into partitions, and letting partitions go that are needed no more.

All that is done may be done again: whatever has failed, or was interrupted, the same request finishes it. First the
partitions are made, and only when all of them are there new messages go to them.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from fairlead.cluster.entries import SplitEntry
from fairlead.errors import InvalidArgument, QueueExists
from fairlead.model.limits import QUEUE_NAME_LENGTH_MAX
from fairlead.model.names import is_dlq
from fairlead.model.partitions import MARK, PARTITIONS_MAX, Split, partition_name
from fairlead.model.views import QueueView
from fairlead.server.callers import Caller
from fairlead.server.origin import Origin
from fairlead.server.routing import ClusterRouter, Whole
from fairlead.wire import verbs as wire

OPENING_S: Final = 15.0
"""So long a request waits that makes a queue: its store has to be opened first."""
_NAME_MAX: Final = QUEUE_NAME_LENGTH_MAX - len(f"{MARK}{PARTITIONS_MAX - 1}.dlq")


async def split_queue(router: ClusterRouter, request: wire.SplitQueue, caller: Caller, origin: Origin) -> Split:
    """Let a queue have so many partitions that take new messages.

    Raises:
        InvalidArgument: it can't be split so.
        QueueNotFound: there is no such queue.
        FairleadError: it is not done, or only in part; ask again.
    """
    _check(request)
    async with router.splitting:
        await router.node.inform()
        before = router.groups.split_of(request.queue) or Split(partitions=1, made=1)
        made = max(before.made, request.partitions)
        whole = router.whole(request.queue, msgspec.structs.replace(before, made=made), caller, origin)
        first = await _first(whole)
        for at in range(1, request.partitions):  # one after the other, so that each node gets its part of them
            name = partition_name(request.queue, at)
            await router.changes.list_queue(name, group=name)
        router.node.note()
        await asyncio.gather(*(_make(whole, at, first) for at in range(1, request.partitions)))
        return await _put(whole, request.partitions, made, first)


def _check(request: wire.SplitQueue) -> None:
    queue, partitions = request.queue, request.partitions
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise InvalidArgument(f"A queue has from 1 to {PARTITIONS_MAX} partitions, not {partitions}.")
    if MARK in queue:
        raise InvalidArgument(f"{queue!r:.150} is a partition itself: name the queue.")
    if is_dlq(queue):
        raise InvalidArgument(f"{queue!r:.150} is split with the queue whose dead letters it holds: name that.")
    if len(queue) > _NAME_MAX:
        raise InvalidArgument(f"To be split a queue has a name of at most {_NAME_MAX} characters, not {len(queue)}.")


async def _first(whole: Whole) -> QueueView:
    """Return the first partition: it is the queue as it was."""
    view: QueueView = await whole.ask("stats", wire.Stats(queue=partition_name(whole.queue, 0)))
    return view


async def _make(whole: Whole, at: int, first: QueueView) -> None:
    """Let a partition be there, with the policy and the pauses of the first."""
    name = partition_name(whole.queue, at)
    try:
        await whole.ask("create_queue", wire.CreateQueue(queue=name, policy=first.policy), patience_s=OPENING_S)
    except QueueExists:
        await whole.ask("update_queue", wire.UpdateQueue(queue=name, policy=_fields(first)))
    view: QueueView = await whole.ask("stats", wire.Stats(queue=name))
    if view.is_paused != first.is_paused:
        await whole.ask("pause" if first.is_paused else "resume", wire.Pause(queue=name))
    for key in set(first.paused_keys) ^ set(view.paused_keys):
        verb = "pause" if key in first.paused_keys else "resume"
        await whole.ask(verb, wire.Pause(queue=name, key=key))


def _fields(view: QueueView) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(view.policy)
    return fields


async def _put(whole: Whole, partitions: int, made: int, first: QueueView) -> Split:
    """Put on the board how the queue is split, and return it."""

    def edit(entry: SplitEntry | None) -> SplitEntry | None:
        most = made if entry is None else max(made, entry.made)
        if partitions == most == 1:
            return None
        policy = first.policy
        return SplitEntry(
            partitions=partitions, made=most, key_from=policy.fairness_key_from, on_enqueue=policy.on_enqueue
        )

    board = await whole.router.changes.change_split(whole.queue, edit)
    whole.router.node.note()
    entry = board.splits.get(whole.queue)
    return Split(partitions=1, made=1) if entry is None else entry.split
