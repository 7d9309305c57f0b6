"""Stores that several processes can reach, each at a location of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Protocol

from fairlane.adapters.postgres.store import PostgresStore
from fairlane.adapters.s3.bucket import AzureContainer, S3Bucket
from fairlane.adapters.s3.store import S3Store
from fairlane.adapters.shared.ownership import Ownership
from fairlane.ports.store import Store
from tests.conftest import BUCKET

KINDS = ("postgres", "s3", "azure")
_numbers = itertools.count(1)


class OwnedStore(Store, Protocol):
    """A store with an owner, which can send a heartbeat."""

    def renew(self) -> None: ...


class HandClock:
    """A monotonic clock that a test moves, so that a process seems to have been stopped."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


class Place:
    """The location of one store, with any number of store objects on it."""

    def __init__(self, make: Callable[..., OwnedStore]) -> None:
        self._make = make

    def store(self, *, clock: HandClock | None = None, sends_heartbeats: bool = False, **terms: Any) -> OwnedStore:
        """Return a store that is not open yet, whose owner sends heartbeats only by commits."""
        ownership = Ownership(sends_heartbeats=sends_heartbeats, **terms)
        return self._make(ownership=ownership, **({} if clock is None else {"monotonic": clock}))


def place_on(kind: str, server: Any) -> Place:
    """Return a new location on a server of a kind."""
    name = f"owned-{next(_numbers)}"

    def make(**options: Any) -> OwnedStore:
        if kind == "postgres":
            return PostgresStore(server.url, namespace=name, **options)
        if kind == "azure":
            return S3Store(AzureContainer(f"{BUCKET}/{name}", endpoint=server.endpoint), window_ms=0, **options)
        bucket = S3Bucket(f"{BUCKET}/{name}", endpoint=server.endpoint, is_anonymous=True)
        return S3Store(bucket, window_ms=0, **options)

    return Place(make)
