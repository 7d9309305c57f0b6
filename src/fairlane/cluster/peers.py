"""Asking other nodes, and taking back what they lease for somebody who is gone before they answer."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final

from fairlane.cluster.forwarding import Forwarder
from fairlane.errors import Disconnected, FairlaneError
from fairlane.gateway.caller import Caller
from fairlane.gateway.context import CallContext
from fairlane.gateway.protocol import RemoteAnswer
from fairlane.verbs.leases import Lease, Nack
from fairlane.verbs.table import VERB_OF
from fairlane.wire.headers import LEASE_NAME

if TYPE_CHECKING:
    import msgspec

_LAST_WORD_S: Final = 2.0
"""So long a node may take to answer a lease that was withdrawn; its connection is of use again then."""


class Peers:
    """The other nodes, as this one asks them."""

    def __init__(self, forwarder: Forwarder) -> None:
        """Ask nobody yet.

        Args:
            forwarder: has the connections to them.
        """
        self._forwarder = forwarder
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, address: str, request: Any, caller: Caller, context: CallContext) -> msgspec.Struct:  # noqa: ANN401 - by verb
        """Return what the node at an address answers.

        Who is cancelled while it waits for a lease leaves nothing leased: see ``withdrawals``.

        Raises:
            FairlaneError: it was refused there, or nobody knows.
        """
        name, headers = VERB_OF[type(request)].name, _headers_of(caller, context)
        if not isinstance(request, Lease):
            return await self._forwarder.ask(address, name, request, headers)
        headers = headers | {LEASE_NAME.decode(): secrets.token_hex(16)}
        asking = asyncio.ensure_future(self._forwarder.ask(address, name, request, headers))
        try:
            return await asyncio.shield(asking)
        except (asyncio.CancelledError, Disconnected):
            self.start(self._withdraw(address, request.queue, headers, asking))
            raise

    async def _withdraw(
        self, address: str, queue: str, headers: dict[str, str], asking: asyncio.Future[msgspec.Struct]
    ) -> None:
        """Let another node take back what it leases, or has leased, under the name that is among the headers."""
        with contextlib.suppress(FairlaneError):  # then it goes back when its lease ends
            await self._forwarder.ask(address, "nack", Nack(queue=queue, receipts=[]), headers)
        with contextlib.suppress(FairlaneError, TimeoutError):
            await asyncio.wait_for(asking, _LAST_WORD_S)

    def listen(
        self, address: str, target: str, headers: Mapping[str, str]
    ) -> AbstractAsyncContextManager[RemoteAnswer]:
        """Lend what another node answers bit by bit; see ``Forwarder.listening``."""
        return self._forwarder.listen(address, target, headers)

    def start(self, doing: Coroutine[Any, Any, None]) -> None:
        """Do something that nobody waits for."""
        task = asyncio.create_task(doing)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Finish what nobody waits for, and let all connections go."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._forwarder.close()


def _headers_of(caller: Caller, context: CallContext) -> dict[str, str]:
    """Return what another node is told of the caller."""
    headers: dict[str, str] = {}
    if caller.authorization is not None:
        headers["authorization"] = caller.authorization
    if context.correlation_id is not None:
        headers["x-correlation-id"] = context.correlation_id
    if context.trace is not None:
        headers |= context.trace.headers()
    return headers
