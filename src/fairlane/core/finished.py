"""Messages that have ended, remembered for a while: how, and with which result.

A message is remembered for its ``result_ttl_ms``, by the message or by its queue's policy, and not at all if that is 0.
One that is cancelled while a consumer has it is remembered at least until its lease would have ended, so that the
consumer learns what happened. Results are bodies in the store; here is only where they are.

Ends are forgotten by a record, ``ResultsSwept``, which says up to which instant. It is written when the first is due,
and earlier if they are more than the broker may keep: then those go first whose time ends first.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heappop, heappush
from typing import Final

from fairlane.journal.records import FinishedImage
from fairlane.model.message import NEVER_MS, Key
from fairlane.model.status import Ending

_SWEEP_MS: Final = 1_000
"""Ends are swept once in a second at most. Until then those whose time is over are no longer shown."""


class FinishedMessage:
    """A message that has ended.

    Attributes:
        finished_ms: when it ended; ``until_ms`` is until when that is remembered.
        body: the number under which the store has the result, and ``size`` its bytes; 0 if there is none.
        note: why it was cancelled, if the caller said so.
        home: the sequence of the record that describes it.
    """

    __slots__ = (
        *("attempts", "body", "ending", "enqueued_ms", "finished_ms", "home", "key", "note", "number", "queue"),
        *("size", "until_ms"),
    )

    def __init__(self, image: FinishedImage, home: int) -> None:
        self.number = image.number
        self.queue = image.queue
        self.key: Key = image.key
        self.ending: Ending = image.ending
        self.enqueued_ms = image.enqueued_ms
        self.finished_ms = image.finished_ms
        self.until_ms = image.until_ms
        self.attempts = image.attempts
        self.body = image.body
        self.size = image.size
        self.note = image.note
        self.home = home

    def image(self) -> FinishedImage:
        """Return it as a record has it."""
        return FinishedImage(
            self.number,
            self.queue,
            self.key,
            self.ending,
            self.enqueued_ms,
            self.finished_ms,
            self.until_ms,
            self.attempts,
            self.body,
            self.size,
            self.note,
        )


class FinishedMessages:
    """All messages that have ended and are remembered.

    Attributes:
        known: the messages by number, in the order of their homes.
        size: the bytes of all results.
    """

    def __init__(self) -> None:
        self.known: OrderedDict[int, FinishedMessage] = OrderedDict()
        self.size = 0
        self._ends: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self.known)

    def get(self, number: int | None, now_ms: int) -> FinishedMessage | None:
        """Return a message that has ended, if its time is not over."""
        found = None if number is None else self.known.get(number)
        return None if found is None or found.until_ms <= now_ms else found

    def add(self, image: FinishedImage, home: int) -> None:
        """Remember a message."""
        self.known[image.number] = FinishedMessage(image, home)
        self.size += image.size
        heappush(self._ends, (image.until_ms, image.number))

    def carry(self, image: FinishedImage, home: int) -> None:
        """Give a message a later home, or restore it if recovery began after its end."""
        known = self.known.get(image.number)
        if known is None:
            self.add(image, home)
            return
        known.home = home
        self.known.move_to_end(image.number)

    def sweep(self, through_ms: int) -> list[int]:
        """Forget the messages whose time ends at an instant or before, and return the bodies of their results."""
        bodies, ends = [], self._ends
        while ends and ends[0][0] <= through_ms:
            found = self.known.pop(heappop(ends)[1])
            self.size -= found.size
            if found.body:
                bodies.append(found.body)
        return bodies

    @property
    def due_ms(self) -> int:
        """When the next sweep is due."""
        return -(-self._ends[0][0] // _SWEEP_MS) * _SWEEP_MS if self._ends else NEVER_MS

    def excess_ms(self, *, count_max: int, bytes_max: int) -> int | None:
        """Return up to which instant to sweep so that no more are kept than allowed; None if they are not too many.

        A tenth more goes than has to, so that a broker at its limit does not sweep with every commit.
        """
        count, size = len(self.known), self.size
        if count <= count_max and size <= bytes_max:
            return None
        through_ms = 0
        for until_ms, number in sorted(self._ends):
            if count <= count_max * 0.9 and size <= bytes_max * 0.9:
                break
            count -= 1
            size -= self.known[number].size
            through_ms = until_ms
        return through_ms

    @property
    def oldest_home(self) -> int | None:
        """The sequence of the oldest record that describes one of them."""
        return next(iter(self.known.values())).home if self.known else None
