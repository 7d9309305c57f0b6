"""A request in the queue."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fairlane.errors import FairlaneError
from fairlane.scheduler import Item, Key, Priority


class QueuedRequest(Item):
    """A request that waits for its turn, has a slot, or was refused.

    Attributes:
        wait_max_ms: how long it may wait; None for no limit.
        is_client_limit: whether that limit is the client's own, rather than the service's.
        is_granted: whether it has been granted a slot.
        error: why it was refused, if it was.
    """

    __slots__ = ("_turn", "error", "is_client_limit", "is_granted", "wait_max_ms")

    def __init__(
        self,
        key: Key,
        *,
        cost: int,
        priority: Priority,
        throttles: Sequence[str],
        wait_max_ms: int | None,
        is_client_limit: bool,
        now_ms: int,
    ) -> None:
        deadline_ms = None if wait_max_ms is None else now_ms + wait_max_ms
        super().__init__(key, cost=cost, priority=priority, throttles=throttles, deadline_ms=deadline_ms)
        self.wait_max_ms = wait_max_ms
        self.is_client_limit = is_client_limit
        self.is_granted = False
        self.error: FairlaneError | None = None
        self._turn: asyncio.Future[None] | None = None

    @property
    def is_decided(self) -> bool:
        """Whether it has a slot or was refused."""
        return self.is_granted or self.error is not None

    def turn(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        """Return the future that is done once the request is decided. Most requests never need one."""
        if self._turn is None:
            self._turn = loop.create_future()
            if self.is_decided:
                self._turn.set_result(None)
        return self._turn

    def grant(self) -> None:
        """Grant it a slot."""
        self.is_granted = True
        self._wake()

    def refuse(self, error: FairlaneError) -> None:
        """Refuse it with an error."""
        self.error = error
        self._wake()

    def _wake(self) -> None:
        if self._turn is not None:
            self._turn.set_result(None)
