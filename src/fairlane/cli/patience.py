"""Waiting for messages longer than one request may."""

from __future__ import annotations

from time import monotonic

from fairlane.cli.door import Door
from fairlane.model.message import Delivery

_SLICE_MS = 20_000


def lease(
    door: Door,
    queue: str,
    count: int,
    *,
    wait_ms: int,
    visibility_ms: int | None = None,
    owner: str | None = None,
    with_state: bool = False,
) -> list[Delivery]:
    """Lease messages, waiting for the first of them in requests of some seconds each."""
    until = monotonic() + wait_ms / 1000
    rest_ms = wait_ms
    while True:
        leased = door.lease(
            queue,
            count,
            wait_ms=min(rest_ms, _SLICE_MS),
            visibility_ms=visibility_ms,
            owner=owner,
            with_state=with_state,
        )
        if leased or rest_ms <= _SLICE_MS:
            return [one if isinstance(one, Delivery) else one.delivery for one in leased]
        rest_ms = max(0, int((until - monotonic()) * 1000))
