"""The long poll: leasing over HTTP, and what becomes of it when the caller hangs up."""

from __future__ import annotations

import asyncio
from typing import cast

from fairlead.server.callers import Caller
from fairlead.server.doors import Doors
from fairlead.server.exchange import Exchange, Gone
from fairlead.wire.verbs import Lease, Leased


async def lease_or_hang_up(doors: Doors, exchange: Exchange, request: Lease, caller: Caller) -> Leased:
    """Lease messages, unless the caller hangs up first: then the wait ends, and what was leased goes back.

    Raises:
        Gone: the caller has hung up.
    """
    if not request.wait_ms:
        return cast("Leased", await doors.call("lease", request, caller))
    leasing = asyncio.create_task(doors.call("lease", request, caller))
    hanging_up = asyncio.create_task(exchange.hung_up())
    try:
        await asyncio.wait((leasing, hanging_up), return_when=asyncio.FIRST_COMPLETED)
        if not hanging_up.done():
            return cast("Leased", leasing.result())
    finally:
        hanging_up.cancel()
        leasing.cancel()
        await asyncio.gather(leasing, hanging_up, return_exceptions=True)
    if not leasing.cancelled() and leasing.exception() is None:
        give_back(doors, cast("Leased", leasing.result()))
    raise Gone


def give_back(doors: Doors, leased: Leased) -> None:
    """Let messages go back that were leased for somebody who is gone."""
    if leased.deliveries:
        doors.broker.give_back(leased.deliveries[0].queue, leased.deliveries)
