"""Room: how many bytes a reader can still take, so that nothing is leased for one that does not read.

A connection has a room for what it has been sent and has not read. All connections of an API key share another, and all
of a server share one above that. What counts in a room counts in those above it. A consumer or a waiting lease without
room stays in line and is passed over; when its reader catches up, its queue is served again. Credit bounds how many
messages a consumer holds, room bounds the memory that they take before it reads.

However full the shared room is, a reader that has little unread still gets messages, so that others can't starve it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairlane.model.message import errors_bytes

if TYPE_CHECKING:
    from fairlane.broker.waiting.consumers import WaitingConsumers
    from fairlane.model.message import Delivery

ALWAYS_BYTES: Final = 256 * 1024
"""What a reader may have unread, however much others have."""


def delivery_bytes(delivery: Delivery) -> int:
    """Return what a delivery takes of a room: its payload, headers, state and errors."""
    size = len(delivery.payload)
    headers = delivery.headers
    if headers:
        size += sum(map(len, headers)) + sum(map(len, headers.values()))
    if delivery.state is not None:
        size += len(delivery.state)
    if delivery.errors:
        size += errors_bytes(delivery.errors)
    return size


class Room:
    """The room of one reader, or one that readers share.

    Attributes:
        most: how many bytes may be unread.
        unread: how many are; the connection counts them.
    """

    __slots__ = ("__weakref__", "_passed_over", "_picked", "_shared", "most", "unread")

    def __init__(self, most: int, *, shared: Room | None = None) -> None:
        self.most = most
        self.unread = 0
        self._shared = shared
        self._picked = 0
        self._passed_over: dict[tuple[WaitingConsumers, str], None] = {}

    @property
    def left(self) -> int:
        """How many bytes may still be sent."""
        taken = self.unread + self._picked
        left = self.most - taken
        shared = self._shared
        return left if shared is None else max(min(left, shared.left), ALWAYS_BYTES - taken)

    # ------------------------------------------------------------------------------------------------- for the broker

    def pick(self, size: int) -> None:
        """Count messages that the present cycle leases, until they are delivered or the cycle fails."""
        room: Room | None = self
        while room is not None:
            room._picked += size
            room = room._shared

    def settle(self) -> None:
        """Forget what a cycle has leased: it is being delivered and counted as unread, or never will be."""
        if self._picked:
            self.pick(-self._picked)

    def pass_over(self, consumers: WaitingConsumers, queue: str) -> None:
        """Note that a queue was not served for want of room, so that it is once there is some."""
        room: Room | None = self
        while room is not None:
            room._passed_over[consumers, queue] = None
            room = room._shared

    def serve_passed_over(self) -> None:
        """Serve the queues again that were passed over, if there is room now."""
        if self._shared is not None:
            self._shared.serve_passed_over()
        if self._passed_over and self.left > 0:
            passed_over, self._passed_over = self._passed_over, {}
            for consumers, queue in passed_over:
                consumers.serve_again(queue)

    # --------------------------------------------------------------------------------------------- for the connection

    def takes(self, size: int) -> bool:
        """Return whether an answer may be sent. A reader that has nothing unread takes any that all together can."""
        if size <= ALWAYS_BYTES:
            return True
        if self._shared is None:
            return size <= self.left
        return not (self.unread and size > self.left) and self._shared.takes(size)

    def add(self, size: int) -> None:
        """Count bytes as unread."""
        room: Room | None = self
        while room is not None:
            room.unread += size
            room = room._shared

    def remove(self, size: int) -> None:
        """Count bytes as read, and serve the queues again that were passed over."""
        room: Room | None = self
        has_passed_over = False
        while room is not None:
            room.unread -= size
            has_passed_over = has_passed_over or bool(room._passed_over)
            room = room._shared
        if has_passed_over:
            self.serve_passed_over()

    def clear(self) -> None:
        """Count everything as read."""
        if self.unread or self._passed_over:
            self.remove(self.unread)
