"""Clients of a broker in the same process: the verbs of the server, without the network.

``Client.embedded`` and ``AsyncClient.embedded`` open this transport. A client that is created with an
``EmbeddedTransport`` can share a broker that is already open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from fairlane.assembly import AsyncBroker, BrokerConfig, open_async_broker
from fairlane.broker.frontends.deliveries import AsyncDeliveries
from fairlane.client.tracing import current_trace
from fairlane.client.transport.protocol import Sink
from fairlane.errors import Closed, FairlaneError, QueueNotFound
from fairlane.gateway.caller import ANYBODY
from fairlane.gateway.context import PLAIN, CallContext
from fairlane.gateway.local import LocalGateway
from fairlane.model.message import Delivery
from fairlane.server.context import ServerContext
from fairlane.verbs.verb import Reply, Request, Shape
from fairlane.wire.frames import Consume


class EmbeddedTransport:
    """Calls to a broker in this process: one that is given, or one that it opens and closes itself."""

    def __init__(self, broker: AsyncBroker | BrokerConfig | Path | str | None = None) -> None:
        self._given = broker
        self._broker: AsyncBroker | None = broker if isinstance(broker, AsyncBroker) else None
        self._server: ServerContext | None = None
        self._channels: set[EmbeddedChannel] = set()

    async def connect(self) -> None:
        """Open the broker; see ``Transport``."""
        if self._server is None:
            given = self._given
            broker = given if isinstance(given, AsyncBroker) else await open_async_broker(given)
            self._broker, self._server = broker, ServerContext(LocalGateway(broker))

    async def call(self, verb: str, request: Shape, *, wait_ms: int = 0) -> Any:  # noqa: ANN401, ARG002 - see Transport
        """Return the answer to a request; see ``Transport``."""
        if self._server is None:
            raise Closed("The client is not connected.")
        trace = current_trace()
        context = PLAIN if trace is None else CallContext(None, trace)
        return await self._server.call(cast("Request[Any]", request), ANYBODY, context)

    def submit(self, verb: str, request: Shape, reply: Reply, *, wait_ms: int = 0) -> bool:  # noqa: ARG002
        """See ``Transport``: calls in the same process are no quicker without a task."""
        return False

    async def open(self, request: Consume, sink: Sink) -> EmbeddedChannel:
        """Open a channel; see ``Transport``."""
        if self._broker is None:
            raise Closed("The client is not connected.")
        deliveries = self._broker.consume(
            request.queue,
            credit=request.credit,
            visibility_ms=request.visibility_ms,
            owner=request.owner,
            with_state=request.with_state,
            handlers=request.credit if request.handlers is None else request.handlers,
        )
        await deliveries.__aenter__()
        channel = EmbeddedChannel(self._broker, request.queue, deliveries, sink, self._channels)
        self._channels.add(channel)
        return channel

    async def close(self) -> None:
        """Release the broker, and close it unless the caller opened it."""
        for channel in list(self._channels):
            await channel.stop(())
        if self._broker is not None and self._broker is not self._given:
            await self._broker.close()


class EmbeddedChannel:
    """A stream of the broker, whose messages go to a sink."""

    def __init__(
        self,
        broker: AsyncBroker,
        queue: str,
        deliveries: AsyncDeliveries,
        sink: Sink,
        channels: set[EmbeddedChannel],
    ) -> None:
        self._broker = broker
        self._queue = queue
        self._deliveries = deliveries
        self._sink = sink
        self._channels = channels
        deliveries.on_cancelled = sink.cancelled
        self._pump = asyncio.get_running_loop().create_task(self._run())

    async def stop(self, unseen: Sequence[Delivery]) -> None:
        """Close it; see ``Channel``."""
        self._channels.discard(self)
        self._pump.cancel()
        with suppress(asyncio.CancelledError):
            await self._pump
        with suppress(FairlaneError):  # the queue may be gone
            if unseen:
                await self._broker.nack_many(self._queue, unseen, intent="defer")
            await self._deliveries.close()

    async def widen(self, handlers: int) -> None:
        """Change the number of handlers; see ``Channel``."""
        self._broker.widen(self._deliveries._consumer, handlers)

    async def _run(self) -> None:
        async for delivery in self._deliveries:
            self._sink.deliver([delivery])
        self._sink.ended(QueueNotFound(f"Queue {self._queue!r} has been deleted."))
