"""Arrivals: the bytes of requests that are being received, bounded over all connections and for each caller.

A request is in memory from its first byte, long before the server can judge it. Short ones are not counted. A longer
one reserves what it may become, and is not read on until there is capacity for that. So whatever has been admitted can
arrive as a whole, and many requests that never end take a bounded amount of memory. One caller may have half of all, so
that others can always send.

A request that is larger than the bound goes alone.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final

from fairlane.errors import TooMuchArriving

FREE_BYTES: Final = 64 * 1024
"""What a connection may have received of a request without a reservation."""
WAIT_S_MAX: Final = 10.0
"""How long a request waits for capacity."""
_RETRY_AFTER_MS: Final = 1_000


class Arrivals:
    """The reservations of all connections, and those who wait for one, the first in front."""

    def __init__(self, bytes_max: int, *, wait_s_max: float = WAIT_S_MAX) -> None:
        self._bytes_max = bytes_max
        self._wait_s_max = wait_s_max
        self._taken = 0
        self._taken_by: Counter[str] = Counter()
        self._waiting: dict[Reservation, None] = {}

    def begin(self, holder: str | None) -> Reservation:
        """Return a reservation that holds nothing yet. A caller that is None has no bound of its own."""
        return Reservation(self, holder)

    async def admitted(self, holder: str | None, size: int) -> Reservation:
        """Return a reservation of a size, as soon as there is capacity for it.

        Raises:
            TooMuchArriving: there was none in time.
        """
        arrival = self.begin(holder)
        if arrival.takes(size):
            return arrival
        admission: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        arrival.wait(size, lambda is_admitted: None if admission.done() else admission.set_result(is_admitted))
        try:
            is_admitted = await admission
        except asyncio.CancelledError:
            arrival.end()
            raise
        if not is_admitted:
            raise self.refusal()
        return arrival

    def refusal(self) -> TooMuchArriving:
        """Return the error of a request that was not admitted."""
        return TooMuchArriving(
            f"Too many large requests are being received: arriving_total_bytes_max is {self._bytes_max} for all "
            "connections, and half of it for one caller.",
            retry_after_ms=_RETRY_AFTER_MS,
        )

    def _fits(self, holder: str | None, size: int) -> bool:
        if self._taken and self._taken + size > self._bytes_max:
            return False
        own = 0 if holder is None else self._taken_by[holder]
        return not own or own + size <= self._bytes_max // 2

    def _add(self, holder: str | None, size: int) -> None:
        self._taken += size
        if holder is not None:
            self._taken_by[holder] += size
            if not self._taken_by[holder]:
                del self._taken_by[holder]

    def _admit(self) -> None:
        """Admit those for whom there is capacity now. One that has to wait for its own caller lets others pass."""
        for arrival in list(self._waiting):
            if self._fits(arrival.holder, arrival.wanted):
                arrival.settle(is_admitted=True)


class Reservation:
    """The reservation of one connection."""

    __slots__ = ("_all", "_on_settled", "_taken", "_timer", "holder", "wanted")

    def __init__(self, arrivals: Arrivals, holder: str | None) -> None:
        self._all = arrivals
        self.holder = holder
        self.wanted = 0
        """What it waits for."""
        self._taken = 0
        self._on_settled: Callable[[bool], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def size(self) -> int:
        """How many bytes are reserved."""
        return self._taken

    def takes(self, size: int) -> bool:
        """Reserve bytes, unless there is no capacity for them. It must have none reserved."""
        if not self._all._fits(self.holder, size):
            return False
        self._taken = size
        self._all._add(self.holder, size)
        return True

    def wait(self, size: int, on_settled: Callable[[bool], None]) -> None:
        """Wait for capacity, and report whether the bytes are reserved now, or there was none in time."""
        self.wanted, self._on_settled = size, on_settled
        self._all._waiting[self] = None
        self._timer = asyncio.get_running_loop().call_later(self._all._wait_s_max, self.settle)

    def settle(self, *, is_admitted: bool = False) -> None:
        """End the wait."""
        on_settled, size = self._on_settled, self.wanted
        self._forget_wait()
        if is_admitted:
            self._taken = size
            self._all._add(self.holder, size)
        if on_settled is not None:
            on_settled(is_admitted)

    def _forget_wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._on_settled = None
        self.wanted = 0
        self._all._waiting.pop(self, None)

    def end(self) -> None:
        """Give everything back: the request has arrived, or never will."""
        if self._on_settled is not None:
            self._forget_wait()
        if self._taken:
            self._all._add(self.holder, -self._taken)
            self._taken = 0
            if self._all._waiting:
                self._all._admit()
