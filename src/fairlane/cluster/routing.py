"""Answers a request where its queue is: at a broker of this node, or by asking the node that owns the queue.

A caller that follows by itself is told where to ask. A node that asks on behalf of a caller is answered from here only,
so that no request goes round in circles. While a queue moves, a request waits a little for it to arrive.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from fairlane.broker.frontends.aio import AsyncBroker
from fairlane.cluster.node import Node
from fairlane.cluster.peers import Peers
from fairlane.errors import Closed, QueueElsewhere, QueueMoving, QueueNotFound, StoreFenced
from fairlane.gateway.caller import Caller
from fairlane.gateway.context import CallContext
from fairlane.gateway.protocol import Answer
from fairlane.model.partitions import served_name
from fairlane.verbs.verb import Request

PATIENCE_S: Final = 2.0
"""How long a request waits for a queue that moves."""
_POLL_S: Final = 0.2
_RETRY_AFTER_MS: Final = 200


class Router:
    """Finds the broker or the node that serves a queue, and asks it."""

    def __init__(self, node: Node, peers: Peers) -> None:
        self._node = node
        self._groups = node.groups
        self._peers = peers

    async def at(
        self,
        queue: str,
        request: Request[Any],
        caller: Caller,
        context: CallContext,
        *,
        patience_s: float = PATIENCE_S,
    ) -> Answer:
        """Return the answer to a request where a queue is."""
        patience = _Patience(patience_s)
        now = asyncio.get_running_loop().time
        begun_s, wait_ms = now(), getattr(request, "wait_ms", 0)
        while True:
            try:
                broker, address = await self.find(queue, patience), ""
            except QueueElsewhere as error:
                if context.follows or context.is_forwarded:
                    raise
                broker, address = None, error.at
            asked_s = now()
            try:
                if broker is None:
                    return await self.ask(address, request, caller, context)
                return await broker.call(_as_served(request, queue), by=caller.name, producer=caller.limits_on(request))
            except (QueueElsewhere, QueueMoving, StoreFenced, Closed) as error:
                # Each of these means that nothing was done: the queue has moved since it was found. The exception is a
                # broker that is closed but still ours, which only happens while the server itself shuts down.
                if isinstance(error, Closed) and broker is not None and broker in self._groups.brokers():
                    raise
            if wait_ms:
                # Time spent waiting for messages is not time spent waiting for the queue. It counts against the wait
                # of the request instead, which must not start over at the next owner.
                patience.extend(now() - asked_s)
                left_ms = max(0, wait_ms - round((now() - begun_s) * 1000))
                request = msgspec.structs.replace(request, wait_ms=left_ms)
            self._node.lifecycle.reconcile()
            await self._wait(patience)
            await self._node.refresh()  # one of the two nodes has read an older board than the other

    async def find(self, queue: str, patience: _Patience | None = None) -> AsyncBroker:
        """Return the broker that serves a queue here, as soon as there is one.

        Raises:
            QueueElsewhere, QueueMoving, QueueNotFound: there is none, and none will come in time.
        """
        patience = patience if patience is not None else _Patience(PATIENCE_S)
        while True:
            try:
                return self._groups.of(queue)
            except QueueNotFound:
                if patience.is_up_to_date:
                    raise
                patience.is_up_to_date = True
                await self._node.refresh()  # another node may have created it a moment ago
            except QueueMoving:
                await self._wait(patience)

    async def _wait(self, patience: _Patience) -> None:
        if patience.left_s <= 0:
            raise still_moving()
        await self._groups.changed(min(_POLL_S, patience.left_s))

    async def ask(self, address: str, request: Request[Any], caller: Caller, context: CallContext) -> Answer:
        """Return the answer of another node."""
        return await self._peers.ask(address, request, caller, context)

    async def everywhere(self, request: Request[Any], caller: Caller, context: CallContext) -> list[Any]:
        """Return the answers of all brokers here, and of all other nodes that live, each for its own brokers only.

        Raises:
            FairlaneError: one of them can't be asked, so that something would be missing.
        """
        answers: list[Any] = [await broker.call(request, by=caller.name) for broker in self._groups.brokers()]
        if context.is_forwarded:
            return answers
        asked = (self.ask(address, request, caller, context) for address in self._node.other_addresses())
        return answers + list(await asyncio.gather(*asked))


class _Patience:
    """How long a request still waits for a queue, and whether the board was read since it came."""

    __slots__ = ("_end_s", "is_up_to_date")

    def __init__(self, patience_s: float) -> None:
        self._end_s = asyncio.get_running_loop().time() + patience_s
        self.is_up_to_date = False

    def extend(self, waited_s: float) -> None:
        """Wait this much longer."""
        self._end_s += waited_s

    @property
    def left_s(self) -> float:
        """How long the request still waits."""
        return self._end_s - asyncio.get_running_loop().time()


def _as_served(request: Request[Any], queue: str) -> Request[Any]:
    """Return a request under the name by which a broker knows the queue."""
    served = served_name(queue)
    is_named = served != queue and getattr(request, "queue", None) == queue
    return msgspec.structs.replace(request, queue=served) if is_named else request


def still_moving() -> QueueMoving:
    """Return the error for a queue that did not arrive in time."""
    return QueueMoving("The queue is moving to another node.", retry_after_ms=_RETRY_AFTER_MS)
