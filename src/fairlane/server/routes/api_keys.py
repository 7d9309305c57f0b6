"""Making, listing and revoking keys: over HTTP only, and for those only who may do everything."""

from __future__ import annotations

from fairlane.gateway.caller import EVERY, Caller
from fairlane.server.api_keys import CreateKey, RevokeKey
from fairlane.server.doors import Doors
from fairlane.server.interfaces.exchange import Exchange
from fairlane.wire.verbs import Nothing


async def create(doors: Doors, exchange: Exchange, caller: Caller) -> None:
    """Make a key, and show it this once."""
    request = await exchange.request(CreateKey, "keys/create")
    caller.check("admin", EVERY)
    await exchange.answer(await doors.keys.create(request, caller), headers={"cache-control": "no-store"})


async def shown(doors: Doors, exchange: Exchange, caller: Caller) -> None:
    """List keys, without what makes them good."""
    await exchange.request(Nothing, "keys/list")
    caller.check("admin", EVERY)
    await exchange.answer(doors.keys.shown())


async def revoke(doors: Doors, exchange: Exchange, caller: Caller) -> None:
    """Let a key be good for nothing."""
    request = await exchange.request(RevokeKey, "keys/revoke")
    caller.check("admin", EVERY)
    await doors.keys.revoke(request, caller)
    await exchange.answer(Nothing())
