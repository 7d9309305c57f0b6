"""Sinks and their staged batches."""

from __future__ import annotations

import msgspec


class StageResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of staging: how many messages the part has now."""

    count: int


class PublishResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of publishing a batch.

    Attributes:
        count: how many messages it had; 0 if it was published before the sink's latest batch, when that is no longer
            known.
        was_published: whether it had been published before, so that nothing happened now.
    """

    count: int
    was_published: bool


class SinkView(msgspec.Struct, frozen=True, kw_only=True):
    """A sink of a queue.

    Attributes:
        batch: the latest batch it has published; None before the first.
        staged_messages: messages that wait for their batch to be published.
        staged_bytes: their payload bytes.
        heard_ms: when something was last staged or published.
    """

    queue: str
    name: str
    batch: int | None
    staged_messages: int
    staged_bytes: int
    heard_ms: int
