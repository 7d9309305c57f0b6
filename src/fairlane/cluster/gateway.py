"""How a node of a cluster answers: itself, if it has the queue, or by asking the node that has it.

A caller that follows by itself is told where to ask. A node that asks for somebody else is answered from here only, so
no request ever goes round in circles. While a queue moves, a request waits a little for it to arrive.

A queue that is split is asked by its plain name for all of its partitions, or by the name of one for that one.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec

from fairlane.broker.frontends.aio import AsyncBroker
from fairlane.cluster.forwarding import Heard
from fairlane.cluster.groups import split_into
from fairlane.cluster.node import Node
from fairlane.cluster.partitions.keys import PartitionKeys
from fairlane.cluster.peers import OtherNodes
from fairlane.cluster.withdrawals import Withdrawals
from fairlane.errors import (
    Closed,
    FairlaneError,
    QueueElsewhere,
    QueueMoving,
    QueueNotFound,
    QueueSplit,
    StoreFenced,
)
from fairlane.gateway.caller import Caller
from fairlane.gateway.context import Origin
from fairlane.model.limits import PARTITIONS_MAX
from fairlane.model.message import Delivery, Receipt
from fairlane.model.message import Receipt as ModelReceipt
from fairlane.model.partitions import MARK, Split, served_name
from fairlane.verbs.leases import Lease, Nack
from fairlane.verbs.messages import Results
from fairlane.verbs.table import VERBS

PATIENCE_S: Final = 2.0
"""So long a request waits for a queue that is on its way."""
_LOOK_S: Final = 0.2
_NOBODY: Final = Origin()
_ROUNDS: Final = 5
"""So often a request begins anew because a queue is split otherwise by now."""

Answer: TypeAlias = msgspec.Struct
Special = Callable[["ClusterRouter", Any, Caller, Origin], Awaitable[Answer]]
Spread = Callable[["Whole", Any], Awaitable[Answer]]


class ClusterRouter:
    """Answers verbs at a node."""

    def __init__(
        self,
        node: Node,
        nodes: OtherNodes,
        special: Mapping[str, Special],
        spread: Mapping[str, Spread],
        *,
        keys: PartitionKeys,
    ) -> None:
        """Answer at a node.

        Args:
            node: the node.
            nodes: asks other nodes.
            special: what to do for verbs that are about more than one queue, or need more than its broker.
            spread: what to do for verbs that are about a queue which is split; the others it can't be asked as a whole.
            keys: finds the partition of a new message.
        """
        self.node = node
        self.groups = node.groups
        self.changes = node.changes
        self.keys = keys
        self.splitting = asyncio.Lock()
        """Held while a queue is split, or changed in all its partitions: of two at once the second sees the first."""
        self.turn = secrets.randbelow(PARTITIONS_MAX)
        """Grows with each lease of a queue that is split."""
        self._nodes = nodes
        self._special = special
        self._spread = spread
        self._withdrawals = Withdrawals(monotonic=asyncio.get_running_loop().time)

    async def call(self, name: str, request: Any, caller: Caller, origin: Origin) -> Answer:  # noqa: ANN401 - by verb
        """Do what a verb says, here or elsewhere.

        Raises:
            FairlaneError: it was refused.
        """
        if origin.lease_name is not None and name in ("lease", "nack"):
            return await self._call_named(name, request, caller, origin)
        begun_s, left = asyncio.get_running_loop().time(), request
        for _ in range(_ROUNDS):
            split = self.split_of(getattr(request, "queue", None)) if self.groups.splits else None
            if split is not None:
                self._check_spread(name, request, split, origin)
            try:
                if name in self._special:
                    return await self._special[name](self, request, caller, origin)
                if split is None:
                    return await self.at(name, left, request.queue, caller, origin)
                return await self._spread[name](self.whole(request.queue, split, caller, origin), left)
            except QueueSplit:
                if origin.is_forwarded or not self._is_spread(name):
                    raise
            except QueueNotFound:
                if split is None or split == self.split_of(request.queue):
                    raise
            await self.node.refresh()  # it is split otherwise than was known here
            left = _without_waited(request, since_s=begun_s)
        raise moving_on()

    async def _call_named(self, name: str, request: Any, caller: Caller, origin: Origin) -> Answer:  # noqa: ANN401 - by verb
        """Lease for another node, or take back what is leased for it, or was."""
        lease_name = origin.lease_name or ""
        give_back = partial(self.give_back, caller=caller)
        if name == "nack":
            self._withdrawals.withdraw(lease_name, give_back=give_back)
            return Results(results=[])
        leasing = self.call(name, request, caller, msgspec.structs.replace(origin, lease_name=None))
        return await self._withdrawals.leased(lease_name, request.queue, leasing, give_back=give_back)

    # ------------------------------------------------------------------------------------------------------ partitions

    def split_of(self, queue: str | None) -> Split | None:
        """Return how a queue is split, if it is asked for as a whole."""
        return None if queue is None or MARK in queue else self.groups.split_of(queue)

    def whole(self, queue: str, split: Split, caller: Caller, origin: Origin) -> Whole:
        """Return what asks all partitions of a queue."""
        return Whole(self, queue, split, caller, msgspec.structs.replace(origin, follows=False))

    def _check_spread(self, name: str, request: Any, split: Split, origin: Origin) -> None:  # noqa: ANN401 - by verb
        """Let those ask partitions themselves who can, and refuse what can't be asked of all of them.

        Raises:
            QueueSplit: the partitions are to be asked.
        """
        error = split_into(request.queue, split)
        is_followed = origin.follows and VERBS[name].is_followed
        if name == "enqueue":
            is_followed = is_followed and error.by_message
        elif name == "lease":
            is_followed = is_followed and not request.wait_ms
        if is_followed or origin.is_forwarded or not self._is_spread(name):
            raise error

    def _is_spread(self, name: str) -> bool:
        """Tell whether a verb can be asked of a queue as a whole when it is split."""
        return VERBS[name].spread is not None

    def give_back(self, queue: str, messages: Sequence[Delivery | ModelReceipt], caller: Caller) -> None:
        """Let messages go back soon that were leased for a caller who is gone, wherever their queue is by then."""
        if messages:
            receipts = [Receipt(id=message.id, token=message.token) for message in messages]
            request = Nack(queue=queue, receipts=receipts, intent="defer", delay_ms=0)
            self._nodes.behind(self._give_back(request, caller))

    async def _give_back(self, request: Nack, caller: Caller) -> None:
        with contextlib.suppress(FairlaneError):  # it goes back when its lease ends
            await self.call("nack", request, caller, _NOBODY)

    # ------------------------------------------------------------------------------------------------- where a queue is

    async def find(self, queue: str) -> AsyncBroker:
        """Return the broker that serves a queue here; wait a little for one that is on its way.

        Raises:
            QueueElsewhere, QueueMoving, QueueNotFound: none does.
            QueueSplit: there is one for each partition.
        """
        split = self.split_of(queue)
        if split is not None:
            raise split_into(queue, split)
        return await self._locate(queue, _Patience(PATIENCE_S))

    def grpc_at(self, address: str) -> str | None:
        """Return where the node that is reached at an address has its gRPC, if it has any."""
        nodes = self.node.board.view.nodes.values()
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
            FairlaneError: it was refused.
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
                return await broker.call(_as_served(request, queue), by=caller.name)
            except (QueueElsewhere, QueueMoving, StoreFenced, Closed) as error:  # nothing was done
                if isinstance(error, Closed) and broker is not None and broker in self.groups.brokers():
                    raise
            now_s = asyncio.get_running_loop().time()
            if wait_ms:
                patience.add(now_s - asked_s)
                request = msgspec.structs.replace(request, wait_ms=max(0, wait_ms - round((now_s - begun_s) * 1000)))
            self.node.lifecycle.reconcile()
            await self._wait(patience)
            await self.node.refresh()  # one of us knows more than the other

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
                await self.node.refresh()  # somebody may have made it elsewhere just now
            except QueueMoving:
                await self._wait(patience)

    async def ask(self, address: str, name: str, request: Any, caller: Caller, origin: Origin) -> Answer:  # noqa: ANN401
        """Return what another node answers."""
        return await self._nodes.ask(address, name, request, headers_of(caller, origin))

    async def _wait(self, patience: _Patience) -> None:
        if patience.left_s <= 0:
            raise moving_on()
        await self.groups.changed(min(_LOOK_S, patience.left_s))

    async def everywhere(self, name: str, request: Any, caller: Caller, origin: Origin) -> list[Any]:  # noqa: ANN401
        """Return what all brokers here answer, and all other nodes that live; those answer for themselves only.

        Raises:
            FairlaneError: one of them can't be asked, so something would be missing.
        """
        answers: list[Any] = [await broker.call(request, by=caller.name) for broker in self.groups.brokers()]
        if origin.is_forwarded:
            return answers
        asked = (self.ask(at, name, request, caller, origin) for at in self.others())
        return answers + list(await asyncio.gather(*asked))

    def others(self) -> list[str]:
        """Return the addresses of all other nodes that live."""
        return [view.address for view in self.node.seen().nodes if view.is_live and view.name != self.node.terms.name]

    def listening(self, address: str, target: str, headers: Mapping[str, str]) -> AbstractAsyncContextManager[Heard]:
        """Lend what another node answers bit by bit."""
        return self._nodes.listening(address, target, headers)


@dataclass(frozen=True, slots=True)
class Whole:
    """A queue that is split, asked as a whole by somebody.

    Attributes:
        queue: its plain name, or that of its dead letters.
        split: how it is split, as far as is known here.
    """

    router: ClusterRouter
    queue: str
    split: Split
    caller: Caller
    origin: Origin

    async def ask(self, name: str, request: Any, *, patience_s: float = PATIENCE_S) -> Any:  # noqa: ANN401 - by verb
        """Do what a verb says at the partition that a request names.

        Raises:
            FairlaneError: it was refused.
        """
        return await self.router.at(name, request, request.queue, self.caller, self.origin, patience_s=patience_s)

    def is_gone(self, at: int) -> bool:
        """Tell whether a partition that is not found may be passed over: it takes nothing new, so it was empty."""
        return at >= self.split.partitions


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


def _without_waited(request: Any, *, since_s: float) -> Any:  # noqa: ANN401 - by verb
    """Return a request with what is left of the time that it would wait."""
    if not isinstance(request, Lease) or not request.wait_ms:
        return request
    waited_ms = round((asyncio.get_running_loop().time() - since_s) * 1000)
    return msgspec.structs.replace(request, wait_ms=max(0, request.wait_ms - waited_ms))


def _as_served(request: Any, queue: str) -> Any:  # noqa: ANN401 - by verb
    """Return a request under the name by which a broker knows the queue."""
    served = served_name(queue)
    is_named = served != queue and getattr(request, "queue", None) == queue
    return msgspec.structs.replace(request, queue=served) if is_named else request


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
