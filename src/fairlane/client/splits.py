"""What a client knows about split queues, and for how long it relies on that.

A node tells a client that follows how a queue is split, and the client then asks the partitions. A split changes
rarely, and a client that knows an old one loses nothing, so it is relied on for a while. After that the next call still
uses it, so that no message overtakes those sent before, while the client asks a node in the background.
"""

from __future__ import annotations

from typing import Final

from fairlane.errors import QueueSplit
from fairlane.model.partitions import Split
from fairlane.wire.spread import asking_order

FRESH_S: Final = 2.0
"""How long a split is used without asking again."""
KEPT_S: Final = 6.0
"""After this time a split is not used any more."""


class Known:
    """How a queue is split.

    Attributes:
        split: what a node said.
        is_asked: whether a node is being asked again.
    """

    __slots__ = ("_doubtful", "_since_s", "is_asked", "split")

    def __init__(self, split: Split, since_s: float) -> None:
        self.split = split
        self._since_s = since_s
        self._doubtful: frozenset[int] = frozenset()
        self.is_asked = False

    def is_due(self, now_s: float) -> bool:
        """Return whether it is time to ask again."""
        return now_s - self._since_s >= FRESH_S and not self.is_asked

    def is_over(self, now_s: float) -> bool:
        """Return whether it is too old to be used."""
        return now_s - self._since_s >= KEPT_S

    def renew(self, split: Split, now_s: float) -> None:
        """Replace it with what a node said again."""
        self.split, self._since_s, self.is_asked = split, now_s, False

    def order(self, turn: int) -> list[int]:
        """Return the order in which to ask the partitions: those that did not answer last time come last."""
        return sorted(asking_order(self.split.made, turn), key=self._doubtful.__contains__)

    def doubt(self, at: int) -> None:
        """Ask a partition last from now on."""
        self._doubtful |= {at}

    def trust(self, at: int) -> None:
        """Ask a partition in its normal order again."""
        if self._doubtful:
            self._doubtful -= {at}


class Splits:
    """The queues that are known to be split, by name."""

    def __init__(self) -> None:
        self._known: dict[str, Known] = {}

    def __bool__(self) -> bool:
        return bool(self._known)

    def of(self, queue: str, now_s: float) -> Known | None:
        """Return how a queue is split; None if that is not known."""
        known = self._known.get(queue)
        if known is not None and known.is_over(now_s):
            del self._known[queue]
            return None
        return known

    def note(self, queue: str, error: QueueSplit, now_s: float) -> Known:
        """Remember what a node has said."""
        known, split = self._known.get(queue), split_of(error)
        if known is None:
            known = self._known[queue] = Known(split, now_s)
        else:
            known.renew(split, now_s)
        return known

    def forget(self, queue: str) -> None:
        """Forget how a queue is split."""
        self._known.pop(queue, None)


def split_of(error: QueueSplit) -> Split:
    """Return how a queue is split, from the error that says so."""
    return Split(partitions=error.partitions, made=error.made, by_message=error.by_message)
