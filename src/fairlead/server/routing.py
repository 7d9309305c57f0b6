"""How a node of a cluster answers: itself, if it has the queue, or by asking the node that has it.

A caller that follows by itself is told where to ask. A node that asks for somebody else is answered from here only, so
no request ever goes round in circles. While a queue moves, a request waits a little for it to arrive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from fairlead.broker.aio import AsyncBroker
from fairlead.cluster.forwarding import Forwarder
from fairlead.cluster.node import Node
from fairlead.errors import Closed, QueueElsewhere, QueueMoving, QueueNotFound, StoreFenced
from fairlead.server.callers import Caller
from fairlead.server.dispatch import HANDLERS, Answer
from fairlead.server.origin import Origin

PATIENCE_S: Final = 2.0
"""So long a request waits for a queue that is on its way."""
_LOOK_S: Final = 0.2

Special = Callable[["ClusterRouter", Any, Caller, Origin], Awaitable[Answer]]


class ClusterRouter:
    """Answers verbs at a node."""

    def __init__(self, node: Node, forwarder: Forwarder, special: Mapping[str, Special]) -> None:
        """Answer at a node.

        Args:
            node: the node.
            forwarder: asks other nodes.
            special: what to do for verbs that are about more than one queue, or need more than its broker.
        """
        self.node = node
        self.groups = node.groups
        self.changes = node.changes
        self._forwarder = forwarder
        self._special = special

    async def call(self, name: str, request: Any, caller: Caller, origin: Origin) -> Answer:  # noqa: ANN401 - by verb
        """Do what a verb says, here or elsewhere.

        Raises:
            FairleadError: it was refused.
        """
        special = self._special.get(name)
        if special is not None:
            return await special(self, request, caller, origin)
        return await self.at(name, request, request.queue, caller, origin)

    async def find(self, queue: str) -> AsyncBroker:
        """Return the broker that serves a queue here; wait a little for one that is on its way.

        Raises:
            QueueElsewhere, QueueMoving, QueueNotFound: none does.
        """
        return await self._locate(queue, _Patience(PATIENCE_S))

    def grpc_at(self, address: str) -> str | None:
        """Return where the node that is reached at an address has its gRPC, if it has any."""
        nodes = self.node.posting.view.nodes.values()
        return next((entry.grpc for entry in nodes if entry.address == address), None)

    async def at(
        self,
        name: str,
        request: Any,  # noqa: ANN401 - by verb
        queue: str,
        caller: Caller,
        origin: Origin,
        *,
        patience_s: float = PATIENCE_S,
    ) -> Answer:
        """Do what a verb says where a queue is.

        Raises:
            FairleadError: it was refused.
        """
        patience = _Patience(patience_s)
        begun_s, wait_ms = asyncio.get_running_loop().time(), getattr(request, "wait_ms", 0)
        while True:
            try:
                broker, at = await self._locate(queue, patience), ""
            except QueueElsewhere as error:
                if origin.follows or origin.is_forwarded:
                    raise
                broker, at = None, error.at
            asked_s = asyncio.get_running_loop().time()
            try:
                if broker is None:
                    return await self.ask(at, name, request, caller, origin)
                return await HANDLERS[name](broker, request, caller)
            except (QueueElsewhere, QueueMoving, StoreFenced, Closed) as error:  # nothing was done
                if isinstance(error, Closed) and broker is not None and broker in self.groups.brokers():
                    raise
            now_s = asyncio.get_running_loop().time()
            if wait_ms:
                patience.add(now_s - asked_s)
                request = msgspec.structs.replace(request, wait_ms=max(0, wait_ms - round((now_s - begun_s) * 1000)))
            self.node.tenancy.drop_lost()
            await self._wait(patience)
            await self.node.inform()  # one of us knows more than the other

    async def _locate(self, queue: str, patience: _Patience) -> AsyncBroker:
        """Return the broker that serves a queue here, once there is one.

        Raises:
            QueueElsewhere, QueueMoving, QueueNotFound: there will be none, or not in time.
        """
        while True:
            try:
                return self.groups.of(queue)
            except QueueNotFound:
                if patience.is_informed:
                    raise
                patience.is_informed = True
                await self.node.inform()  # somebody may have made it elsewhere just now
            except QueueMoving:
                await self._wait(patience)

    async def ask(self, address: str, name: str, request: Any, caller: Caller, origin: Origin) -> Answer:  # noqa: ANN401
        """Return what another node answers."""
        return await self._forwarder.ask(address, name, request, headers_of(caller, origin))

    async def _wait(self, patience: _Patience) -> None:
        if patience.left_s <= 0:
            raise moving_on()
        await self.groups.changed(min(_LOOK_S, patience.left_s))

    async def everywhere(self, name: str, request: Any, caller: Caller, origin: Origin) -> list[Any]:  # noqa: ANN401
        """Return what all brokers here answer, and all other nodes that live; those answer for themselves only.

        Raises:
            FairleadError: one of them can't be asked, so something would be missing.
        """
        answers: list[Any] = [await HANDLERS[name](broker, request, caller) for broker in self.groups.brokers()]
        if origin.is_forwarded:
            return answers
        others = [view.address for view in self.node.seen().nodes if view.is_live and view.name != self.node.terms.name]
        return answers + list(await asyncio.gather(*(self.ask(at, name, request, caller, origin) for at in others)))


class _Patience:
    """How long a request still waits, and whether it has made sure that what it knows is new."""

    __slots__ = ("_end_s", "is_informed")

    def __init__(self, patience_s: float) -> None:
        self._end_s = asyncio.get_running_loop().time() + patience_s
        self.is_informed = False

    def add(self, waited_s: float) -> None:
        """Wait so much longer: that much was spent waiting for messages, and not for the queue."""
        self._end_s += waited_s

    @property
    def left_s(self) -> float:
        """How long it still waits."""
        return self._end_s - asyncio.get_running_loop().time()


def moving_on() -> QueueMoving:
    """Return the error of a queue for which nobody waits any longer."""
    return QueueMoving("The queue is on its way to another node.", retry_after_ms=200)


def headers_of(caller: Caller, origin: Origin) -> dict[str, str]:
    """Return what another node is told of the caller."""
    headers: dict[str, str] = {}
    if caller.authorization is not None:
        headers["authorization"] = caller.authorization
    if origin.correlation_id is not None:
        headers["x-correlation-id"] = origin.correlation_id
    if origin.trace is not None:
        headers |= origin.trace.headers()
    return headers
