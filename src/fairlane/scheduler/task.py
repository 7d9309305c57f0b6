"""An item of work with a payload, as the front ends hand it out."""

from __future__ import annotations

from typing import Generic, TypeVar, Unpack

from fairlane.scheduler.item import Item, ItemTerms, Key

P = TypeVar("P")


class Task(Item, Generic[P]):
    """A piece of work, from ``enqueue`` to ``done``. Keep it to cancel it, or to ask why it waits.

    Attributes:
        payload: the object that the producer passed.
        enqueued_ns: when it was enqueued, by the scheduler's clock.
        is_out: whether it is handed out and not done.
    """

    __slots__ = ("enqueued_ns", "is_out", "payload")

    def __init__(self, key: Key, payload: P, **terms: Unpack[ItemTerms]) -> None:
        """Create a task; see ``Item`` for the terms."""
        super().__init__(key, **terms)
        self.payload = payload
        self.enqueued_ns = 0
        self.is_out = False
