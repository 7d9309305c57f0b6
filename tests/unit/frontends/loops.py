"""Running async tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

PATIENCE = 20.0
"""Seconds a test waits for something before it fails."""


def in_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run an async test in a loop of its own, with a limit on its time."""

    @wraps(test)
    def run() -> None:
        asyncio.run(asyncio.wait_for(test(), PATIENCE))

    return run


async def settled() -> None:
    """Wait until everything that can run now has run."""
    for _ in range(10):
        await asyncio.sleep(0)
