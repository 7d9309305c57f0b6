"""Going down in good order.

From the signal on no new work is taken: everybody who waits is let go, and channels are told that nothing comes any
more. What has been leased may still be acked, as long as somebody is there who could: a consumer with messages in
flight, a connection of the stream that has leased, or anybody who has called a moment ago. Leases that nobody is there
for are not worth waiting for; they hold across the restart, and their acks are taken then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from fairlane.errors import FairlaneError
from fairlane.journal.records import AnyRecord
from fairlane.server.context import ServerContext

QUIET_S: Final = 2.0
"""After so long without a call nobody is there who has no connection of the stream."""
_LOOK_S: Final = 0.1
_log = logging.getLogger("fairlane.server")


async def drain(server: ServerContext, *, grace_s: float, quiet_s: float = QUIET_S) -> None:
    """Take no new work, and return when nothing is left to wait for; then connections are to end."""
    _log.info("The server is going down; no new work is taken.")
    server.draining.set()
    dismiss_waiters(server)
    try:
        async with asyncio.timeout(grace_s):
            await settled(server, quiet_s=quiet_s)
    except TimeoutError:
        _log.warning("The grace is over; what connections still have goes back.")
    except FairlaneError as error:
        _log.warning("Nothing more can be acked: %s", error)  # the store is lost
    server.closing.set()


def dismiss_waiters(server: ServerContext) -> None:
    """Let everybody go with nothing who waits for messages."""
    for waiter in [waiter for broker in server.gateway.brokers() for waiter in broker._engine.consumers.everybody()]:
        if not waiter.reply.done():
            waiter.reply.set_result([])


async def _leased(server: ServerContext) -> int:
    """Count what is leased, but not what is claimed: that outlasts whoever claimed it."""
    return sum(view.leased - view.claimed for view in await server.observed.queues())


async def settled(server: ServerContext, *, quiet_s: float) -> None:
    """Wait until nothing is leased, nobody is there who could ack what is, or connections are to end anyway."""
    loop = asyncio.get_running_loop()
    calls, quiet_since = server.tally.calls.total(), loop.time()
    async with _changes(server) as changed:
        while not server.closing.is_set() and (leased := await _leased(server)):
            if is_attended(server) or server.tally.calls.total() != calls:
                calls, quiet_since = server.tally.calls.total(), loop.time()
            elif loop.time() - quiet_since >= quiet_s:
                _log.info("Nobody is here who could ack what is still leased: %d.", leased)
                return
            changed.clear()
            try:
                async with asyncio.timeout(_LOOK_S):
                    await changed.wait()
            except TimeoutError:
                continue


def is_attended(server: ServerContext) -> bool:
    """Tell whether a connection is open that may have leases."""
    lines = [line for broker in server.gateway.brokers() for line in broker._engine.consumers.attached.values()]
    return bool(server.lessees) or any(consumer.held for line in lines for consumer in line)


@asynccontextmanager
async def _changes(server: ServerContext) -> AsyncIterator[asyncio.Event]:
    """Give an event that is set with every commit, and when the connections are to end."""
    changed = asyncio.Event()

    def on_commit(_records: Sequence[AnyRecord]) -> None:
        changed.set()

    async def on_closing() -> None:
        await server.closing.wait()
        changed.set()

    closing = asyncio.create_task(on_closing())
    server.listeners.add(on_commit)
    try:
        yield changed
    finally:
        server.listeners.discard(on_commit)
        closing.cancel()
