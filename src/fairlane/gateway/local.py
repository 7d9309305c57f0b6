"""The gateway of a server on its own: one broker serves every queue."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from fairlane.broker.frontends.aio import AsyncBroker
from fairlane.errors import FairlaneError, InternalError
from fairlane.gateway.caller import Caller
from fairlane.gateway.context import CallContext
from fairlane.gateway.protocol import Answer, Observed, RemoteAnswer, ServedQueue
from fairlane.model.message import Delivery, Receipt
from fairlane.verbs.verb import Reply, Request


class LocalGateway:
    """The entrance to one broker; see ``Gateway``."""

    def __init__(self, broker: AsyncBroker) -> None:
        self.observed: Observed = broker
        self.node: str | None = None
        self._broker = broker

    def call(self, request: Request[Any], caller: Caller, _context: CallContext) -> Awaitable[Answer]:
        """Return the answer of the broker."""
        producer = None if caller.grants is None else caller.limits_on(request)
        return self._broker.call(request, by=caller.name, producer=producer)

    def ask(self, request: Request[Any], caller: Caller, _context: CallContext, reply: Reply) -> None:
        """Send the answer of the broker to a reply."""
        producer = None if caller.grants is None else caller.limits_on(request)
        self._broker.ask(request, reply, by=caller.name, producer=producer)

    async def served(self, queue: str) -> ServedQueue:
        """Return the broker, whatever the queue."""
        return ServedQueue(self._broker, queue)

    async def journal_of(self, _queue: str | None) -> AsyncBroker:
        """Return the broker, whose journal has all queues."""
        return self._broker

    async def left(self, _queue: str) -> None:
        """Never return: the queues of a server on its own stay."""
        await asyncio.get_running_loop().create_future()

    def give_back(self, queue: str, messages: Sequence[Delivery | Receipt], _caller: Caller) -> None:
        """Return messages to their queue."""
        self._broker.give_back(queue, messages)

    def explained(self, error: FairlaneError) -> FairlaneError:
        """Return the error as it is."""
        return error

    def check_whole(self, _queue: str) -> None:
        """Return: only a cluster splits queues."""

    def shown_name(self, queue: str) -> str:
        """Return the name of the queue."""
        return queue

    def brokers(self) -> list[AsyncBroker]:
        """Return the broker."""
        return [self._broker]

    def grpc_address(self, _address: str) -> str | None:
        """Return None: there are no other nodes."""
        return None

    def is_node(self, _proof: str) -> bool:
        """Return False: there are no other nodes."""
        return False

    def other_addresses(self) -> list[str]:
        """Return nothing: there are no other nodes."""
        return []

    def listen(
        self, address: str, _target: str, _headers: Mapping[str, str]
    ) -> AbstractAsyncContextManager[RemoteAnswer]:
        """Raise an error: no answer of a server on its own ever names another node."""
        raise InternalError(f"A server on its own was told to ask another node at {address}.")
