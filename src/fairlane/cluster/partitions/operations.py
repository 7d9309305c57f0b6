"""Verbs about a split queue as a whole: all partitions are asked, and their answers are joined."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from fairlane.cluster.entries import SplitEntry
from fairlane.cluster.gateway import WholeQueue, WholeVerb
from fairlane.cluster.partitions import views as together
from fairlane.errors import QueueNotFound
from fairlane.model.limits import BATCH_MAX
from fairlane.model.names import is_dlq
from fairlane.model.views import DeadLetterFilter, HookStatistics, QueueView, RedriveView
from fairlane.verbs.config import GetHookStatistics
from fairlane.verbs.dead_letters import Redrive
from fairlane.verbs.messages import MessageList, Peek
from fairlane.verbs.queues import GetStats, InspectQueue, MessageCount, PurgeQueue, UpdateQueue
from fairlane.verbs.table import VERBS
from fairlane.verbs.verb import Done, Request
from fairlane.wire.spread import for_partition

_DONE: Final = Done()


async def each(whole: WholeQueue, request: Request[Any]) -> dict[int, Any]:
    """Return the answer of each partition, in order, except of those that were removed because they were empty."""
    asked = [whole.ask(for_partition(request, at)) for at in range(whole.split.made)]
    answers = dict(enumerate(await asyncio.gather(*asked, return_exceptions=True)))
    for at, answer in list(answers.items()):
        if isinstance(answer, QueueNotFound) and whole.may_be_gone(at):
            del answers[at]
        elif isinstance(answer, BaseException):
            raise answer
    return answers


async def _stats(whole: WholeQueue, request: GetStats) -> QueueView:
    """Return the statistics of the queue, with some of its fairness keys if asked."""
    answers = await each(whole, request)
    return together.queue_view(whole.queue, list(answers.values()), made=whole.split.made, keys_max=request.keys_max)


async def _inspect(whole: WholeQueue, request: InspectQueue) -> QueueView:
    """Return the queue with its fairness keys."""
    answers = await each(whole, request)
    return together.queue_view(
        whole.queue, list(answers.values()), made=whole.split.made, keys_max=together.INSPECTED_KEYS
    )


async def _all(whole: WholeQueue, request: Request[Any]) -> Done:
    """Carry out a request at each partition."""
    await each(whole, request)
    return _DONE


async def _purge(whole: WholeQueue, request: PurgeQueue) -> MessageCount:
    """Purge each partition."""
    return MessageCount(count=sum(answer.count for answer in (await each(whole, request)).values()))


async def _hook_statistics(whole: WholeQueue, request: GetHookStatistics) -> HookStatistics:
    """Return the statistics of the scripts of all partitions."""
    return together.hook_statistics(list((await each(whole, request)).values()))


async def _first(whole: WholeQueue, request: Request[Any]) -> Any:  # noqa: ANN401 - by verb
    """Ask the first partition, which has what the queue has once."""
    return await whole.ask(for_partition(request, 0))


async def update(whole: WholeQueue, request: UpdateQueue) -> Done:
    """Change the policy of each partition, the first one first: if it refuses, the others are not asked.

    Raises:
        FairlaneError: not all partitions have the policy; call again.
    """
    async with whole.gateway.splitting:
        await whole.ask(for_partition(request, 0))
        await each(whole, request)
        if not is_dlq(whole.queue):
            await _note_policy(whole)
    return _DONE


async def _note_policy(whole: WholeQueue) -> None:
    """Put on the board where the queue's policy takes fairness keys from, for nodes that choose partitions."""
    first: QueueView = await whole.ask(for_partition(GetStats(queue=whole.queue), 0))
    policy = first.policy

    def edit(entry: SplitEntry | None) -> SplitEntry | None:
        if entry is None:
            return None
        return msgspec.structs.replace(
            entry,
            key_from=policy.fairness_key_from,
            on_enqueue=policy.on_enqueue,
            hook_limits=policy.hook_limits,
        )

    await whole.gateway.member.changes.change_split(whole.queue, edit)
    whole.gateway.member.note()


async def redrive(whole: WholeQueue, request: Redrive) -> list[RedriveView]:
    """Start a redrive in each partition that has dead letters.

    Together they move no more than ``count`` messages, no faster than ``rate``.
    """
    shares = _shares(await _dead(whole, request), request.count)
    rate = None if request.rate is None else request.rate / len(shares)
    asked = [
        whole.ask(msgspec.structs.replace(for_partition(request, at), count=count, rate=rate))
        for at, count in shares.items()
    ]
    views: list[RedriveView] = await asyncio.gather(*asked)
    return views


async def _dead(whole: WholeQueue, request: Redrive) -> dict[int, int]:
    """Return how many matching dead letters each partition has, up to the number to be moved."""
    if request.count is None or request.wanted == DeadLetterFilter() or not 1 <= request.count <= BATCH_MAX:
        found: dict[int, QueueView] = await each(whole, GetStats(queue=whole.queue))
        return {at: view.waiting for at, view in found.items()}
    peeking = Peek(queue=whole.queue, count=request.count, wanted=request.wanted)
    seen: dict[int, MessageList] = await each(whole, peeking)
    return {at: len(peeked.messages) for at, peeked in seen.items()}


def _shares(dead: Mapping[int, int], count: int | None) -> dict[int, int | None]:
    """Return how many dead letters each partition moves, for those that move any; at least one does."""
    left, shares = count, dict[int, int | None]()
    for at, waiting in dead.items():
        share = None if left is None else min(left, waiting)
        if waiting and share != 0:
            shares[at] = share
            left = None if left is None or share is None else left - share
    return shares or {0: count}


OPERATING: Final[Mapping[str, WholeVerb]] = {
    "stats": _stats,
    "inspect": _inspect,
    "pause": _all,
    "resume": _all,
    "purge": _purge,
    "hook_statistics": _hook_statistics,
    "try_hook": _first,
    **{name: _first for name, verb in VERBS.items() if verb.spread == "first"},
}
"""The verbs that all partitions are asked for."""
