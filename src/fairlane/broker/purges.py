"""Purges and deletions of large queues, a part with each cycle, so that no other request waits for them.

Each part is decided and recorded like a purge of its own. A purge keeps what is enqueued after it began; a deletion
removes that at the end, with the queue. Between its parts the request waits in the inbox, behind other purges that came
first. So a broker that closes refuses it as any other request, and what was purged by then stays purged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from fairlane.broker.calls import run_call
from fairlane.broker.cycle import Cycle, Executor
from fairlane.broker.requests import Call
from fairlane.core.commands import PurgePart
from fairlane.core.decide.queues import deletion_fault
from fairlane.core.ledger import Ledger
from fairlane.errors import FairlaneError
from fairlane.model.names import dlq_of
from fairlane.verbs.queues import DeleteQueue, MessageCount, PurgeQueue

PART: Final = 500
"""How many messages a cycle removes: half of the events of a cycle by default, so that other requests have the rest."""


def take_purge(executor: Executor, call: Call, request: PurgeQueue | DeleteQueue, cycle: Cycle) -> None:
    """Purge or delete a queue at once if it is small, or go on with a large one."""
    if not isinstance(call, _LongPurge):
        if _is_short(executor.ledger, request):
            run_call(executor, call, cycle)
            return
        if any(isinstance(other, Call) for other in cycle.postponed):
            cycle.postponed.append(call)
            return
        call = _LongPurge(call.request, call.reply, call.by, call.given, parts=_parts(executor.ledger, request))
    with_leased = isinstance(request, DeleteQueue) or request.with_leased
    if not call.step(executor, cycle, with_leased=with_leased):
        cycle.postponed.append(call)
    elif isinstance(request, DeleteQueue):
        run_call(executor, call, cycle)
    else:
        cycle.answer(call.reply, MessageCount(count=call.count))


@dataclass(slots=True, eq=False)
class _LongPurge(Call):
    """A request whose queues are being emptied.

    Attributes:
        parts: what is left to do: a queue and the numbers of messages that it had when the request came.
        count: how many messages were removed.
        queue, removed: what the last part removed, unless its commit failed.
    """

    parts: Iterator[tuple[str, list[int]]] = field(kw_only=True)
    count: int = 0
    queue: str = ""
    removed: list[int] = field(default_factory=list)

    def step(self, executor: Executor, cycle: Cycle, *, with_leased: bool) -> bool:
        """Remove the next messages, and return whether none are left."""
        queue = executor.ledger.queues.get(self.queue)
        lost = [] if queue is None else [number for number in self.removed if number in queue.messages]
        if lost:  # the commit failed, and recovery has found them again
            self.count -= len(lost)
            self.removed = []
            return self._remove(executor, cycle, (self.queue, lost), with_leased=with_leased)
        part = next(self.parts, None)
        return part is None or self._remove(executor, cycle, part, with_leased=with_leased)

    def _remove(self, executor: Executor, cycle: Cycle, part: tuple[str, list[int]], *, with_leased: bool) -> bool:
        self.queue, numbers = part
        outcome = executor.execute(PurgePart(queue=self.queue, numbers=numbers, with_leased=with_leased), cycle)
        if isinstance(outcome, FairlaneError):
            return True  # another request has deleted the queue
        self.removed = outcome
        self.count += len(outcome)
        return False


def _is_short(ledger: Ledger, request: PurgeQueue | DeleteQueue) -> bool:
    known = (ledger.queues.get(name) for name in _names(request))
    if sum(len(queue.messages) for queue in known if queue is not None) <= PART:
        return True
    return isinstance(request, DeleteQueue) and deletion_fault(ledger, request) is not None


def _names(request: PurgeQueue | DeleteQueue) -> tuple[str, ...]:
    return (request.queue, dlq_of(request.queue)) if isinstance(request, DeleteQueue) else (request.queue,)


def _parts(ledger: Ledger, request: PurgeQueue | DeleteQueue) -> Iterator[tuple[str, list[int]]]:
    kept = [
        (name, queue.messages.kept_after(None))
        for name in _names(request)
        if (queue := ledger.queues.get(name)) is not None
    ]
    for name, numbers in kept:
        while part := list(islice(numbers, PART)):
            yield name, part
