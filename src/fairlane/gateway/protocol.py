"""The protocol behind all network interfaces: verbs are called, queues are consumed and observed.

A server on its own has a ``LocalGateway`` in front of its one broker. A node of a cluster has a ``ClusterGateway``,
which answers from its own brokers or asks the node that can. Interfaces never ask which of the two they have.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import msgspec

from fairlane.broker.engine.engine import Tap
from fairlane.broker.frontends.aio import AsyncBroker
from fairlane.broker.measurements import BrokerMetrics, Waited
from fairlane.errors import FairlaneError
from fairlane.gateway.caller import Caller
from fairlane.gateway.context import CallContext
from fairlane.model.message import Delivery, Key, Receipt
from fairlane.model.views import BreakerCause, QueueView
from fairlane.verbs.verb import Reply, Request

Answer: TypeAlias = msgspec.Struct
HandOutTap: TypeAlias = Callable[[list[Key], list[int]], None]


class ServedQueue(NamedTuple):
    """A queue that is served in this process.

    Attributes:
        broker: the broker that serves it.
        name: the name by which that broker knows it.
    """

    broker: AsyncBroker
    name: str


@dataclass(frozen=True, slots=True)
class RemoteAnswer:
    """An answer of another node that arrives in pieces.

    Attributes:
        status: the HTTP status.
        headers: the headers, by their names in lower case.
        pieces: the body.
    """

    status: int
    headers: Mapping[str, str]
    pieces: AsyncIterator[bytes]


class Observed(Protocol):
    """What observers ask of a broker, or of all brokers of a node: counts, views and taps, never other nodes."""

    def now_ms(self) -> int:
        """Return the time."""

    async def queues(self) -> list[QueueView]:
        """Return all queues that are served here."""

    async def queue(self, queue: str, *, keys_max: int = 0) -> QueueView:
        """Return a queue."""

    async def look_at(
        self, queue: str, *, keys_max: int, wanted: Callable[[Key], bool] | None = None
    ) -> tuple[QueueView, float]:
        """Return a queue with some of its fairness keys, and the CPU seconds it took."""

    def watch_hand_outs(self, queue: str, tell: HandOutTap) -> Callable[[], None]:
        """Call a function with everything that a queue hands out. Call the result to end that."""

    def waited(self, queue: str, number: int) -> Waited | None:
        """Return since when a message could go that was just handed out."""

    def measured(self) -> BrokerMetrics:
        """Return all measurements."""

    def terms_of(self, queue: str, numbers: Iterable[int]) -> tuple[list[Key], list[int]]:
        """Return the fairness keys and costs of messages."""

    def weight_of(self, queue: str, key: Key) -> int:
        """Return the weight of a fairness key."""

    def bypass_of(self, queue: str) -> BreakerCause | None:
        """Return why the scripts of a queue are bypassed now; None if they are not."""

    async def get_config(self, key: str) -> str | None:
        """Return a config value. This answers only while the store does."""

    async def list_private_config(self, prefix: str) -> dict[str, str]:
        """Return config values by prefix, those included that no verb shows."""

    async def set_private_config(self, key: str, value: str | None, *, by: str | None = None) -> None:
        """Set a config value that no verb shows, or with None remove it."""

    def add_tap(self, tap: Tap) -> None:
        """Call a function with every record once it is durable."""

    def call_after_answers(self, callback: Callable[[], None]) -> None:
        """Call back after all answers of the present cycle are given."""


class Gateway(Protocol):
    """The entrance to all queues that callers of this process can reach.

    Attributes:
        observed: what is served here, for observers.
        node: the name of this node; None for a server on its own.
    """

    observed: Observed
    node: str | None

    def call(self, request: Request[Any], caller: Caller, context: CallContext) -> Awaitable[Answer]:
        """Return the answer to a request.

        Raises:
            FairlaneError: the request was refused.
        """

    def ask(
        self, request: Request[Any], caller: Caller, context: CallContext, reply: Reply
    ) -> asyncio.Task[None] | None:
        """Send the answer to a request to a reply.

        Where the queue is served here, the broker answers by itself. Otherwise this returns the task that finds the
        answer, to be cancelled if the caller leaves.

        Raises:
            FairlaneError: the request was refused at once.
        """

    async def served(self, queue: str) -> ServedQueue:
        """Return the broker that serves a queue here, to be consumed or observed.

        Raises:
            QueueElsewhere, QueueMoving, QueueNotFound, QueueSplit: no broker here does.
        """

    async def journal_of(self, queue: str | None) -> AsyncBroker:
        """Return the broker that keeps the journal of a queue; None means the only journal there is.

        Raises:
            InvalidArgument: there are several journals, and no queue says which.
            QueueElsewhere, QueueMoving, QueueNotFound: no broker here keeps it.
        """

    async def left(self, queue: str) -> None:
        """Return when a queue is no longer served here, or is split differently."""

    def give_back(self, queue: str, messages: Sequence[Delivery | Receipt], caller: Caller) -> None:
        """Return messages to their queue that were leased for a caller who is gone, wherever the queue is now."""

    def explained(self, error: FairlaneError) -> FairlaneError:
        """Return an error as a caller should see it: a queue whose broker closes is about to be served elsewhere."""

    def check_whole(self, queue: str) -> None:
        """Refuse to observe a queue that is split; its partitions can be observed, each by its name.

        Raises:
            QueueSplit: it is.
        """

    def shown_name(self, queue: str) -> str:
        """Return the name under which observers show what a broker calls a queue."""

    def brokers(self) -> list[AsyncBroker]:
        """Return all brokers that are open here."""

    def grpc_address(self, address: str) -> str | None:
        """Return the gRPC address of the node with this HTTP address, if it has one."""

    def is_node(self, proof: str) -> bool:
        """Return whether a request comes from another node of this cluster, by the proof that it carries."""

    def other_addresses(self) -> list[str]:
        """Return the addresses of all other nodes that live."""

    def listen(
        self, address: str, target: str, headers: Mapping[str, str]
    ) -> AbstractAsyncContextManager[RemoteAnswer]:
        """Return the answer of another node to a GET, in pieces.

        Raises:
            QueueMoving, Disconnected: the node can't be reached, or the answer broke off.
        """
