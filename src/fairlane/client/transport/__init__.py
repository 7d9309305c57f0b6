"""What carries a client's calls: a WebSocket to a server, or a broker in the same process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from fairlane.client.transport.protocol import Reply, Sink
from fairlane.model.message import Delivery
from fairlane.verbs.verb import Shape
from fairlane.wire.frames import Consume


class Channel(Protocol):
    """An open stream of deliveries."""

    async def stop(self, unseen: Sequence[Delivery]) -> None:
        """Close it. What it had in flight goes back: as deferred what is named here, the rest as failed attempts."""


class Transport(Protocol):
    """How calls get to a broker and answers back."""

    async def connect(self) -> None:
        """Make ready, or fail at once.

        Raises:
            Disconnected, Unauthenticated: there is nobody who answers, or not to us.
        """

    async def call(self, verb: str, request: Shape, *, wait_ms: int = 0) -> Any:  # noqa: ANN401 - depends on the verb
        """Return the answer to a request that may take ``wait_ms`` by its own will.

        Raises:
            FairlaneError: it was refused, or with ``Disconnected`` nobody knows.
        """

    def submit(self, verb: str, request: Shape, reply: Reply, *, wait_ms: int = 0) -> bool:
        """Send a request at once, with its answer to a reply; or return False where that can't be done."""

    async def open(self, request: Consume, sink: Sink) -> Channel:
        """Open a channel whose messages go to a sink.

        Raises:
            FairlaneError: it was refused.
        """

    async def close(self) -> None:
        """Let go of everything."""
