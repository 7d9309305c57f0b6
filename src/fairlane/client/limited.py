"""The verbs of a client, each with a time limit that the caller sets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from fairlane.client.message import Message, Settling
from fairlane.client.message_aio import AsyncMessage, AsyncSettling
from fairlane.client.tracing import traced
from fairlane.client.transport import Transport
from fairlane.errors import CallTimedOut, InvalidArgument
from fairlane.model.message import Delivery, NewMessage, Receipt
from fairlane.verbs.messages import EnqueueResult
from fairlane.verbs.methods.complete import AllVerbs
from fairlane.verbs.methods.complete_aio import AsyncAllVerbs
from fairlane.verbs.verb import Request

A = TypeVar("A")


class AsyncCalling(AsyncSettling, Protocol):
    """The part of a client for asyncio that sends requests."""

    transport: Transport

    async def call(self, request: Request[A]) -> A:
        """Return the answer to a request."""

    async def enqueue_one(self, queue: str, message: NewMessage, *, wait_ms: int) -> EnqueueResult:
        """Enqueue a message together with others of the same moment."""

    async def ack_receipt(self, queue: str, receipt: Receipt) -> None:
        """Acknowledge a receipt together with others of the same moment."""


class AsyncLimitedClient(AsyncAllVerbs[AsyncMessage]):
    """The verbs of a client for asyncio. A call that takes longer than its timeout raises ``CallTimedOut``."""

    def __init__(self, client: AsyncCalling, timeout_s: float) -> None:
        if timeout_s <= 0:
            raise InvalidArgument(f"The timeout of a call is {timeout_s} s; it must be greater than 0.")
        self._client = client
        self._timeout_s = timeout_s

    async def call(self, request: Request[A], *, by: str | None = None) -> A:
        """Return the answer to a request; see ``AsyncClient.call``."""
        if by is not None:
            raise InvalidArgument("A server records the name of the API key; leave out `by`.")
        return await self._limited(request.verb.name, self._client.call(request))

    def _delivered(self, deliveries: list[Delivery]) -> list[AsyncMessage]:
        return [AsyncMessage(delivery, self._client) for delivery in deliveries]

    def _prepared(self, messages: list[NewMessage]) -> list[NewMessage]:
        return list(traced(messages))

    def _forwarded(self, messages: list[NewMessage]) -> list[NewMessage]:
        return list(traced(messages))

    async def _enqueue_one(self, queue: str, message: NewMessage, wait_ms: int) -> EnqueueResult:
        return await self._limited("enqueue", self._client.enqueue_one(queue, message, wait_ms=wait_ms))

    async def _ack_one(self, queue: str, receipt: Receipt) -> None:
        await self._limited("ack", self._client.ack_receipt(queue, receipt))

    async def _limited(self, verb: str, calling: Awaitable[A]) -> A:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await calling
        except TimeoutError as error:
            trouble = getattr(self._client.transport, "trouble", None)
            why = "" if trouble is None else f": {trouble.cause.removesuffix('.')}"
            raise CallTimedOut(f"No answer to {verb!r} within {self._timeout_s:g} s{why}.") from error


class LimitedClient(AllVerbs[Message]):
    """The verbs of a client for threads. A call that takes longer than its timeout raises ``CallTimedOut``."""

    def __init__(self, client: Settling, run: Callable[[Request[Any]], Any]) -> None:
        """Call verbs through ``run``, which waits for the answer of a limited client for asyncio."""
        self._client = client
        self._run = run

    def call(self, request: Request[A], *, by: str | None = None) -> A:
        """Return the answer to a request; see ``Client.call``."""
        if by is not None:
            raise InvalidArgument("A server records the name of the API key; leave out `by`.")
        answer: A = self._run(request)
        return answer

    def _delivered(self, deliveries: list[Delivery]) -> list[Message]:
        return [Message(delivery, self._client) for delivery in deliveries]

    def _prepared(self, messages: list[NewMessage]) -> list[NewMessage]:
        return list(traced(messages))

    def _forwarded(self, messages: list[NewMessage]) -> list[NewMessage]:
        return list(traced(messages))
