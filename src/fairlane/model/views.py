"""What observers and operators see: queues, keys, reasons, redrives, readers, hooks. Values only."""

from __future__ import annotations

from typing import Literal

import msgspec

from fairlane.model.answers import EnqueueAnswer, FailureAnswer
from fairlane.model.claims import ConsumerView
from fairlane.model.message import Key
from fairlane.model.partitions import Split
from fairlane.model.policy import QueuePolicy
from fairlane.model.staging import SinkView


class KeyView(msgspec.Struct, frozen=True, kw_only=True):
    """One fairness key of a queue.

    Attributes:
        messages: all that it has in the queue, leased or not.
        wait_p50_ms: how long half of those that were handed out in the last minute or two had waited at most; from a
            sample if there were many, and at most an eighth too long. None if there were none.
        wait_p99_ms: the same for all but one of a hundred.
        throttle: the throttle that holds back everything of the key that is due; None if something may go.
        throttled_until_ms: when that throttle has a token again; None if it never will.
    """

    key: Key
    messages: int
    leased: int
    weight: int
    cap: int | None
    deficit: int
    is_paused: bool
    wait_p50_ms: int | None = None
    wait_p99_ms: int | None = None
    throttle: str | None = None
    throttled_until_ms: int | None = None


class StreamView(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer that messages are streamed to.

    Attributes:
        credit: how many messages it may have in flight.
        leased: how many it has.
        oldest_token: the fencing token of the oldest of these leases, None if it has none.
    """

    owner: str | None
    credit: int
    leased: int
    oldest_token: int | None = None


class ThrottleView(msgspec.Struct, frozen=True, kw_only=True):
    """One throttle that has a rate."""

    name: str
    rate: float
    burst: float
    tokens: int


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """A queue as an observer sees it.

    Attributes:
        waiting: messages that are not leased, delayed ones included.
        claimed: of the leased ones, those that registered consumers have claimed.
        oldest_ms: when the oldest of its messages was enqueued.
        active_keys: how many fairness keys have messages; counted only where keys are asked for.
        keys: the fairness keys with the most messages, as many as were asked for; a hundred with ``inspect``.
        throttles: those that its messages name and that have a rate.
        registered: its registered consumers; told by ``inspect`` only.
        staged: messages that wait for their batch to be published; within the limits, and in no other number here.
        sinks: told by ``inspect`` only.
        partitions: how many partitions it has, in a cluster; 1 for one that is not split.
    """

    name: str
    policy: QueuePolicy
    created_ms: int
    is_paused: bool
    paused_keys: tuple[Key, ...]
    waiting: int
    leased: int
    size: int
    dead: int
    oldest_ms: int | None
    active_keys: int | None
    waiters: int
    consumers: int
    keys: tuple[KeyView, ...] = ()
    throttles: tuple[ThrottleView, ...] = ()
    claimed: int = 0
    registered: tuple[ConsumerView, ...] = ()
    staged: int = 0
    sinks: tuple[SinkView, ...] = ()
    partitions: int = 1


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """Why a message is not being worked on, or that it is.

    Attributes:
        reason: ``leased``, ``queue_paused``, ``paused``, ``capped``, ``throttled``, ``not_due``, ``no_consumer``,
            ``turn`` (others go first), or ``expired``.
        words: the same for people.
        until_ms: when the reason ends by itself, where that is known.
        turns: how many turns of other keys come first, where that is known.
    """

    id: str
    queue: str
    reason: str
    words: str
    until_ms: int | None = None
    turns: int | None = None
    key: Key | None = None
    throttle: str | None = None
    owner: str | None = None


class DeadLetterFilter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters are meant: all of what is said must hold.

    Attributes:
        fairness_key: of this key.
        error: one of its errors has this text in it.
        reason: died for this reason.
        older_than_ms: has been dead at least so long.
        newer_than_ms: has been dead at most so long.
        ids: is one of these.
    """

    fairness_key: Key | None = None
    error: str | None = None
    reason: str | None = None
    older_than_ms: int | None = None
    newer_than_ms: int | None = None
    ids: tuple[str, ...] | None = None


class RedriveView(msgspec.Struct, frozen=True, kw_only=True):
    """How far a redrive is.

    Attributes:
        scanned: dead letters looked at, of ``total``.
        matched: those that were meant.
        moved: those that are back in their queue; in a dry run always none.
    """

    id: str
    queue: str
    status: Literal["running", "done", "stopped", "failed"]
    is_dry_run: bool
    total: int
    scanned: int
    matched: int
    moved: int
    started_ms: int
    ended_ms: int | None
    error: str | None


class ReaderView(msgspec.Struct, frozen=True, kw_only=True):
    """A registered reader of the journal.

    Attributes:
        behind: how many events it has not read.
        is_passed: whether some of them are gone already.
    """

    name: str
    position: int
    at_ms: int
    behind: int
    is_passed: bool


class HookTrial(msgspec.Struct, frozen=True, kw_only=True):
    """What came of trying a script on a sample: an answer or a fault, and how long it took."""

    answer: EnqueueAnswer | FailureAnswer | None
    fault: str | None
    elapsed_us: int


class HookStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """How the scripts of one queue have done since the broker was opened."""

    calls: int
    faults: int
    bypassed: int
    """Calls not made because the breaker was open."""
    elapsed_us: int
    is_open: bool
    """Whether the breaker is open, so that no script is run."""
    last_fault: str | None
    trips: int = 0
    """How often the breaker has opened."""


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A node of a cluster, as another sees it.

    Attributes:
        address: where its HTTP door is reached, and ``grpc`` its other one.
        is_live: whether it has shown within the lease that it lives.
        is_draining: whether its groups shall go elsewhere.
        beat: how often it has shown that it lives; ``silent_ms`` is how long ago whoever answers has seen the last.
        groups: the groups that it says it has open, each with its load in records a second.
        takeovers: how many groups it has taken over from nodes that had died.
    """

    name: str
    address: str
    grpc: str | None
    is_live: bool
    is_draining: bool
    beat: int
    silent_ms: int
    version: str
    groups: dict[str, float]
    takeovers: int


class GroupView(msgspec.Struct, frozen=True, kw_only=True):
    """A group of queues that share a journal and an owner.

    Attributes:
        home: the node that shall own it.
        owner: the live node that says that it has it open; None while it is on its way.
        is_pinned: whether it stays at its home while that lives.
        moves: how often its home has changed.
    """

    name: str
    queues: list[str]
    home: str | None
    owner: str | None
    is_pinned: bool
    moves: int


class ClusterView(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster as one of its nodes sees it, with the queues that are split into partitions."""

    node: str
    nodes: list[NodeView]
    groups: list[GroupView]
    splits: dict[str, Split] = {}
