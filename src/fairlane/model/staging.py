"""Sinks and what is staged for them."""

from __future__ import annotations

import msgspec


class Staged(msgspec.Struct, frozen=True, kw_only=True):
    """That messages are staged: their part has so many, up to and with these."""

    count: int


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """That a batch is published.

    Attributes:
        count: how many messages it had; 0 where it was published before the sink's latest and nobody knows any more.
        was_published: whether it had been before, so that nothing happened now.
    """

    count: int
    was_published: bool


class SinkView(msgspec.Struct, frozen=True, kw_only=True):
    """A sink of a queue.

    Attributes:
        batch: the latest batch it has published; None before the first.
        staged_messages: messages that wait for their batch to be published.
        staged_bytes: their payloads.
        heard_ms: when something was last staged or published.
    """

    queue: str
    name: str
    batch: int | None
    staged_messages: int
    staged_bytes: int
    heard_ms: int
