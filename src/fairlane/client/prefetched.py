"""Messages that a stream has received and its reader has not asked for yet."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

from fairlane.model.message import Delivery


class Prefetched:
    """Deliveries in the order of their arrival, with the instant until which user code may get those with a deadline.

    The time that a delivery has left is counted from its receipt, by a monotonic clock: the clocks of broker and client
    may differ. So a message may start late by the time that it took to arrive, and never expires early.

    Attributes:
        waiting: the deliveries. Take them from the front, and ask ``is_late`` of each that has a time left.
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self.waiting: deque[Delivery] = deque()
        self._until_s: dict[tuple[str, int], float] = {}

    def __len__(self) -> int:
        return len(self.waiting)

    def add(self, deliveries: Sequence[Delivery]) -> None:
        """Add deliveries that have just been received."""
        self.waiting.extend(deliveries)
        for delivery in deliveries:
            if delivery.time_left_ms is not None:
                self._until_s[delivery.id, delivery.token] = self._clock_s() + delivery.time_left_ms / 1000

    def is_late(self, delivery: Delivery) -> bool:
        """Return whether it is too late to start a message that has just been taken."""
        until_s = self._until_s.pop((delivery.id, delivery.token), None)
        return until_s is not None and self._clock_s() > until_s

    def take_all(self) -> Prefetched:
        """Move all deliveries to another collection, which remembers when these were received."""
        taken = Prefetched(self._clock_s)
        taken.waiting, self.waiting = self.waiting, taken.waiting
        taken._until_s, self._until_s = self._until_s, taken._until_s
        return taken

    def withdraw(self, matches: Callable[[str], bool] = lambda _: True) -> list[Delivery]:
        """Remove and return the deliveries with matching ids; by default all."""
        withdrawn = [delivery for delivery in self.waiting if matches(delivery.id)]
        if withdrawn:
            self.waiting = deque(delivery for delivery in self.waiting if not matches(delivery.id))
            for delivery in withdrawn:
                self._until_s.pop((delivery.id, delivery.token), None)
        return withdrawn
