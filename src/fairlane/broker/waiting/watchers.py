"""Watchers: callers that ask for the status of a message, and wait for it to change without polling.

A watcher is answered after a commit, from what is durable then. If the answer is not what it waits for, it is kept
under the number of its message, and looked at again when a record names that number. While no caller waits this costs
nothing.

A message that ends and is not remembered is gone from the ledger. A watcher that waits for it is still told, because
the record says how it ended. One that asks later is answered from the journal (``searches``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from fairlane.broker.cycle import Cycle
from fairlane.broker.requests import StatusWaiter
from fairlane.broker.views.status import ENDED, no_message, result_of, status_of
from fairlane.broker.waiting.searches import LifeSearches
from fairlane.core.decide.room import RETRY_AFTER_MS
from fairlane.errors import FairlaneError, TooManyWaiters
from fairlane.journal.life import ENDING_OF
from fairlane.journal.records import Acked, AnyRecord, OfMessages, QueueRemoved, Removed
from fairlane.model.status import Ending, StatusView
from fairlane.scheduler.timers import Timers
from fairlane.verbs.status import GetResult
from fairlane.verbs.verb import Reply

if TYPE_CHECKING:
    from fairlane.broker.engine.engine import Engine


class StatusWatchers:
    """Everyone who waits for a message to change, by its number.

    Attributes:
        waiting: those who wait, by the number of their message.
        limits: when the patience of a watcher ends.
        searches: lookups in the journal that are under way.
    """

    def __init__(self, *, waiters_max: int) -> None:
        self._waiters_max = waiters_max
        self.waiting: dict[int, list[StatusWaiter]] = {}
        self._count = 0
        self._is_doubtful = False
        self.limits: Timers[StatusWaiter] = Timers(
            lambda at_ms, watcher: not watcher.is_over and watcher.until_ms == at_ms
        )
        self.searches = LifeSearches()

    def tell(self, engine: Engine, cycle: Cycle) -> None:
        """Answer after a commit: those who waited for it, those who have just asked, and what was looked up."""
        if self._count:
            self.notice(engine, cycle.records, cycle.now_ms)
        if cycle.watchers:
            self.answer(engine, cycle.watchers)
        if self.searches.jobs:
            self.searches.step(engine)

    # ------------------------------------------------------------------------------------------------------------ asked

    def answer(self, engine: Engine, asked: Iterable[StatusWaiter]) -> None:
        """Answer callers that have just asked, or keep them waiting."""
        for watcher in asked:
            if watcher.reply.done():
                continue
            try:
                self._answer(engine, watcher)
            except FairlaneError as error:
                watcher.reply.set_exception(error)

    def _answer(self, engine: Engine, watcher: StatusWaiter) -> None:
        request = watcher.request
        number = engine.ledger.ids.number_of(request.id)
        if number is None or not 0 < number < engine.ledger.next_sequence:
            raise no_message(request.id)
        watcher.number = number
        view = watcher.view = status_of(engine, number, watcher.reader)
        if view is None:
            self.searches.add(engine, watcher)
        elif not request.wait_ms or self._is_wanted(watcher, view):
            self._give(engine, watcher, view)
        elif self._count >= self._waiters_max:
            cause = f"{self._count} callers are waiting for messages to change; waiters_max is {self._waiters_max}."
            raise TooManyWaiters(cause, retry_after_ms=RETRY_AFTER_MS)
        else:
            watcher.until_ms = engine.now_ms() + request.wait_ms
            self.limits.push(watcher.until_ms, watcher)
            self.waiting.setdefault(number, []).append(watcher)
            self._count += 1

    @staticmethod
    def _is_wanted(watcher: StatusWaiter, view: StatusView) -> bool:
        """Return whether a status is what a watcher waits for."""
        request = watcher.request
        if isinstance(request, GetResult) or request.after is None:
            return view.is_final
        return view.version != request.after

    @staticmethod
    def _give(engine: Engine, watcher: StatusWaiter, view: StatusView) -> None:
        if isinstance(watcher.request, GetResult):
            watcher.reply.set_result(result_of(engine, watcher.number, view))
        else:
            watcher.reply.set_result(view)

    # ---------------------------------------------------------------------------------------------------------- changes

    def notice(self, engine: Engine, records: Sequence[AnyRecord], now_ms: int) -> None:
        """Answer those who wait for messages that durable records are about, and those whose patience has ended."""
        touched: dict[int, Ending | None] = dict.fromkeys(self.waiting) if self._is_doubtful else {}
        self._is_doubtful = False
        for record in records:
            if isinstance(record, OfMessages) and not self.waiting.keys().isdisjoint(record.numbers):
                touched |= dict.fromkeys(self.waiting.keys() & set(record.numbers), _ending_of(record))
            elif isinstance(record, QueueRemoved):
                touched = dict.fromkeys(self.waiting) | touched
        for number, ending in touched.items():
            self._look(engine, number, ending)
        if self.limits.entries and self.limits.entries[0][0] <= now_ms:
            for watcher in self.limits.pop_due(now_ms):
                self._time_out(engine, watcher)

    def doubt(self) -> None:
        """Look at all messages again with the next commit: what the records of a failed one said is not known."""
        self._is_doubtful = True

    def changed(self, engine: Engine, number: int) -> None:
        """Answer those who wait for a message to change, because something about it has that no record says."""
        if number in self.waiting:
            self._look(engine, number, None)

    def _look(self, engine: Engine, number: int, ending: Ending | None) -> None:
        """Look at a message that may have changed. If it is gone and not remembered, it has ended in this way.

        If it is not known how it has ended, the journal is searched for that.
        """
        for watcher in self.waiting.pop(number):
            self._count -= 1
            if watcher.is_over or watcher.reply.done():
                continue
            try:
                view = status_of(engine, number, watcher.reader)
                if view is None and ending is not None and watcher.view is not None:
                    view = _ended(watcher.view, ending, engine.now_ms())
                if view is None:
                    watcher.is_over = True
                    self.searches.add(engine, watcher)
                elif not self._is_wanted(watcher, view):
                    watcher.view = view
                    self.waiting.setdefault(number, []).append(watcher)
                    self._count += 1
                else:
                    watcher.is_over = True
                    self._give(engine, watcher, view)
            except FairlaneError as error:
                watcher.is_over = True
                watcher.reply.set_exception(error)

    def _time_out(self, engine: Engine, watcher: StatusWaiter) -> None:
        self._forget(watcher)
        if watcher.reply.done():
            return
        try:
            view = status_of(engine, watcher.number, watcher.reader) or watcher.view
            if view is not None:
                self._give(engine, watcher, view)
        except FairlaneError as error:
            watcher.reply.set_exception(error)

    def _forget(self, watcher: StatusWaiter) -> None:
        watcher.is_over = True
        waiting = self.waiting.get(watcher.number, [])
        if watcher in waiting:
            waiting.remove(watcher)
            self._count -= 1
        if not waiting:
            self.waiting.pop(watcher.number, None)

    def dismiss(self) -> list[Reply]:
        """Forget everyone who waits, and return their replies."""
        waiting = [watcher for watchers in self.waiting.values() for watcher in watchers]
        waiting += self.searches.dismiss()
        for watcher in waiting:
            watcher.is_over = True
        self.waiting.clear()
        self._count = 0
        return [watcher.reply for watcher in waiting]


def _ending_of(record: OfMessages) -> Ending | None:
    """Return how the messages of a record have ended; None if they have not."""
    if isinstance(record, Acked):
        return "done"
    return ENDING_OF[record.reason] if isinstance(record, Removed) else None


def _ended(view: StatusView, ending: Ending, now_ms: int) -> StatusView:
    """Return the status of a message that has ended and is not remembered, from the last one that was known."""
    return msgspec.structs.replace(
        view,
        status=ending,
        finished_ms=now_ms,
        reason=None,
        words=None,
        starts_ms=None,
        owner=None,
        since_ms=None,
        expires_ms=None,
        progress=None,
        version=ENDED,
    )
