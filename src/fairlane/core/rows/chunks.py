"""Where the bodies of messages are, and where in the journal those messages are described.

A batch has a chunk for some tens of messages. A message that is enqueued by itself has a chunk of its own, and a home
for each of those would take four times the memory of its row. So such chunks *share* a home with others that were
enqueued to the queue shortly before: see ``SharedHome``. What shares a home is described where the first of it was, or
later; so the home is never too late, only a few messages early.

Which chunks share a home follows from the records since the latest baseline, so that a broker that recovers there finds
the same homes: a baseline ends sharing with earlier chunks, and whatever is carried has a new home.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable
from typing import ClassVar

from fairlane.journal.bodies import CHUNK_COUNT_MAX
from fairlane.journal.records import MessageImage
from fairlane.model.names import DLQ_SUFFIX


class ChunkHome:
    """A chunk of bodies, and where in the journal its messages are described.

    Its messages were enqueued to one queue. They are there, in its dead-letter queue, or where a shared dead-letter
    queue or a redrive has taken them: in the ``others`` or in their dead-letter queues.

    Attributes:
        correlation_ids: the correlation ids that its messages were given, from the first on, with None for those
            without; None if no message has one. They are kept here so that messages without one cost nothing.
        head_bytes: what its messages have besides their payloads, headers mostly: no message has more bytes of it.
    """

    __slots__ = ("correlation_ids", "head_bytes", "home", "live", "number", "others", "queue")
    is_shared: ClassVar[bool] = False

    def __init__(
        self,
        queue: str,
        number: int,
        home: int,
        live: int,
        correlation_ids: list[str | None] | None = None,
        head_bytes: int = 0,
    ) -> None:
        self.queue = queue.removesuffix(DLQ_SUFFIX)
        self.number = number
        self.home = home
        self.live = live
        self.correlation_ids = correlation_ids
        self.head_bytes = head_bytes
        self.others: tuple[str, ...] = ()

    def note(self, queue: str) -> None:
        """Note that a message of the chunk is in a queue."""
        name = queue.removesuffix(DLQ_SUFFIX)
        if name != self.queue and name not in self.others:
            self.others += (name,)


class SharedHome(ChunkHome):
    """A home of chunks of one message each, which have the numbers of their messages; ``number`` is that of the first.

    All are among ``CHUNK_COUNT_MAX`` consecutive numbers, as the messages of any home. None has a correlation id, nor
    anything besides its payload.
    """

    __slots__ = ()
    is_shared: ClassVar[bool] = True


class ChunkHomes(OrderedDict[int, ChunkHome]):
    """The homes of all chunks by their numbers, in the order in which they are described in the journal."""

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[str, SharedHome] = {}

    def enter_single(self, queue: str, number: int) -> SharedHome:
        """Return the home of a new message with a chunk of its own."""
        home = self._open.get(queue)
        if home is None or not home.live or number - home.number >= CHUNK_COUNT_MAX:
            home = self._open[queue] = self[number] = SharedHome(queue, number, number, 0)
        home.live += 1
        return home

    def end_sharing(self) -> None:
        """Open a new home for the next chunk of each queue: it shares none with those that are here."""
        self._open.clear()

    def remove(self, home: ChunkHome) -> None:
        """Remove a home whose messages have moved to others."""
        if self.get(home.number) is home:
            del self[home.number]

    def move_to_later(self, moved: Iterable[ChunkHome]) -> None:
        """Put homes behind all others, in this order."""
        for home in moved:
            self[home.number] = home
            self.move_to_end(home.number)


def homes_of_carried(homes: ChunkHomes, images: Iterable[MessageImage], home: int) -> list[ChunkHome]:
    """Return the later homes of carried messages, of which ``homes`` knows those that were homes before.

    A chunk of which one message is left at its beginning shares a home from now on.
    """
    counts = Counter(image.chunk for image in images)
    moved: dict[int, ChunkHome] = {}
    shared: dict[str, SharedHome] = {}
    found: list[ChunkHome] = []
    for image in images:
        number = image.chunk
        is_single = number == image.number and counts[number] == 1
        if is_single and image.correlation_id is None and not image.head_bytes:
            chunk: ChunkHome | None = shared.get(image.queue)
            if chunk is None or not 0 <= number - chunk.number < CHUNK_COUNT_MAX:
                chunk = shared[image.queue] = SharedHome(image.queue, number, home, 0)
        else:
            chunk = moved.get(number)
            if chunk is None:
                chunk = moved[number] = homes.get(number) or ChunkHome(image.queue, number, home, 0)
                chunk.home, chunk.live, chunk.head_bytes = home, 0, image.head_bytes
            chunk.note(image.queue)
        chunk.live += 1
        found.append(chunk)
    return found
