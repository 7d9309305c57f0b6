"""Where the bodies of messages are, and where in the journal those messages are described."""

from __future__ import annotations

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
