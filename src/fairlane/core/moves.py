"""What happens to queues without leaving a record but matters to a replay: fruitless requests, and time that passed.

Each lease tells what moved its queue's lanes since the lease before, see ``Picking.moves``. Queues that share a
throttle influence each other: a message that becomes due in one queue, by time alone, changes what is left for another.
So they note their moves in one list, in order, and whichever of them leases next reports them all.
"""

from __future__ import annotations

from typing import Protocol

Move = tuple[int, int, int, str]
"""The sequence that came next, the instant, how many messages were requested in vain or 0, and the queue."""

_MOVES_MAX = 10_000
"""The number of moves that one lease tells. A replay is exact up to there."""


class Moved(Protocol):
    """A queue that notes its moves."""

    moves: Moves


class Moves:
    """The moves of a queue, or of all queues that share throttles, since their last lease.

    Attributes:
        entries: the moves, in order.
    """

    __slots__ = ("_queues", "entries")

    def __init__(self, queue: Moved) -> None:
        self._queues = [queue]
        self.entries: list[Move] = []

    def note(self, sequence: int, now_ms: int, asked: int, queue: str) -> None:
        """Remember something that moved parked lanes."""
        if len(self.entries) < _MOVES_MAX:
            self.entries.append((sequence, now_ms, asked, queue))

    @property
    def are_shared(self) -> bool:
        """Whether other queues share throttles with the queue that notes them here."""
        return len(self._queues) > 1

    def told_by(self, queue: str) -> list[Move]:
        """Return the moves for the lease of a queue, whose own name is left out, and forget them."""
        entries, self.entries = self.entries, []
        return [(sequence, at_ms, asked, "" if name == queue else name) for sequence, at_ms, asked, name in entries]

    def leave(self, queue: Moved) -> None:
        """Forget a queue that is gone; what it noted may still matter to the others."""
        self._queues.remove(queue)

    def join(self, other: Moves) -> None:
        """Note the moves of other queues here, too, from now on."""
        if other is self:
            return
        self.entries = sorted(self.entries + other.entries, key=lambda move: move[:2])
        self._queues += other._queues
        for queue in other._queues:
            queue.moves = self
