"""Wait for a condition, with a deadline. These are the only places in the tests that poll."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable

PATIENCE_S = 240
"""Long enough for a machine that is busy with something else: it passes only if something hangs."""
_POLL_S = 0.02


def wait_until(is_so: Callable[[], bool], *, what: str, patience_s: float = PATIENCE_S) -> None:
    """Wait until a condition holds.

    Raises:
        TimeoutError: the condition did not hold in time.
    """
    never = threading.Event()
    end_s = time.monotonic() + patience_s
    while not is_so():
        if time.monotonic() > end_s:
            raise TimeoutError(f"{what}: not within {patience_s:.0f} s.")
        never.wait(_POLL_S)


async def until(is_so: Callable[[], bool], what: str, *, patience_s: float = PATIENCE_S) -> None:
    """Wait on an event loop until a condition holds.

    Raises:
        TimeoutError: the condition did not hold in time.
    """

    async def ask() -> bool:
        return is_so()

    await until_answered(ask, what, patience_s=patience_s)


async def until_answered(ask: Callable[[], Awaitable[bool]], what: str, *, patience_s: float = PATIENCE_S) -> None:
    """Wait on an event loop until an asynchronous condition holds.

    Raises:
        TimeoutError: the condition did not hold in time.
    """
    loop = asyncio.get_running_loop()
    end_s = loop.time() + patience_s
    while not await ask():
        if loop.time() > end_s:
            raise TimeoutError(f"{what}: not within {patience_s:.0f} s.")
        await asyncio.sleep(_POLL_S)


async def pass_loop(times: int) -> None:
    """Yield to everything else on the event loop, a number of times."""
    for _ in range(times):
        await asyncio.sleep(0)
