"""An event loop on virtual time: when nothing is ready, the clock moves to the next timer instead of waiting.

Theory of operation. An event loop waits in one place, its selector. This loop's selector never waits for a timer: it
moves the fake clock, which the loop and the broker share, and returns at once. Three things are real all the same, and
time stands still or runs as usual while they last: threads that a coroutine waits for, sockets, and calls from other
threads. While ``is_skipping`` says no, time stands still and the loop waits for such calls only.
"""

from __future__ import annotations

import asyncio
import math
import selectors
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple, Unpack

from fairlane.testing.clock import FakeClock

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Events = list[tuple[selectors.SelectorKey, int]]
_OWN_SOCKETS = 1
"""The loop's own socket, by which other threads wake it."""


def _never() -> bool:
    return False


class VirtualSelector(selectors.DefaultSelector):
    """A selector that moves a clock instead of waiting."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock = clock
        self.threads = 0
        self.is_skipping: Callable[[], bool] = _never
        self.on_idle: Callable[[], bool] = _never

    def select(self, timeout: float | None = None) -> Events:
        """Return what is ready. If nothing is, let time pass until the next timer."""
        events = super().select(0)
        if events or (timeout is not None and timeout <= 0):
            return events
        if self.threads:
            return super().select(None)
        if len(self.get_map()) > _OWN_SOCKETS:
            return self._in_real_time(timeout)
        if not self.is_skipping():
            return super().select(None)
        if self.on_idle():
            return []
        if timeout is None:
            return super().select(None)
        self._clock.advance(max(1, math.ceil(timeout * 1000)))
        return []

    def _in_real_time(self, timeout: float | None) -> Events:
        begun_s = time.perf_counter()
        events = super().select(timeout)
        self._clock.advance(round((time.perf_counter() - begun_s) * 1000))
        return events


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is a fake clock's; see the module.

    Attributes:
        virtual: decides when time passes: ``is_skipping`` whether it may, and ``on_idle`` what happens before it does.
    """

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.virtual = VirtualSelector(clock)
        super().__init__(self.virtual)

    def time(self) -> float:
        """Return the time of the fake clock, in seconds."""
        return self._clock.monotonic_ms() / 1000

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Run a function in a thread. Time stands still until it returns."""
        self.virtual.threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._on_thread_done)
        return future

    def _on_thread_done(self, _: asyncio.Future[Any]) -> None:
        self.virtual.threads -= 1
