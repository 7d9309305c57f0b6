"""An item of work with a payload, as the faces hand it out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from fairlead.scheduler.item import Item, Key, Priority

P = TypeVar("P")


class Task(Item, Generic[P]):
    """A piece of work, from ``enqueue`` to ``done``. Keep it to cancel it or to ask why it waits.

    Attributes:
        payload: the work itself, whatever the caller put in.
        enqueued_ns: when it was enqueued, by the scheduler's clock.
        is_out: whether it is handed out and not done.
    """

    __slots__ = ("enqueued_ns", "is_out", "payload")

    def __init__(
        self,
        key: Key,
        payload: P,
        *,
        cost: int = 1,
        priority: Priority = Priority.NORMAL,
        throttles: Sequence[str] = (),
        due_ms: int | None = None,
        deadline_ms: int | None = None,
    ) -> None:
        super().__init__(key, cost=cost, priority=priority, throttles=throttles, due_ms=due_ms, deadline_ms=deadline_ms)
        self.payload = payload
        self.enqueued_ns = 0
        self.is_out = False
