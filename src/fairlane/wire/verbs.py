"""Every verb that crosses the network: its name, what is asked and answered, and the right it needs.

All doors speak these verbs. Over HTTP a verb is a POST of its request to its path; over the stream it is a frame with
its name and its request. The shapes are the same in JSON and msgpack; in JSON, bytes are base64.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from fairlane.model.claims import Claim, Claimed, ConsumerView
from fairlane.model.message import Delivery, Key, MessageView, NewMessage
from fairlane.model.partitions import Split
from fairlane.model.policy import QueuePolicy
from fairlane.model.staging import Published, SinkView, Staged
from fairlane.model.views import (
    ClusterView,
    DeadLetterFilter,
    Explained,
    HookStatistics,
    HookTrial,
    QueueView,
    ReaderView,
    RedriveView,
    ThrottleView,
)
from fairlane.wire.errors import ErrorBody

Right = Literal["produce", "consume", "admin"]
NackIntent = Literal["failure", "defer", "dead"]


class Shape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What all requests and answers have in common: fields by name, unknown ones refused."""


class Nothing(Shape, frozen=True, kw_only=True):
    """An answer that says no more than that it is done, or a request that needs to say nothing."""


class QueueRequest(Shape, frozen=True, kw_only=True):
    """A request about a queue."""

    queue: str


class Stats(Shape, frozen=True, kw_only=True):
    """Look at a queue in short, or with so many of its fairness keys, those with the most messages."""

    queue: str
    keys_max: int = 0


# ------------------------------------------------------------------------------------------------------------- messages


class Enqueue(Shape, frozen=True, kw_only=True):
    """Enqueue messages, each on its own."""

    queue: str
    messages: list[NewMessage]
    wait_ms: int = 30_000


class EnqueueResult(Shape, frozen=True, kw_only=True):
    """What came of one message: an id or an error."""

    id: str | None = None
    error: ErrorBody | None = None


class Enqueued(Shape, frozen=True, kw_only=True):
    """What came of each message, in order."""

    results: list[EnqueueResult]


class Lease(Shape, frozen=True, kw_only=True):
    """Lease messages, in fair order, waiting for the first of them if need be."""

    queue: str
    count: int = 1
    wait_ms: int = 0
    visibility_ms: int | None = None
    owner: str | None = None
    with_state: bool = False


class Leased(Shape, frozen=True, kw_only=True):
    """The messages that were leased; none if none came in time."""

    deliveries: list[Delivery]


class Receipt(Shape, frozen=True, kw_only=True):
    """The right to act on a leased message, and for an ack its true cost if that is told."""

    id: str
    token: int
    cost: int | None = None


class Ack(Shape, frozen=True, kw_only=True):
    """Let leased messages be done, each on its own."""

    queue: str
    receipts: list[Receipt]


class Forward(Shape, frozen=True, kw_only=True):
    """Let a leased message be done and enqueue others by queue, in one commit or not at all."""

    queue: str
    receipt: Receipt
    messages: dict[str, list[NewMessage]]


class Forwarded(Shape, frozen=True, kw_only=True):
    """The ids of what was enqueued, in order."""

    ids: list[str]


class Nack(Shape, frozen=True, kw_only=True):
    """Give leased messages back, each on its own."""

    queue: str
    receipts: list[Receipt]
    intent: NackIntent = "failure"
    error: str = ""
    delay_ms: int | None = None


class Extend(Shape, frozen=True, kw_only=True):
    """Let leases last so long from now, each on its own."""

    queue: str
    receipts: list[Receipt]
    visibility_ms: int | None = None


class Result(Shape, frozen=True, kw_only=True):
    """What came of one item: nothing to say, or an error; for an extended lease the instant at which it ends."""

    error: ErrorBody | None = None
    expires_ms: int | None = None


class Results(Shape, frozen=True, kw_only=True):
    """What came of each item, in order."""

    results: list[Result]


class Cancel(Shape, frozen=True, kw_only=True):
    """Take out messages that are not leased, each on its own."""

    queue: str
    ids: list[str]


class MessageRequest(Shape, frozen=True, kw_only=True):
    """A request about one message."""

    queue: str
    id: str
    with_body: bool = True


class Peek(Shape, frozen=True, kw_only=True):
    """Look at messages without leasing them."""

    queue: str
    count: int = 10
    after: str | None = None
    wanted: DeadLetterFilter = DeadLetterFilter()
    with_body: bool = False


class Peeked(Shape, frozen=True, kw_only=True):
    """Messages, in the order they came."""

    messages: list[MessageView]


class State(Shape, frozen=True, kw_only=True):
    """Workflow state and its version; None twice where there is none."""

    state: bytes | None = None
    etag: str | None = None


class SetState(Shape, frozen=True, kw_only=True):
    """Write workflow state under a lease, or without a state remove it, if the version still is ``etag``."""

    queue: str
    receipt: Receipt
    state: bytes | None = None
    etag: str | None = None


class Etag(Shape, frozen=True, kw_only=True):
    """The version of workflow state that is there now."""

    etag: str | None = None


