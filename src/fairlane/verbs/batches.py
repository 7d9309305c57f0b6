"""Verbs for work in repeatable batches: registered consumers claim batches, sinks publish them."""

from __future__ import annotations

from typing import Final

from fairlane.model.bounds import Batch, Parts
from fairlane.model.claims import Claim, Claimed, ConsumerView
from fairlane.model.limits import BATCH_MAX
from fairlane.model.message import NewMessage
from fairlane.model.staging import PublishResult, SinkView, StageResult
from fairlane.verbs.queues import MessageCount
from fairlane.verbs.verb import Request, Shape, Verb

STAGE_WAIT_MS: Final = 30_000
"""How long a stage waits for capacity by default, where the queue's policy is to wait."""

# ------------------------------------------------------------------------------------------------- registered consumers


@Verb(name="register_consumer", path="queue/consumer/register", right="consume", repeat="always", service="Batches")
class RegisterConsumer(Request[ConsumerView], frozen=True, kw_only=True):
    """Register a consumer by name, in a new epoch.

    Attributes:
        idle_ms: how long the consumer may stay silent before its open claim is returned; forever by default.
    """

    queue: str
    consumer: str
    idle_ms: int | None = None


@Verb(name="claim", path="queue/consumer/claim", right="consume", repeat="always", is_new_work=True, service="Batches")
class MakeClaim(Request[Claim], frozen=True, kw_only=True):
    """Complete claims and return the next one.

    Attributes:
        done: all claims up to this number are complete; 0 before the first.
        count: the most messages of a new claim.
        size_bytes: a new claim ends with the message that reaches this many bytes, with headers and state.
    """

    queue: str
    consumer: str
    epoch: int
    done: int
    count: int = BATCH_MAX
    size_bytes: int | None = None


@Verb(name="read_claim", path="queue/consumer/read", right="consume", repeat="always", is_look=True, service="Batches")
class ReadClaim(Request[Claimed], frozen=True, kw_only=True):
    """Return messages of an open claim.

    Attributes:
        claim: the number of the claim.
        start: the first index to return.
        count: the most messages to return.
    """

    queue: str
    consumer: str
    claim: int
    start: int = 0
    count: int = 1_000


@Verb(
    name="release_consumer",
    path="queue/consumer/release",
    right="admin",
    service="Batches",
    command="consumers release",
)
class ReleaseConsumer(Request[MessageCount], frozen=True, kw_only=True):
    """Delete a registered consumer and return its claimed messages to the queue."""

    queue: str
    consumer: str


class ConsumerList(Shape, frozen=True, kw_only=True):
    """The registered consumers of a queue, by name."""

    consumers: list[ConsumerView]


@Verb(
    name="consumers",
    path="queue/consumer/list",
    right="observe",
    repeat="always",
    service="Batches",
    command="consumers list",
)
class ListConsumers(Request[ConsumerList], frozen=True, kw_only=True):
    """Return the registered consumers of a queue."""

    queue: str


# ---------------------------------------------------------------------------------------------------------------- sinks


@Verb(name="stage", path="queue/sink/stage", right="produce", repeat="always", is_new_work=True, service="Batches")
class Stage(Request[StageResult], frozen=True, kw_only=True):
    """Append messages to a part of a batch, all of them or none.

    Attributes:
        at: how many messages of the part were staged before.
        wait_ms: how long to wait for capacity where the queue's policy is to wait; 30 seconds by default.
    """

    queue: str
    sink: str
    batch: int
    part: str
    at: int
    messages: Batch[NewMessage]
    wait_ms: int = STAGE_WAIT_MS


@Verb(name="publish", path="queue/sink/publish", right="produce", repeat="always", service="Batches")
class Publish(Request[PublishResult], frozen=True, kw_only=True):
    """Publish staged parts of a batch to the queue, in this order and only once."""

    queue: str
    sink: str
    batch: int
    parts: Parts


class SinkList(Shape, frozen=True, kw_only=True):
    """Sinks of a queue, by name."""

    sinks: list[SinkView]


@Verb(name="sinks", path="queue/sink/list", right="produce", repeat="always", service="Batches", command="sinks list")
class ListSinks(Request[SinkList], frozen=True, kw_only=True):
    """Return the sinks of a queue that the caller may use."""

    queue: str


@Verb(name="drop_sink", path="queue/sink/drop", right="admin", service="Batches", command="sinks drop")
class DropSink(Request[MessageCount], frozen=True, kw_only=True):
    """Delete a sink and the messages that are staged for it."""

    queue: str
    sink: str
