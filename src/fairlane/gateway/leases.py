"""Leasing for a caller that may have left, or lost its rights, when the messages come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, cast

from fairlane.verbs.leases import LeasedMessages


async def leased_unless(
    give_back: Callable[[LeasedMessages], None], leasing: Coroutine[Any, Any, Any], ending: Coroutine[Any, Any, None]
) -> LeasedMessages | None:
    """Return the leased messages, or None if the ending comes first: then messages that come anyway are given back."""
    lease, end = asyncio.ensure_future(leasing), asyncio.ensure_future(ending)
    is_taken = False
    try:
        await asyncio.wait((lease, end), return_when=asyncio.FIRST_COMPLETED)
        is_taken = not end.done()
    finally:  # nothing is awaited from here on: a cancellation in between would lose messages
        end.cancel()
        if not is_taken:
            lease.cancel()
            lease.add_done_callback(partial(_given_back, give_back))
    return cast("LeasedMessages", lease.result()) if is_taken else None


def _given_back(give_back: Callable[[LeasedMessages], None], lease: asyncio.Future[Any]) -> None:
    if not lease.cancelled() and lease.exception() is None:
        give_back(lease.result())
