"""What all verbs of a client do, for asyncio. That for threads is made from this file by ``tools/sync_verbs.py``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from fairlane.client.conversions import Held
from fairlane.model.message import NewMessage, Receipt
from fairlane.verbs.verb import Shape


class AsyncAsking(ABC):
    """What all verbs do; how a call gets to a broker and its answer back is left to the clients."""

    @abstractmethod
    async def _call(self, verb: str, request: Shape, *, wait_ms: int = 0) -> Any:  # noqa: ANN401 - depends on the verb
        """Return the answer to a request, which is repeated where that is safe."""

    @abstractmethod
    async def _enqueue_one(self, queue: str, message: NewMessage, wait_ms: int) -> str:
        """Enqueue a message together with others that are enqueued now."""

    @abstractmethod
    async def _ack_one(self, queue: str, receipt: Receipt) -> None:
        """Ack a message together with others that are acked now."""

    @abstractmethod
    def ack_soon(self, message: Held, *, cost: int | None = None) -> None:
        """Ack a leased message with the next acks that are sent, without waiting for the answer.

        If that fails, the message comes again. ``flush`` waits for all such acks and tells which failed.
        """

    @abstractmethod
    def _stamped(self, messages: Sequence[NewMessage]) -> list[NewMessage]:
        """Return messages with the dedup ids that make it safe to repeat their enqueue."""
