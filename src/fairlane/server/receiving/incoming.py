"""The message of a stream connection that is being received: it needs capacity, and may not take for ever.

A message beyond a small size is counted with its whole length (``receiving.arrivals``). Until there is capacity the
connection is not read. A message that arrives more slowly than a request body may ends its connection.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from websockets.frames import CloseCode

from fairlane.server.limits import CallLimits
from fairlane.server.receiving.arrivals import FREE_BYTES, Reservation


class ReadingConnection(Protocol):
    """What a message that is being received asks of its connection."""

    def stop_reading(self) -> None:
        """Read nothing for now."""

    def read_on(self) -> None:
        """Read, unless something else forbids it."""

    def refuse(self, code: CloseCode, reason: str) -> None:
        """Close the connection."""


class IncomingMessage:
    """The message that a connection is receiving.

    Attributes:
        expected: how long it is or may become; 0 while there is none.
        is_waiting: whether it waits for capacity.
    """

    def __init__(self, reservation: Reservation, limits: CallLimits, connection: ReadingConnection) -> None:
        self.expected = 0
        self.is_waiting = False
        self._reservation = reservation
        self._limits = limits
        self._connection = connection
        self._is_held = False
        self._received = 0
        self._timer: asyncio.TimerHandle | None = None

    def note(self, expected: int, received: int, *, is_held: bool) -> None:
        """Note how long the message is that is being received now, and how many bytes have just come."""
        self._received += received
        self._is_held = is_held
        if expected == self.expected:
            return
        self.expected, self._received = expected, received
        self._stop_watching()
        self._reservation.end()
        self.is_waiting = False
        if not expected:
            return
        self._watch()
        if expected > FREE_BYTES and not self._reservation.takes(expected):
            self.is_waiting = True
            self._connection.stop_reading()
            self._reservation.wait(expected, lambda is_admitted: self._settle(is_admitted=is_admitted))

    def _settle(self, *, is_admitted: bool) -> None:
        self.is_waiting = False
        if is_admitted:
            self._received = self.expected  # the wait does not count
            self._connection.read_on()
        else:
            self._connection.refuse(CloseCode.TRY_AGAIN_LATER, "too many large requests are being received")

    # -------------------------------------------------------------------------------------------------------- timeouts

    def _watch(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._limits.body_timeout_ms / 1000, self._on_time)

    def _stop_watching(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_time(self) -> None:
        """End the connection if its message comes too slowly, and it is not the server that reads nothing."""
        limits, received = self._limits, self._received
        self._received = 0
        if (
            self.is_waiting
            or self._is_held
            or received * 1000 >= limits.body_bytes_per_second_min * limits.body_timeout_ms
        ):
            self._watch()
            return
        rate = limits.body_bytes_per_second_min
        self._connection.refuse(
            CloseCode.POLICY_VIOLATION, f"a message arrives more slowly than body_bytes_per_second_min, {rate}"
        )
