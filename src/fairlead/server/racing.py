"""Leasing for somebody who may not be there, or not be entitled, when the messages come."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

from fairlead.broker.aio import AsyncBroker
from fairlead.wire.verbs import Leased


async def leased_unless(
    broker: AsyncBroker, leasing: Coroutine[Any, Any, Any], ending: Coroutine[Any, Any, None]
) -> Leased | None:
    """Return what is leased, or None if the ending comes first: then the wait is over, and what was leased goes back.

    Raises:
        FairleadError: leasing was refused.
    """
    tasks = asyncio.ensure_future(leasing), asyncio.ensure_future(ending)
    lease, end = tasks
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not end.done():
            return cast("Leased", lease.result())
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if not lease.cancelled() and lease.exception() is None:
        give_back(broker, cast("Leased", lease.result()))
    return None


def give_back(broker: AsyncBroker, leased: Leased) -> None:
    """Let messages go back that were leased for somebody who is gone."""
    if leased.deliveries:
        broker.give_back(leased.deliveries[0].queue, leased.deliveries)
