"""The gateway of a node: it answers from its own brokers, or asks the node that can.

Most requests name one queue and go to the broker or node that has it (``routing``). Others concern several queues, or
where queues are (``cluster_verbs``). A queue that is split is asked by its plain name for all of its partitions
(``partitions``), or by the name of a partition for that one.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from fairlane.broker.frontends.aio import AsyncBroker
from fairlane.cluster.groups import RETRY_AFTER_MS, split_into
from fairlane.cluster.node import Node
from fairlane.cluster.partitions.keys import PartitionKeys
from fairlane.cluster.peers import Peers
from fairlane.cluster.routing import PATIENCE_S, Router, still_moving
from fairlane.errors import (
    Closed,
    FairlaneError,
    InvalidArgument,
    QueueMoving,
    QueueNotFound,
    QueueSplit,
    StoreFenced,
)
from fairlane.gateway.caller import Caller
from fairlane.gateway.context import PLAIN, CallContext
from fairlane.gateway.protocol import Answer, Observed, RemoteAnswer, ServedQueue
from fairlane.model.limits import PARTITIONS_MAX
from fairlane.model.message import Delivery, Receipt
from fairlane.model.names import new_queue_name_fault
from fairlane.model.partitions import MARK, Split, partition_name, served_name
from fairlane.verbs.leases import Lease, Nack
from fairlane.verbs.status import WATCHING
from fairlane.verbs.templates import full_text, template_for, templates_in
from fairlane.verbs.verb import Reply, Request, Verb

_ROUNDS: Final = 5
"""How often a request starts over because the queue turns out to be split differently."""

ClusterVerb = Callable[["ClusterGateway", Any, Caller, CallContext], Awaitable[Answer]]
WholeVerb = Callable[["WholeQueue", Any], Awaitable[Answer]]


class ClusterGateway:
    """The entrance to all queues of a cluster, at one node; see ``Gateway``."""

    def __init__(
        self,
        node: Node,
        peers: Peers,
        *,
        special: Mapping[str, ClusterVerb],
        spread: Mapping[str, WholeVerb],
        keys: PartitionKeys,
    ) -> None:
        """Answer at a node.

        Args:
            node: the node.
            peers: the other nodes.
            special: the verbs for which it is not enough to find the broker of their queue.
            spread: the verbs that can be asked of a split queue as a whole.
            keys: finds the partition of a new message.
        """
        self.observed: Observed = node.groups
        self.node: str | None = node.terms.name
        self.member = node
        """The node that this gateway answers for."""
        self.groups = node.groups
        self.keys = keys
        self.router = Router(node, peers)
        self.splitting = asyncio.Lock()
        """Held while a queue is split, or changed in all its partitions, so that of two changes the later sees both."""
        self.turn = secrets.randbelow(PARTITIONS_MAX)
        """The partition that is asked first by the next lease of a split queue; it grows with each."""
        self._peers = peers
        self._proofs = node.proofs()
        peers.on_late = self.give_back
        self._special = special
        self._spread = spread
        self._tasks: set[asyncio.Task[None]] = set()

    # ----------------------------------------------------------------------------------------------------------- calls

    def ask(
        self, request: Request[Any], caller: Caller, context: CallContext, reply: Reply
    ) -> asyncio.Task[None] | None:
        """Ask the broker that serves the queue here, or if that takes more than one broker, return a task that does."""
        queue = getattr(request, "queue", None)
        served = None if queue is None else self.groups.served_as(queue)
        if served is None or request.verb.name in self._special:
            return self._start(self._reply(request, caller, context, reply))
        if served != queue:
            request = msgspec.structs.replace(request, queue=served)
        producer = None if caller.grants is None else caller.limits_on(request)
        self.groups.of(served).ask(request, reply, by=caller.name, producer=producer)
        return None

    async def _reply(self, request: Request[Any], caller: Caller, context: CallContext, reply: Reply) -> None:
        try:
            answer = await self.call(request, caller, context)
        except Exception as error:  # noqa: BLE001 - the reply decides what is ours
            if not reply.done():
                reply.set_exception(error)
            return
        if not reply.done():
            reply.set_result(answer)
        elif isinstance(request, Lease):
            self.give_back(request.queue, answer.deliveries, caller)  # type: ignore[attr-defined]  # it is LeasedMessages

    async def call(self, request: Request[Any], caller: Caller, context: CallContext) -> Answer:
        """Return the answer to a request, from here or from another node."""
        verb = request.verb
        begun_s, rest = asyncio.get_running_loop().time(), request
        for _ in range(_ROUNDS):
            queue: str | None = getattr(request, "queue", None)
            split = self.split_of(queue) if queue is not None and self.groups.splits else None
            if split is not None:
                self._check_spread(verb, request, split, context)
            try:
                return await self._answer(verb, rest, queue or "", split, caller, context)
            except QueueSplit:
                if context.is_forwarded or verb.spread is None:
                    raise
            except QueueNotFound:
                may_create = verb.may_create and split is None and not context.is_forwarded
                if may_create and await self.list_missing(queue or ""):
                    continue
                if split is None or split == self.split_of(queue or ""):
                    raise
            await self.member.refresh()  # the queue is split differently than this node knew
            rest = _with_time_left(request, since_s=begun_s)
        raise still_moving()

    def _answer(
        self,
        verb: Verb,
        request: Request[Any],
        queue: str,
        split: Split | None,
        caller: Caller,
        context: CallContext,
    ) -> Awaitable[Answer]:
        special = self._special.get(verb.name)
        if special is not None:
            return special(self, request, caller, context)
        if split is None:
            return self.router.at(queue, request, caller, context)
        return self._spread[verb.name](self.whole(queue, split, caller, context), request)

    # ------------------------------------------------------------------------------------------------------ partitions

    def split_of(self, queue: str) -> Split | None:
        """Return how a queue is split that a caller names as a whole; None if it is not."""
        return None if MARK in queue else self.groups.split_of(queue)

    def check_whole(self, queue: str) -> None:
        """Raise QueueSplit if a queue is split, for requests that need a whole queue or one partition."""
        split = self.split_of(queue)
        if split is not None:
            raise split_into(queue, split)

    def whole(self, queue: str, split: Split, caller: Caller, context: CallContext) -> WholeQueue:
        """Return a split queue, to be asked as a whole."""
        return WholeQueue(self, queue, split, caller, msgspec.structs.replace(context, follows=False))

    @staticmethod
    def _check_spread(verb: Verb, request: Any, split: Split, context: CallContext) -> None:  # noqa: ANN401 - by verb
        """Refuse what can't be asked of a whole queue, and what a client that follows asks of partitions itself.

        Raises:
            QueueSplit: the partitions are to be asked.
        """
        error = split_into(request.queue, split)
        is_followed = context.follows and verb.is_followed
        if verb.name == "enqueue":
            # Where a policy or a script chooses the key, a client can't tell the partition of a message.
            is_followed = is_followed and error.by_message
        elif verb.name == "lease":
            # A wait is a wait at every partition at once, which is the node's to do.
            is_followed = is_followed and not request.wait_ms
        if is_followed or context.is_forwarded or verb.spread is None:
            raise error

    # ------------------------------------------------------------------------------------------ consuming and observing

    async def served(self, queue: str) -> ServedQueue:
        """Return the broker that serves a queue here. Wait a little for a queue that moves here.

        Raises:
            QueueElsewhere, QueueMoving, QueueNotFound: no broker here does.
            QueueSplit: each partition has a broker of its own.
        """
        self.check_whole(queue)
        try:
            broker = await self.router.find(queue)
        except QueueNotFound:
            if not await self.list_missing(queue):
                raise
            broker = await self.router.find(queue)
        return ServedQueue(broker, served_name(queue))

    async def list_missing(self, queue: str, *, group: str | None = None) -> bool:
        """Put a queue that no node has on the board if its template creates it, and return whether it is there now.

        The broker that gets the group creates the queue when a request arrives. So the caller needs no right but that
        on its own request.

        Raises:
            QueueNotFound: the template creates no more queues.
        """
        template = template_for(templates_in(self.member.board.view.config), queue)
        if template is None or not template.auto_create or self.groups.location_of(queue) is not None:
            return False
        if MARK in queue or new_queue_name_fault(queue) is not None:
            return False
        if (full := full_text(queue, template, len(self.groups.locations))) is not None:
            raise QueueNotFound(full)
        await self.member.changes.list_queue(queue, group=group)
        self.member.note()
        return True

    async def journal_of(self, queue: str | None) -> AsyncBroker:
        """Return the broker that keeps the journal of a queue's group."""
        if queue is None:
            raise InvalidArgument("Each group of a cluster has its own journal: name a queue of the group.")
        return (await self.served(queue)).broker

    async def left(self, queue: str) -> None:
        """Return when a queue is no longer served here, or is split differently."""
        await self.groups.gone(queue)

    def give_back(self, queue: str, messages: Sequence[Delivery | Receipt], caller: Caller) -> None:
        """Return messages to their queue soon, wherever it is by then."""
        if messages:
            receipts = [Receipt(message.id, message.token) for message in messages]
            request = Nack(queue=queue, receipts=receipts, intent="defer", delay_ms=0)
            self._peers.start(self._give_back(request, caller))

    async def _give_back(self, request: Nack, caller: Caller) -> None:
        with contextlib.suppress(FairlaneError):  # then the messages go back when their leases end
            await self.call(request, caller, PLAIN)

    def explained(self, error: FairlaneError) -> FairlaneError:
        """Return the error of a broker that closes, or has lost its store, as what it means: the queue moves."""
        if isinstance(error, (Closed, StoreFenced)):
            asyncio.get_running_loop().call_soon(self.member.lifecycle.reconcile)  # it may be the first to know
            return QueueMoving("The queue is moving to another node.", retry_after_ms=RETRY_AFTER_MS)
        return error

    def shown_name(self, queue: str) -> str:
        """Return the name that means what a broker calls a queue: of a queue that is split, its first partition."""
        return queue if self.split_of(queue) is None else partition_name(queue, 0)

    def brokers(self) -> list[AsyncBroker]:
        """Return all brokers that are open here."""
        return self.groups.brokers()

    # ----------------------------------------------------------------------------------------------------- other nodes

    def grpc_address(self, address: str) -> str | None:
        """Return the gRPC address of the node with this HTTP address, if it has one."""
        nodes = self.member.board.view.nodes.values()
        return next((entry.grpc for entry in nodes if entry.address == address), None)

    def is_node(self, proof: str) -> bool:
        """Return whether a request comes from another node of this cluster, by the proof that it carries."""
        return self._proofs.is_valid(proof)

    def other_addresses(self) -> list[str]:
        """Return the addresses of all other nodes that live."""
        return self.member.other_addresses()

    def listen(
        self, address: str, target: str, headers: Mapping[str, str]
    ) -> AbstractAsyncContextManager[RemoteAnswer]:
        """Return the answer of another node to a GET, in pieces."""
        return self._peers.listen(address, target, headers)

    def renew_tls(self, tls: ssl.SSLContext | None) -> None:
        """Use another TLS context for new connections to other nodes."""
        self._peers.renew_tls(tls)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """End what is under way, and close the connections to other nodes."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._peers.close()


@dataclass(frozen=True, slots=True)
class WholeQueue:
    """A split queue that a caller asks as a whole.

    Attributes:
        gateway: the gateway that was asked.
        queue: the plain name of the queue, or of its dead-letter queue.
        split: how it is split, as far as this node knows.
        caller: who asks.
        context: the context of the call.
    """

    gateway: ClusterGateway
    queue: str
    split: Split
    caller: Caller
    context: CallContext

    async def ask(self, request: Request[Any], *, patience_s: float = PATIENCE_S) -> Any:  # noqa: ANN401 - by verb
        """Return the answer of the partition that a request names."""
        queue: str = request.queue  # type: ignore[attr-defined]  # it names one
        return await self.gateway.router.at(queue, request, self.caller, self.context, patience_s=patience_s)

    def may_be_gone(self, at: int) -> bool:
        """Return whether to pass over a partition that is not found: it takes no new messages, so it was empty."""
        return at >= self.split.partitions


def _with_time_left(request: Request[Any], *, since_s: float) -> Request[Any]:
    """Return a request with what is left of its wait."""
    if not isinstance(request, (Lease, *WATCHING)) or not request.wait_ms:
        return request
    waited_ms = round((asyncio.get_running_loop().time() - since_s) * 1000)
    return msgspec.structs.replace(request, wait_ms=max(0, request.wait_ms - waited_ms))
