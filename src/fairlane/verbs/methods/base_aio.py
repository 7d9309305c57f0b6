"""The base of all methods, for asyncio. That for threads is made from this file by ``tools/sync_verbs.py``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeVar

from fairlane.verbs.verb import Request

A = TypeVar("A")


class AsyncVerbs(ABC):
    """Calls verbs. How a request reaches a broker is left to brokers and clients."""

    @abstractmethod
    async def call(self, request: Request[A], *, by: str | None = None) -> A:
        """Return the answer to a request.

        Args:
            request: any request of ``fairlane.verbs``.
            by: the caller, for the journal of a broker in this process; a server uses the name of the API key.

        Raises:
            FairlaneError: the request was refused.
        """
