"""Leases that a node asks another for, and may have to take back without having seen the answer.

Somebody hangs up, or another partition of a queue was quicker: then a node has no use for the answer of another, which
may be on its way already. So each such request has a name, and is taken back by it, with a nack that names no messages:
what waits ends, and what was leased under the name goes back to its queue.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, Generic, TypeVar

from fairlane.gateway.leases import leased_unless
from fairlane.model.message import Receipt
from fairlane.verbs.leases import LeasedMessages

ANSWERED_S: Final = 5.0
"""So long is remembered what was leased: a node that has given up says so at once."""
WITHDRAWN_S: Final = 120.0
"""So long is remembered that a lease was taken back: longer than any waits."""
T = TypeVar("T")

GiveBack = Callable[[str, list[Receipt]], None]


class Withdrawals:
    """The leases that other nodes have asked for lately, by name."""

    def __init__(self, *, monotonic: Callable[[], float]) -> None:
        """Remember nothing yet.

        Args:
            monotonic: tells the time.
        """
        self._answered: _Remembered[tuple[str, list[Receipt]]] = _Remembered(ANSWERED_S, monotonic)
        self._waiting: dict[str, asyncio.Event] = {}
        self._withdrawn: _Remembered[None] = _Remembered(WITHDRAWN_S, monotonic)

    async def leased(
        self, name: str, queue: str, leasing: Coroutine[Any, Any, Any], *, give_back: GiveBack
    ) -> LeasedMessages:
        """Return what is leased under a name; nothing as soon as it is taken back.

        Args:
            name: the name.
            queue: where it is leased from.
            leasing: leases.
            give_back: lets messages of a queue go back.

        Raises:
            FairlaneError: it was refused.
        """
        if name in self._withdrawn.by_name:
            leasing.close()
            return LeasedMessages(deliveries=[])
        ending = self._waiting[name] = asyncio.Event()
        try:
            leased = await leased_unless(lambda late: give_back(queue, _receipts(late)), leasing, _set(ending))
        finally:
            del self._waiting[name]
        if leased is None:
            return LeasedMessages(deliveries=[])
        if ending.is_set():  # just now, when what was leased had already won
            give_back(queue, _receipts(leased))
            return LeasedMessages(deliveries=[])
        if leased.deliveries:
            self._answered.note(name, (queue, _receipts(leased)))
        return leased

    def withdraw(self, name: str, *, give_back: GiveBack) -> None:
        """Take back what was leased under a name, or will be."""
        self._withdrawn.note(name, None)
        known = self._answered.by_name.pop(name, None)
        if known is not None:
            give_back(*known)
        if name in self._waiting:
            self._waiting[name].set()


async def _set(event: asyncio.Event) -> None:
    await event.wait()


def _receipts(leased: LeasedMessages) -> list[Receipt]:
    return [Receipt(delivery.id, delivery.token) for delivery in leased.deliveries]


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
