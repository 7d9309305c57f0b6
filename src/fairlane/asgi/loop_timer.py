"""A timer on one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fairlane.errors import WrongEventLoop

_MS_A_SECOND = 1_000


class LoopTimer:
    """Calls its owner back at the next event, on the one event loop that the owner belongs to.

    Attributes:
        loop: that event loop; None before the first request.
    """

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._handle: asyncio.TimerHandle | None = None
        self._at_ms: int | None = None
        self.loop: asyncio.AbstractEventLoop | None = None

    def settle_in(self, *, is_busy: bool) -> None:
        """Adopt the running event loop, if the owner has none or its last one has ended.

        Raises:
            WrongEventLoop: the owner is still in use on another event loop.
        """
        loop = asyncio.get_running_loop()
        if loop is self.loop:
            return
        if self.loop is not None and (is_busy or self.loop.is_running()):
            raise WrongEventLoop("A FairGate belongs to one event loop, but requests come from two.")
        self._clear()
        self.loop = loop

    def require_own_loop(self) -> None:
        """Raise WrongEventLoop if the call comes from elsewhere while the owner's event loop runs."""
        if self.loop is not None and self.loop.is_running() and _running_loop() is not self.loop:
            raise WrongEventLoop("A FairGate can only be changed from the event loop of its requests.")

    def set(self, at_ms: int | None, now_ms: int) -> None:
        """Set the timer to this instant, replacing the one set before; None cancels it."""
        if at_ms == self._at_ms:
            return
        self._clear()
        if at_ms is not None and self.loop is not None:
            self._at_ms = at_ms
            self._handle = self.loop.call_later(max(0, at_ms - now_ms) / _MS_A_SECOND, self._on_timer)

    def _on_timer(self) -> None:
        self._clear()
        self._ring()

    def _clear(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._at_ms = None


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
