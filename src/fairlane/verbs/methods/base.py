"""The base of all methods, for threads. Generated from its twin by ``tools/sync_verbs.py``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeVar

from fairlane.verbs.verb import Request

A = TypeVar("A")


class Verbs(ABC):
    """Calls verbs. How a request reaches a broker is left to brokers and clients."""

    @abstractmethod
    def call(self, request: Request[A], *, by: str | None = None) -> A:
        """Return the answer to a request.

        Args:
            request: any request of ``fairlane.verbs``.
            by: the caller, for the journal of a broker in this process; a server uses the name of the API key.

        Raises:
            FairlaneError: the request was refused.
        """
