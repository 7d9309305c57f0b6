"""A stream of deliveries by long polling, for connections that cannot push messages.

The server does not know of such a stream, so the client does the server's part: it counts the messages that are held
against the credit, and returns unsettled messages at the end. One difference remains: if the client dies, its messages
return when their leases end, not at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

import msgspec

from fairlane.client.retries import Retries, is_passing, pause_s
from fairlane.client.transport.protocol import Sink
from fairlane.errors import FairlaneError
from fairlane.model.message import Delivery, Receipt
from fairlane.verbs.leases import Ack, Extend, Forward, Lease, LeasedMessages, Nack
from fairlane.verbs.messages import Result
from fairlane.verbs.verb import Shape
from fairlane.wire.frames import Consume

Ask: TypeAlias = Callable[[str, Shape, int], Awaitable[Any]]
"""Calls a verb with a request and the milliseconds that it may wait at the server."""
_LOST: Final = frozenset(("lease_mismatch", "message_not_found"))
"""Codes of errors which mean that the lease is lost."""


class PollingChannel:
    """A stream of deliveries by long polling; see ``Channel``."""

    def __init__(
        self, request: Consume, sink: Sink, *, ask: Ask, lasts_s: Callable[[int], float], poll_ms: int, retries: Retries
    ) -> None:
        """Create a channel. ``lasts_s`` returns the seconds until an instant of the server's clock."""
        self._request = request
        self._sink = sink
        self._ask = ask
        self._lasts_s = lasts_s
        self._poll_ms = poll_ms
        self._retries = retries
        self._loop = asyncio.get_running_loop()
        self._held: dict[tuple[str, int], float] = {}
        self._changed = asyncio.Event()
        self._is_stopping = False
        self._late: list[Delivery] = []
        self._polling: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Lease the available messages, and start polling for more."""
        leased = await self._lease(self._request.credit, 0)
        self._take(leased)
        self._polling = self._loop.create_task(self._poll())

    async def stop(self, unseen: Sequence[Delivery]) -> None:
        """Close the channel once the pending poll is answered; see ``Channel``."""
        if self._polling is None or self._is_stopping:
            return
        self._is_stopping = True
        self._changed.set()
        await asyncio.shield(self._polling)
        unseen = (*unseen, *self._late)
        with suppress(FairlaneError):  # the queue or the server may no longer exist
            await self._defer([*((each.id, each.token) for each in unseen), *self._held])

    async def widen(self, handlers: int) -> None:
        """Change the number of handlers; see ``Channel``."""
        self._request = msgspec.structs.replace(self._request, handlers=handlers)
        self._changed.set()

    async def _defer(self, held: Iterable[tuple[str, int]]) -> None:
        receipts = [Receipt(id=message_id, token=token) for message_id, token in held]
        if receipts:
            request = Nack(queue=self._request.queue, receipts=receipts, intent="defer")
            await self._ask("nack", request, 0)

    # --------------------------------------------------------------------------------------------------------- polling

    async def _poll(self) -> None:
        waits_s, until = self._retries.waits_s(), None
        while not self._is_stopping:
            self._changed.clear()
            self._forget_expired()
            free = self._request.credit - len(self._held)
            if not free:
                await self._until_changed(self._first_end())
                continue
            # While all handlers are busy, a poll must not wait: what is acknowledged meanwhile frees one.
            is_busy = self._free_handlers() == 0
            try:
                leased = await self._lease(free, 0 if is_busy else self._poll_ms)
                self._take(leased)
                if is_busy and not leased:
                    await self._until_changed(self._first_end())
            except FairlaneError as error:
                until = until if until is not None else self._loop.time() + self._retries.patience_s
                if not is_passing(error) or self._loop.time() > until:
                    self._sink.ended(error)
                    return
                self._changed.clear()
                await self._until_changed(pause_s(error, next(waits_s)))
            else:
                waits_s, until = self._retries.waits_s(), None

    def _first_end(self) -> float:
        """Return the seconds until the first lease ends."""
        now = self._loop.time()
        return min(self._held.values(), default=now) - now

    async def _until_changed(self, most_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(max(most_s, 0)):
                await self._changed.wait()

    def _forget_expired(self) -> None:
        now = self._loop.time()
        for expired in [held for held, until in self._held.items() if until <= now]:
            del self._held[expired]

    def _free_handlers(self) -> int | None:
        handlers = self._request.handlers
        return None if handlers is None else max(0, handlers - len(self._held))

    async def _lease(self, count: int, wait_ms: int) -> list[Delivery]:
        asked = self._request
        request = Lease(
            queue=asked.queue,
            count=count,
            wait_ms=wait_ms,
            visibility_ms=asked.visibility_ms,
            owner=asked.owner,
            with_state=asked.with_state,
            handlers=count if (free := self._free_handlers()) is None else free,  # to say so is what a stream does
        )
        leased: LeasedMessages = await self._ask("lease", request, wait_ms)
        return leased.deliveries

    def _take(self, deliveries: list[Delivery]) -> None:
        now = self._loop.time()
        for delivery in deliveries:
            self._held[delivery.id, delivery.token] = now + self._lasts_s(delivery.expires_ms)
        if self._is_stopping:
            self._late += deliveries
        elif deliveries:
            self._sink.deliver(deliveries)

    # -------------------------------------------------------------------------------------------------------- settling

    def notice(self, request: Shape, answer: Any) -> None:  # noqa: ANN401 - depends on the request
        """Note the outcome of a request of the same client: messages that it settled are no longer held."""
        if isinstance(request, Forward):
            self._settled(request.receipt)
        elif isinstance(request, (Ack, Nack, Extend)):
            for receipt, result in zip(request.receipts, answer.results, strict=True):
                self._notice_one(receipt, result, is_extension=isinstance(request, Extend))

    def _notice_one(self, receipt: Receipt, result: Result, *, is_extension: bool) -> None:
        if result.error is not None:
            if result.error.code in _LOST:
                self._settled(receipt)
        elif not is_extension:
            self._settled(receipt)
        elif result.expires_ms is not None and (receipt.id, receipt.token) in self._held:
            self._held[receipt.id, receipt.token] = self._loop.time() + self._lasts_s(result.expires_ms)

    def _settled(self, receipt: Receipt) -> None:
        if self._held.pop((receipt.id, receipt.token), None) is not None:
            self._changed.set()
