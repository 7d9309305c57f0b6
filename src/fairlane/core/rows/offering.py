"""Rows and schedules: into one that is rebuilt, out of it, and why a row waits."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from fairlane.core.rows.shelves import RowRun
from fairlane.scheduler.explanation import Explanation
from fairlane.scheduler.kernel import Kernel

if TYPE_CHECKING:
    from fairlane.core.ledger import Message, Queue
    from fairlane.core.queue_schedule import QueueSchedule

_joined = attrgetter("joined")


def offer_all(schedule: QueueSchedule[Any], items: Sequence[Any], runs: Iterable[RowRun], now_ms: int) -> None:
    """Add messages and rows in the order in which they began to wait, which is that of the messages."""
    at = 0
    for run in runs:
        begin = 0
        while at < len(items) and items[at].joined < run.numbers[-1]:
            end = bisect_left(run.numbers, items[at].joined, begin)
            _offer(schedule, run, begin, end, now_ms)
            upto = bisect_left(items, run.numbers[end], at, key=_joined)
            schedule.offer(list(items[at:upto]), now_ms)
            begin, at = end, upto
        _offer(schedule, run, begin, len(run.numbers), now_ms)
    schedule.offer(list(items[at:]), now_ms)


def _offer(schedule: QueueSchedule[Any], run: RowRun, begin: int, end: int, now_ms: int) -> None:
    if begin < end:
        heads = max([chunk.head_bytes for chunk in set(run.chunks[begin:end])])
        largest = max(run.sizes[begin:end]) + heads
        schedule.offer_rows(run.keys[begin:end], run.numbers[begin:end], largest, now_ms, is_mixed=heads > 0)


def withdraw(kernel: Kernel[Any], items: Iterable[Any], now_ms: int) -> None:
    """Take those of some messages out of a kernel that wait.

    Rows first: the ledger has none of these messages any more, and the kernel must not make one of them.
    """
    linked = []
    for item in items:
        if item.lane is not None:
            linked.append(item)
        else:
            kernel.cancel_row(item.key, item.number, now_ms)
    for item in linked:
        kernel.cancel(item, now_ms)


def contents(queue: Queue) -> tuple[list[Message], list[Message]]:
    """Return the leased messages of a queue, and those that wait and are no rows."""
    messages = queue.messages.objects.values()
    leased = sorted((message for message in messages if message.token), key=attrgetter("number"))
    return leased, [message for message in messages if not message.token]


def explain(schedule: QueueSchedule[Message], message: Message, now_ms: int) -> Explanation:
    """Return why a message waits, which may be a row."""
    if message.queue.messages.objects.get(message.number) is message:
        return schedule.kernel.explain(message, now_ms)
    return schedule.kernel.explain_row(message, message.number, now_ms)
