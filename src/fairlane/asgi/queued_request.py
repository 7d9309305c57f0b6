"""A request in the queue, and what its application can read and report about it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fairlane.asgi.protocol import Scope
from fairlane.errors import FairlaneError, InvalidArgument
from fairlane.scheduler import Item, Key, Priority

_SCOPE_ENTRY = "fairlane.request"


class QueuedRequest(Item):
    """A request that waits for its turn, has a slot, or was refused.

    Attributes:
        wait_max_ms: how long it may wait; None for no limit.
        is_client_limit: whether that limit is the client's own, rather than the service's.
        is_granted: whether it has been granted a slot.
        error: why it was refused, if it was.
        arrived_ms: when it arrived.
        waited_ms: how long it waited until its application was called.
        true_cost: its cost as the application reported it; None if it did not.
    """

    __slots__ = (
        "_turn",
        "arrived_ms",
        "error",
        "is_client_limit",
        "is_granted",
        "true_cost",
        "wait_max_ms",
        "waited_ms",
    )

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
        self.arrived_ms = now_ms
        self.waited_ms = 0
        self.true_cost: int | None = None
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


def attach(scope: Scope, request: QueuedRequest) -> None:
    """Make a request available to its application."""
    scope[_SCOPE_ENTRY] = request


def report_cost(scope: Scope, cost: int) -> bool:
    """Report what a request truly cost, before its application returns. The last report counts.

    When the request finishes, the difference to its estimated cost is charged or refunded to its key. Return False, and
    change nothing, if the request did not pass a ``FairQueue``, so that handlers also work without one.

    Args:
        scope: the ASGI scope of the request; ``request.scope`` in Starlette and FastAPI.
        cost: the true cost, an integer of at least 0.

    Raises:
        InvalidArgument: the cost is not such an integer.
    """
    if type(cost) is not int or cost < 0:
        raise InvalidArgument(f"The cost of a request must be an integer of at least 0, got {cost!r}.")
    request: QueuedRequest | None = scope.get(_SCOPE_ENTRY)
    if request is not None:
        request.true_cost = cost
    return request is not None


def queue_time_ms(scope: Scope) -> int | None:
    """Return how long a request waited for its turn; None if it did not pass a ``FairQueue``."""
    request: QueuedRequest | None = scope.get(_SCOPE_ENTRY)
    return None if request is None else request.waited_ms