# --------------------------------------------------------------------------------------------------------------- queues


class CreateQueue(Shape, frozen=True, kw_only=True):
    """Make a queue, in a cluster in a group that is named or in one that is chosen for it."""

    queue: str
    policy: QueuePolicy = QueuePolicy()
    group: str | None = None


class UpdateQueue(Shape, frozen=True, kw_only=True):
    """Change some fields of a queue's policy."""

    queue: str
    policy: dict[str, Any]


class Pause(Shape, frozen=True, kw_only=True):
    """Pause or resume a queue, or one key of it."""

    queue: str
    key: Key | None = None


class Purged(Shape, frozen=True, kw_only=True):
    """How many messages were removed."""

    count: int


class Queues(Shape, frozen=True, kw_only=True):
    """Queues, by name."""

    queues: list[QueueView]


# ----------------------------------------------------------------------------------------------------- config and hooks


class SetConfig(Shape, frozen=True, kw_only=True):
    """Set config values, or with null remove them: all of them or none."""

    values: dict[str, str | None]


class ListConfig(Shape, frozen=True, kw_only=True):
    """Ask for config values by the beginning of their keys."""

    prefix: str = ""


class Config(Shape, frozen=True, kw_only=True):
    """Config values by key."""

    values: dict[str, str]


class Throttles(Shape, frozen=True, kw_only=True):
    """Throttles that have a rate."""

    throttles: list[ThrottleView]


class TryHook(Shape, frozen=True, kw_only=True):
    """Run a script on a sample; nothing changes."""

    queue: str
    hook: Literal["on_enqueue", "on_failure"]
    script: str
    headers: dict[str, str] = {}
    payload_size: int = 0
    attempts: int = 1
    error: str = ""


# ------------------------------------------------------------------------------------------------ dead letters, journal


class Redrive(Shape, frozen=True, kw_only=True):
    """Start to move dead letters back to their queue."""

    queue: str
    wanted: DeadLetterFilter = DeadLetterFilter()
    count: int | None = None
    rate: float | None = None
    is_dry_run: bool = False


class RedriveRequest(Shape, frozen=True, kw_only=True):
    """A request about a redrive."""

    id: str


class Redrives(Shape, frozen=True, kw_only=True):
    """Redrives, the latest last."""

    redrives: list[RedriveView]


class ReadJournal(Shape, frozen=True, kw_only=True):
    """Read events of the journal after a position; in a cluster of the group of a queue."""

    after: int = 0
    count: int = 1_000
    queue: str | None = None


class Events(Shape, frozen=True, kw_only=True):
    """Events of the journal, and the position they reach to."""

    events: list[dict[str, Any]]
    position: int


class SetReader(Shape, frozen=True, kw_only=True):
    """Register a reader of the journal, or say how far it is; in a cluster of the group of a queue."""

    name: str
    position: int
    queue: str | None = None


class ReaderRequest(Shape, frozen=True, kw_only=True):
    """A request about a reader of the journal; in a cluster of the group of a queue."""

    name: str
    queue: str | None = None


class ReadersRequest(Shape, frozen=True, kw_only=True):
    """Ask for the readers of the journal; in a cluster of the group of a queue."""

    queue: str | None = None


class Readers(Shape, frozen=True, kw_only=True):
    """The registered readers of the journal."""

    readers: list[ReaderView]


# ------------------------------------------------------------------------------------------------- registered consumers


class RegisterConsumer(Shape, frozen=True, kw_only=True):
    """Register a consumer by name, in a new epoch."""

    queue: str
    consumer: str
    idle_ms: int | None = None


class MakeClaim(Shape, frozen=True, kw_only=True):
    """Let claims up to a number be done, and ask for the next."""

    queue: str
    consumer: str
    epoch: int
    done: int
    count: int = 10_000
    size_bytes: int | None = None


class ReadClaim(Shape, frozen=True, kw_only=True):
    """Read messages of an open claim, from a place on."""

    queue: str
    consumer: str
    claim: int
    start: int = 0
    count: int = 1_000


class ConsumerRequest(Shape, frozen=True, kw_only=True):
    """A request about a registered consumer."""

    queue: str
    consumer: str


class Released(Shape, frozen=True, kw_only=True):
    """How many messages were given back."""

    count: int


class Consumers(Shape, frozen=True, kw_only=True):
    """The registered consumers of a queue, by name."""

    consumers: list[ConsumerView]


# ---------------------------------------------------------------------------------------------------------------- sinks


class Stage(Shape, frozen=True, kw_only=True):
    """Append messages to a part of a batch, all of them or none."""

    queue: str
    sink: str
    batch: int
    part: str
    at: int
    messages: list[NewMessage]
    wait_ms: int = 30_000


class Publish(Shape, frozen=True, kw_only=True):
    """Let what is staged in these parts of a batch be in the queue, in this order, once."""

    queue: str
    sink: str
    batch: int
    parts: list[str]


class SinkRequest(Shape, frozen=True, kw_only=True):
    """A request about a sink."""

    queue: str
    sink: str


