"""The event loop and the garbage collector of a process that Fairlane runs, such as a server or a worker."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

_GC_THRESHOLD: Final = (50_000, 20, 100)
"""Messages come by the thousand and hold no cycles; by default Python looks for some with every 700 new objects."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop, of uvloop where it is installed."""
    try:
        import uvloop  # noqa: PLC0415 - not available on every platform
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a new event loop, and return its result."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


def collect_rarely() -> None:
    """Let the garbage collector of this process look for cycles only now and then."""
    gc.set_threshold(*_GC_THRESHOLD)
