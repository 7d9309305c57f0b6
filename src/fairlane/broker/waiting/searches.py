"""Lookups of messages in the journal: a bounded part of it, a little with each cycle.

The number of a message is the sequence of its enqueue, so a search begins at the right page. From there on it reads
until it finds the end of the message, at most ``SEARCH_EVENTS_MAX`` events. Each cycle reads a few pages of one search,
so that requests never wait for long; searches wait for each other, and only ``_SEARCHES_MAX`` may.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final

from fairlane.broker.requests import StatusWaiter
from fairlane.broker.views.status import check_reader, no_message, of_life, result_of
from fairlane.core.decide.room import RETRY_AFTER_MS
from fairlane.errors import FairlaneError, MessageNotFound, TooManyWaiters
from fairlane.journal import codec
from fairlane.journal.life import MessageLife
from fairlane.verbs.status import GetResult

if TYPE_CHECKING:
    from fairlane.broker.engine.engine import Engine

SEARCH_EVENTS_MAX: Final = 200_000
"""How many events after the enqueue of a message are searched for its end."""
_SEARCHES_MAX: Final = 64
_PAGES, _EVENTS = 64, 5_000
"""How much one cycle reads."""


class _Search:
    """A search for the end of one message."""

    __slots__ = ("life", "position", "watcher")

    def __init__(self, watcher: StatusWaiter) -> None:
        self.watcher = watcher
        self.life = MessageLife(watcher.number)
        self.position = watcher.number - 1

    def advance(self, engine: Engine) -> bool:
        """Read a few pages, and return whether the search is over."""
        begun, events = self.position, 0
        for stored in islice(engine.store.pages(self.position), _PAGES):
            page = codec.decode(stored.page)
            for record in page.records:
                self.life.follow(record, page.at_ms)
            self.position = stored.next_sequence - 1
            events = self.position - begun
            if not self.life.queue or self.life.ending is not None or events >= _EVENTS:
                break
        is_at_end = not events or self.position - self.watcher.number >= SEARCH_EVENTS_MAX
        return is_at_end or not self.life.queue or self.life.ending is not None


class LifeSearches:
    """The searches that are under way, the first in front."""

    def __init__(self) -> None:
        self.jobs: deque[_Search] = deque()

    def add(self, engine: Engine, watcher: StatusWaiter) -> None:
        """Search for a message that the broker does not remember.

        Raises:
            MessageNotFound: the journal does not reach back to its enqueue.
            TooManyWaiters: too many searches are waiting already.
        """
        if watcher.number < engine.ledger.trimmed:
            raise MessageNotFound(f"Message {watcher.request.id!r:.60} is not known; the journal begins after it.")
        if len(self.jobs) >= _SEARCHES_MAX:
            raise TooManyWaiters(
                f"{len(self.jobs)} journal searches are waiting already.", retry_after_ms=RETRY_AFTER_MS
            )
        self.jobs.append(_Search(watcher))

    def step(self, engine: Engine) -> None:
        """Go on with the first search."""
        search = self.jobs[0]
        try:
            if search.watcher.reply.done():
                self.jobs.popleft()
            elif search.advance(engine):
                self.jobs.popleft()
                self._answer(engine, search)
        except (FairlaneError, ValueError) as error:
            if self.jobs and self.jobs[0] is search:
                self.jobs.popleft()
            refusal = error if isinstance(error, FairlaneError) else MessageNotFound(f"Lookup failed: {error}")
            search.watcher.reply.set_exception(refusal)

    @staticmethod
    def _answer(engine: Engine, search: _Search) -> None:
        watcher, life = search.watcher, search.life
        if not life.queue:
            raise no_message(watcher.request.id)
        check_reader(watcher.reader, life.origin, life.key)
        view = of_life(engine.ledger, life)
        if view is None:
            cause = f"Message {watcher.request.id} has left the broker, and its end is not within SEARCH_EVENTS_MAX"
            raise MessageNotFound(f"{cause} ({SEARCH_EVENTS_MAX}) events after its enqueue.")
        is_result = isinstance(watcher.request, GetResult)
        watcher.reply.set_result(result_of(engine, watcher.number, view) if is_result else view)

    def dismiss(self) -> list[StatusWaiter]:
        """Forget all searches, and return those who wait for them."""
        watchers = [search.watcher for search in self.jobs]
        self.jobs.clear()
        return watchers
