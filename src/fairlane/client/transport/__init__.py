"""Transports carry the calls of a client: over WebSocket, HTTP or gRPC to a server, or to a broker in the same process.

This module defines the two protocols that every transport implements. A transport knows nothing of retries, batching
or partitions; those are above it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fairlane.client.transport.protocol import Sink
from fairlane.model.message import Delivery
from fairlane.verbs.verb import AnyAnswer, Reply, Shape
from fairlane.wire.frames import Consume


class Channel(Protocol):
    """An open stream of deliveries."""

    async def stop(self, unseen: Sequence[Delivery]) -> None:
        """Close the channel. The broker defers unseen messages and counts a failed attempt for others in flight."""

    async def widen(self, handlers: int) -> None:
        """Change how many messages the consumer processes at the same time, without waiting for an answer."""


class Transport(Protocol):
    """Sends calls to a broker and returns the answers."""

    async def connect(self) -> None:
        """Connect, or fail at once.

        Raises:
            Disconnected: no server answers.
            Unauthenticated: the server refuses the API key.
        """

    async def call(self, verb: str, request: Shape, *, wait_ms: int = 0) -> AnyAnswer:
        """Return the answer to a request. The broker may take ``wait_ms`` longer than usual to answer.

        Raises:
            Disconnected: the connection was lost, and the outcome is unknown.
            FairlaneError: the broker refused the request.
        """

    def submit(self, verb: str, request: Shape, reply: Reply, *, wait_ms: int = 0) -> bool:
        """Send a request now and pass its answer to ``reply``; return False if that is not possible without waiting."""

    async def open(self, request: Consume, sink: Sink) -> Channel:
        """Open a channel that delivers messages to a sink.

        Raises:
            FairlaneError: the broker refused the request.
        """

    async def close(self) -> None:
        """Close all connections."""
