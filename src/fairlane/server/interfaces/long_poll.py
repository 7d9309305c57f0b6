"""The long poll: leasing over HTTP, and what becomes of it when the caller hangs up."""

from __future__ import annotations

from functools import partial
from typing import cast

from fairlane.gateway.caller import Caller
from fairlane.gateway.context import Origin
from fairlane.gateway.leases import leased_unless
from fairlane.server.doors import Doors
from fairlane.server.interfaces.exchange import Exchange, Gone
from fairlane.verbs.leases import Lease, LeasedMessages


async def lease_or_hang_up(
    doors: Doors, exchange: Exchange, request: Lease, caller: Caller, origin: Origin
) -> LeasedMessages:
    """Lease messages, unless the caller hangs up first: then the wait ends, and what was leased goes back.

    Raises:
        Gone: the caller has hung up.
    """
    leasing = doors.call("lease", request, caller, origin)
    if not request.wait_ms:
        return cast("LeasedMessages", await leasing)
    leased = await leased_unless(partial(doors.give_back, caller), leasing, exchange.hung_up())
    if leased is None:
        raise Gone
    return leased
