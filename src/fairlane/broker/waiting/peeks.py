"""Peeks: lists of the messages in a queue, filtered if wished, a part with each cycle if there are very many.

Most lists are short and complete at once. A filter that matches few of millions of messages, or a long list, goes on
in later cycles, so that no other request waits for it. It then looks through the messages that the queue had when the
list was begun, and skips those that are gone.

Only the first list of each queue goes on, and queues take turns. So what lists remember of a queue is bounded by the
queue, and a caller with many of them delays its own queue only.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from fairlane.broker.views.queues import cursor, known, status_of, views_of
from fairlane.core.dead_letters import admits, died_at
from fairlane.core.decide.room import RETRY_AFTER_MS
from fairlane.core.ledger import Message, Queue
from fairlane.errors import FairlaneError, TooManyWaiters
from fairlane.model.message import MessageView
from fairlane.verbs.messages import MessageList, Peek
from fairlane.verbs.verb import Reply

if TYPE_CHECKING:
    from fairlane.broker.engine.engine import Engine

SCAN: Final = 2_000
"""How many messages a cycle looks at."""
FOUND: Final = 500
"""How many messages a cycle adds to a list."""
_WAITING_MAX: Final = 16


class PeekSearch:
    """A list that is being made."""

    def __init__(self, request: Peek) -> None:
        self.request = request
        self._found: list[MessageView] = []
        self._bytes_left = 0
        self._last: int | None = None
        self._numbers: Iterator[int] | None = None
        """What is left to look at; None until the first part is done."""
        self._above = 0
        """Numbers up to this one are not meant: those before a cursor whose message is gone."""

    @property
    def answer(self) -> MessageList:
        """The list."""
        return MessageList(messages=self._found)

    def advance(self, engine: Engine) -> bool:
        """Look at the next messages, and return whether the list is complete.

        Raises:
            QueueNotFound, InvalidArgument: there is no such queue, or the cursor is none.
        """
        queue = known(engine.ledger, self.request.queue)
        if self._numbers is not None:
            return self._look(engine, queue, self._numbers)
        is_over = self._begin(engine, queue)
        if not is_over and self._numbers is None:
            self._numbers = queue.messages.kept_after(self._last)
        return is_over

    def _begin(self, engine: Engine, queue: Queue) -> bool:
        request = self.request
        after = self._last = None if request.after is None else cursor(queue, request.after)
        if after is not None and after not in queue.messages:
            self._above = after
        self._bytes_left = engine.settings.answer_bytes_max
        if request.wanted.ids is None:
            return self._look(engine, queue, queue.messages.after(after))
        self._numbers = iter(_named(queue, request.wanted.ids, after))
        return self._look(engine, queue, self._numbers)

    def _look(self, engine: Engine, queue: Queue, numbers: Iterator[int]) -> bool:
        request, now_ms, messages = self.request, engine.now_ms(), queue.messages
        found: list[Message] = []
        most, is_over = min(FOUND, request.count - len(self._found)), False
        for _ in range(SCAN):
            number = next(numbers, None)
            if number is None:
                is_over = True
                break
            self._last = number
            message = messages.get(number) if number > self._above else None
            if message is None or not self._is_wanted(message, now_ms):
                continue
            found.append(message)
            self._bytes_left -= message.delivered_bytes if request.with_body else 0
            if len(found) >= most or self._bytes_left <= 0:
                break
        self._found += views_of(engine.bodies, found, with_body=request.with_body, now_ms=now_ms)
        return is_over or len(self._found) >= request.count or self._bytes_left <= 0

    def _is_wanted(self, message: Message, now_ms: int) -> bool:
        status = self.request.status
        return (status is None or status_of(message, now_ms) == status) and admits(self.request.wanted, message, now_ms)


def _named(queue: Queue, ids: Iterable[str], after: int | None) -> list[int]:
    """Return the numbers of named messages in a queue, in the order in which they came to it."""
    numbers = {number for each in ids if (number := queue.ids.number_of(each)) is not None}
    named = sorted((died_at(message), number) for number in numbers if (message := queue.messages.get(number)))
    if after is None:
        return [number for _, number in named]
    last = queue.messages.get(after)
    begin = after if last is None else died_at(last)
    return [number for at, number in named if at > begin]


class Peeks:
    """The lists that go on in later cycles, by queue; the first of each queue is being made, the others wait for it."""

    def __init__(self) -> None:
        self.jobs: OrderedDict[str, deque[tuple[PeekSearch, Reply]]] = OrderedDict()

    def add(self, search: PeekSearch, reply: Reply) -> None:
        """Go on with a list that is not complete. Refuse it if too many of its queue are waiting already.

        A list that has to wait is begun again, so that it keeps nothing meanwhile.
        """
        jobs = self.jobs.setdefault(search.request.queue, deque())
        if len(jobs) >= _WAITING_MAX:
            cause = f"{len(jobs)} searches through queue {search.request.queue!r} wait."
            reply.set_exception(TooManyWaiters(cause, retry_after_ms=RETRY_AFTER_MS))
            return
        jobs.append((PeekSearch(search.request) if jobs else search, reply))

    def step(self, engine: Engine) -> None:
        """Go on with the list whose turn it is."""
        queue, jobs = next(iter(self.jobs.items()))
        search, reply = jobs[0]
        try:
            is_over = reply.done() or search.advance(engine)
            if is_over and not reply.done():
                reply.set_result(search.answer)
        except FairlaneError as error:
            is_over = True
            reply.set_exception(error)
        except Exception as error:  # noqa: BLE001 - a bug of ours; looking changes nothing, so all goes on
            is_over = True
            reply.set_exception(engine.internal_error(error))
        if is_over:
            jobs.popleft()
        if jobs:
            self.jobs.move_to_end(queue)
        else:
            del self.jobs[queue]

    def dismiss(self) -> list[Reply]:
        """Forget all lists, and return the replies of their callers."""
        replies = [reply for jobs in self.jobs.values() for _, reply in jobs]
        self.jobs.clear()
        return replies