class Sinks(Shape, frozen=True, kw_only=True):
    """The sinks of a queue, by name."""

    sinks: list[SinkView]


# -------------------------------------------------------------------------------------------------------------- cluster


class MoveQueue(Shape, frozen=True, kw_only=True):
    """Let the group of a queue go to a node, and stay there while that lives."""

    queue: str
    node: str


class SplitQueue(Shape, frozen=True, kw_only=True):
    """Split a queue into so many partitions, or let fewer of those there are take new messages."""

    queue: str
    partitions: int


class DrainNode(Shape, frozen=True, kw_only=True):
    """Let all groups of a node go to others, or let it have groups again."""

    node: str
    is_draining: bool = True


# ------------------------------------------------------------------------------------------------------------ the table


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb: its path under ``/v1``, what is asked and answered, and the right it needs on the queue it is about."""

    path: str
    request: type[Shape]
    answer: type[msgspec.Struct]
    right: Right


VERBS: Mapping[str, Verb] = {
    "enqueue": Verb("queue/enqueue", Enqueue, Enqueued, "produce"),
    "lease": Verb("queue/dequeue", Lease, Leased, "consume"),
    "ack": Verb("queue/ack", Ack, Results, "consume"),
    "forward": Verb("queue/forward", Forward, Forwarded, "consume"),
    "nack": Verb("queue/nack", Nack, Results, "consume"),
    "extend": Verb("queue/extend", Extend, Results, "consume"),
    "cancel": Verb("queue/cancel", Cancel, Results, "admin"),
    "get": Verb("queue/get", MessageRequest, MessageView, "consume"),
    "peek": Verb("queue/peek", Peek, Peeked, "consume"),
    "explain": Verb("queue/explain", MessageRequest, Explained, "consume"),
    "get_state": Verb("queue/state/get", MessageRequest, State, "consume"),
    "set_state": Verb("queue/state/put", SetState, Etag, "consume"),
    "stats": Verb("queue/stats", Stats, QueueView, "consume"),
    "create_queue": Verb("queues/create", CreateQueue, Nothing, "admin"),
    "update_queue": Verb("queues/update", UpdateQueue, Nothing, "admin"),
    "delete_queue": Verb("queues/delete", QueueRequest, Nothing, "admin"),
    "pause": Verb("queues/pause", Pause, Nothing, "admin"),
    "resume": Verb("queues/resume", Pause, Nothing, "admin"),
    "purge": Verb("queues/purge", QueueRequest, Purged, "admin"),
    "queues": Verb("queues/list", Nothing, Queues, "admin"),
    "inspect": Verb("queues/inspect", QueueRequest, QueueView, "admin"),
    "redrive": Verb("queues/redrive", Redrive, RedriveView, "admin"),
    "redrive_view": Verb("queues/redrive/view", RedriveRequest, RedriveView, "admin"),
    "redrives": Verb("queues/redrive/list", Nothing, Redrives, "admin"),
    "stop_redrive": Verb("queues/redrive/stop", RedriveRequest, RedriveView, "admin"),
    "try_hook": Verb("queues/hook/try", TryHook, HookTrial, "admin"),
    "hook_statistics": Verb("queues/hook/statistics", QueueRequest, HookStatistics, "admin"),
    "set_config": Verb("config/set", SetConfig, Nothing, "admin"),
    "list_config": Verb("config/list", ListConfig, Config, "admin"),
    "throttles": Verb("config/throttles", Nothing, Throttles, "admin"),
    "register_consumer": Verb("queue/consumer/register", RegisterConsumer, ConsumerView, "consume"),
    "claim": Verb("queue/consumer/claim", MakeClaim, Claim, "consume"),
    "read_claim": Verb("queue/consumer/read", ReadClaim, Claimed, "consume"),
    "release_consumer": Verb("queue/consumer/release", ConsumerRequest, Released, "admin"),
    "consumers": Verb("queue/consumer/list", QueueRequest, Consumers, "consume"),
    "stage": Verb("queue/sink/stage", Stage, Staged, "produce"),
    "publish": Verb("queue/sink/publish", Publish, Published, "produce"),
    "sinks": Verb("queue/sink/list", QueueRequest, Sinks, "produce"),
    "drop_sink": Verb("queue/sink/drop", SinkRequest, Purged, "admin"),
    "read_journal": Verb("journal/read", ReadJournal, Events, "admin"),
    "set_reader": Verb("journal/reader/set", SetReader, Nothing, "admin"),
    "remove_reader": Verb("journal/reader/remove", ReaderRequest, Nothing, "admin"),
    "readers": Verb("journal/reader/list", ReadersRequest, Readers, "admin"),
    "cluster": Verb("cluster", Nothing, ClusterView, "admin"),
    "move_queue": Verb("cluster/move", MoveQueue, Nothing, "admin"),
    "split_queue": Verb("cluster/split", SplitQueue, Split, "admin"),
    "drain_node": Verb("cluster/drain", DrainNode, Nothing, "admin"),
}
"""All verbs, by name."""
