"""Graceful shutdown.

After the signal the server accepts no new work, answers all waiting consumers, and ends their streams. Messages in
flight can still be settled. The server waits for them while a client exists that could settle them: a consumer with
messages in flight, a stream connection that has leased, or any client that has called within the last seconds. It does
not wait for leases that no client attends to; they survive the restart and can be settled then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from fairlane.errors import Closed, FairlaneError
from fairlane.journal.records import AnyRecord
from fairlane.server.context import ServerContext
from fairlane.verbs.leases import LeasedMessages

QUIET_S: Final = 2.0
"""The time without a call after which clients without a stream connection count as gone."""
_LOOK_S: Final = 0.1
_log = logging.getLogger("fairlane.server")


async def drain(server: ServerContext, *, grace_s: float, quiet_s: float = QUIET_S) -> None:
    """Stop accepting work, and return when connections may be closed."""
    _log.info("Shutting down; no new work is accepted.")
    server.draining.set()
    dismiss_waiters(server)
    try:
        async with asyncio.timeout(grace_s):
            await settled(server, quiet_s=quiet_s)
    except TimeoutError:
        _log.warning("The grace period is over; messages in flight return to their queues.")
    except FairlaneError as error:
        _log.warning("Messages can no longer be settled: %s", error)  # the store failed
    server.closing.set()


def dismiss_waiters(server: ServerContext) -> None:
    """Answer every waiting consumer with no messages, and refuse everyone who waits for a message to change."""
    for waiter in [waiter for broker in server.gateway.brokers() for waiter in broker._engine.consumers.everybody()]:
        if not waiter.reply.done():
            waiter.reply.set_result(LeasedMessages(deliveries=[]))
    for reply in [reply for broker in server.gateway.brokers() for reply in broker._engine.watchers.dismiss()]:
        if not reply.done():
            reply.set_exception(Closed("The server is shutting down."))


async def _leased(server: ServerContext) -> int:
    """Return the number of messages in flight, without claimed ones: a claim survives its consumer."""
    return sum(view.leased - view.claimed for view in await server.observed.queues())


async def settled(server: ServerContext, *, quiet_s: float) -> None:
    """Wait until nothing is in flight, no client is left that could settle it, or connections are being closed."""
    loop = asyncio.get_running_loop()
    calls, quiet_since = server.tally.calls.total(), loop.time()
    async with _changes(server) as changed:
        while not server.closing.is_set() and (leased := await _leased(server)):
            if is_attended(server) or server.tally.calls.total() != calls:
                calls, quiet_since = server.tally.calls.total(), loop.time()
            elif loop.time() - quiet_since >= quiet_s:
                _log.info("No client is left to settle %d messages in flight.", leased)
                return
            changed.clear()
            try:
                async with asyncio.timeout(_LOOK_S):
                    await changed.wait()
            except TimeoutError:
                continue


def is_attended(server: ServerContext) -> bool:
    """Return whether an open connection may have leases."""
    lines = [line for broker in server.gateway.brokers() for line in broker._engine.consumers.attached.values()]
    return bool(server.lessees) or any(consumer.held for line in lines for consumer in line)


@asynccontextmanager
async def _changes(server: ServerContext) -> AsyncIterator[asyncio.Event]:
    """Provide an event that is set by every commit, and when connections are to be closed."""
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
