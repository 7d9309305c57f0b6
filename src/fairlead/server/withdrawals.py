"""Leases that a node asks another for, and may have to take back without having seen the answer.

Somebody hangs up, or another partition of a queue was quicker: then the node gives up its request. The other one sees
that the connection is gone, but it may have sent its answer just before. So each such request has a name, and is taken
back by that name afterwards: what was leased under it, or will be, goes back to its queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from fairlead.model.message import Receipt
from fairlead.wire.verbs import Leased

ANSWERED_S: Final = 5.0
"""So long is remembered what was leased: a node that has given up says so at once."""
WITHDRAWN_S: Final = 120.0
"""So long is remembered that a lease was taken back: longer than any waits."""
T = TypeVar("T")

GiveBack = Callable[[str, list[Receipt]], None]


class Withdrawals:
    """The leases that other nodes have asked for lately, by name."""

    def __init__(self, give_back: GiveBack, *, monotonic: Callable[[], float]) -> None:
        """Remember nothing yet.

        Args:
            give_back: lets messages of a queue go back.
            monotonic: tells the time.
        """
        self._give_back = give_back
        self._answered: _Remembered[tuple[str, list[Receipt]]] = _Remembered(ANSWERED_S, monotonic)
        self._withdrawn: _Remembered[None] = _Remembered(WITHDRAWN_S, monotonic)

    def leased(self, name: str, queue: str, leased: Leased) -> Leased:
        """Take note of what was leased, and return it; nothing if it has been taken back."""
        if not leased.deliveries:
            return leased
        receipts = [Receipt(delivery.id, delivery.token) for delivery in leased.deliveries]
        if name in self._withdrawn.by_name:
            self._give_back(queue, receipts)
            return Leased(deliveries=[])
        self._answered.note(name, (queue, receipts))
        return leased

    def withdraw(self, name: str) -> None:
        """Take back what was leased under a name, or will be."""
        known = self._answered.by_name.pop(name, None)
        if known is not None:
            self._give_back(*known)
        self._withdrawn.note(name, None)


class _Remembered(Generic[T]):
    """Something by name, that is forgotten after a while."""

    __slots__ = ("_for_s", "_monotonic", "_since", "by_name")

    def __init__(self, for_s: float, monotonic: Callable[[], float]) -> None:
        self._for_s = for_s
        self._monotonic = monotonic
        self._since: deque[tuple[float, str]] = deque()
        self.by_name: dict[str, T] = {}

    def note(self, name: str, what: T) -> None:
        """Remember something under a name that is used once."""
        now_s = self._monotonic()
        while self._since and self._since[0][0] < now_s - self._for_s:
            self.by_name.pop(self._since.popleft()[1], None)
        self._since.append((now_s, name))
        self.by_name[name] = what
