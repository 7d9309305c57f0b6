"""The order in which cycles take requests, and how many of them: consumers do not wait behind floods of enqueues.

A producer can have many large enqueues in the inbox, while a consumer that leases, works and acknowledges has one
request there at a time. If a cycle took everything that has come, in order, the consumer would get one request done in
each long cycle, and the backlog would grow although the broker has time for both. So there are three rules:

- Requests of consumers are taken before the enqueues of other callers. The requests of one connection keep their order,
  since a client may count on that; callers whose connection is not known share one order. So do all requests of
  consumers, who are served in the order in which they came: one that stays behind an enqueue keeps the next ones there.
- While consumers ask, a cycle ends after a tenth of the messages that it may enqueue otherwise, so that the next
  request of a consumer is soon read. It ends after at least one enqueue, so producers always make progress.

- While consumers take messages as fast as they can, producers keep pace with them; see ``pace``.

The price is a commit for each hundred messages instead of several hundred, and only while both sides are busy.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from fairlane.broker.pace import ProducerPace
from fairlane.broker.requests import Call, Submission
from fairlane.verbs.messages import Enqueue

_SHORT_CYCLE: Final = 10
"""How much shorter cycles are while consumers ask."""
SHORT_CYCLES_MS: Final = 10
"""How long cycles stay short after a consumer has asked: it has an answer to work on, and comes back."""


def enqueued_by(submission: Submission) -> int:
    """Return how many messages a submission enqueues; 0 if it is no enqueue."""
    if type(submission) is Call and type(submission.request) is Enqueue:
        return len(submission.request.messages) or 1
    return 0


def arrange(inbox: deque[Submission]) -> bool:
    """Put requests of consumers first, and return whether there are any.

    Other threads may add to the inbox meanwhile; what they add stays behind.
    """
    first: list[Submission] = []
    rest: list[Submission] = []
    producers: set[object] = set()
    is_held_up = False
    for _ in range(len(inbox)):
        submission = inbox.popleft()
        source = getattr(submission.reply, "source", None)
        if enqueued_by(submission):
            producers.add(source)
        else:
            is_held_up = is_held_up or source in producers
            if not is_held_up:
                first.append(submission)
                continue
        rest.append(submission)
    inbox.extendleft(reversed(rest))
    inbox.extendleft(reversed(first))
    return bool(first)


class InboxOrder:
    """Arranges the inbox, and remembers whether consumers have asked while producers did.

    Attributes:
        pace: when enqueues wait for consumers.
    """

    def __init__(self) -> None:
        self._asked_ms = -SHORT_CYCLES_MS
        self.pace = ProducerPace()

    def arrange(self, inbox: deque[Submission], now_ms: int, messages_max: int) -> int:
        """Put requests of consumers first, and return how many requests the cycle takes at most."""
        if arrange(inbox):
            self._asked_ms = now_ms
            self.pace.is_kept = True
        if now_ms >= self._asked_ms + SHORT_CYCLES_MS:
            return len(inbox)
        lead_max = max(1, messages_max // _SHORT_CYCLE)
        if not self.pace.waits(now_ms, lead_max=lead_max):
            return _fitting(inbox, lead_max)
        count = _fitting(inbox, 0)
        self.pace.left = len(inbox) - count
        return count

    def is_waiting(self, inbox: deque[Submission], now_ms: int) -> bool:
        """Return whether everything in the inbox waits for consumers."""
        return now_ms < self.pace.until_ms and len(inbox) <= self.pace.left


def _fitting(inbox: deque[Submission], messages_max: int) -> int:
    """Return how many requests come before the first enqueue that is too many; none is too many by itself."""
    enqueued = 0
    for at in range(len(inbox)):
        count = enqueued_by(inbox[at])
        if count and enqueued >= messages_max:
            return at
        enqueued += count
    return len(inbox)
