"""What observers and operators see: queues, keys, reasons, redrives, readers, hooks, nodes. Values only."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from fairlane.model.answers import EnqueueAnswer, FailureAnswer
from fairlane.model.bounds import Ids, RequestKey
from fairlane.model.claims import ConsumerView
from fairlane.model.message import Key
from fairlane.model.names import own_dlq
from fairlane.model.partitions import Split
from fairlane.model.policy import QueuePolicy
from fairlane.model.staging import SinkView


class KeyView(msgspec.Struct, frozen=True, kw_only=True):
    """One fairness key of a queue.

    Attributes:
        messages: its messages in the queue, leased or not.
        wait_p50_ms: the median wait of the messages handed out in the last minute or two; from a sample if there were
            many, and at most one eighth too high. None if there were none.
        wait_p99_ms: the 99th percentile of the same waits.
        throttle: the throttle that holds back all due messages of the key; None if one may go. ``rate:QUEUE:KEY`` is
            the rate of the key itself.
        throttled_until_ms: when that throttle has a token again; None for never.
        rate: how many of its messages may be leased in a second; None for no limit.
        burst: how many of them may be leased at once after a rest.
        floor: how many of them may be leased at once even if the queue's ``in_flight_max`` is reached.
        charges_cost: whether a message counts in ``rate`` and ``burst`` as many as it costs, instead of one.
        may_go: whether one of its messages may be leased when its turn comes: it is due, and no limit holds it back.
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
    rate: float | None = None
    burst: float | None = None
    floor: int = 0
    charges_cost: bool = False
    may_go: bool = False


class StreamView(msgspec.Struct, frozen=True, kw_only=True):
    """A streaming consumer.

    Attributes:
        credit: how many messages it may have in flight.
        leased: how many it has in flight.
        oldest_token: the fencing token of its oldest lease; None if it has none.
    """

    owner: str | None
    credit: int
    leased: int
    oldest_token: int | None = None


class ThrottleView(msgspec.Struct, frozen=True, kw_only=True):
    """One throttle that has a rate, or a pattern of throttles.

    Attributes:
        tokens: its whole tokens; of a pattern, those of all its buckets.
        buckets: how many buckets a pattern has at the moment; None for a throttle.
        charges_cost: whether a message takes as many tokens as it costs, instead of one.
    """

    name: str
    rate: float
    burst: float
    tokens: int
    buckets: int | None = None
    charges_cost: bool = False


class RedriveView(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a redrive.

    Attributes:
        scanned: dead letters examined, of ``total``.
        matched: dead letters that match the filter.
        moved: dead letters moved back to their queue; always 0 in a dry run.
        target: the queue that they move to; None for the one that each came from.
        rate: messages per second, at most; None for any number.
        by: the caller who ordered it, if known.
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
    target: str | None = None
    rate: float | None = None
    by: str | None = None


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """A queue as an observer sees it.

    Attributes:
        waiting: messages that are not leased, including delayed ones.
        claimed: leased messages that registered consumers have claimed.
        oldest_ms: when its oldest message was enqueued.
        active_keys: how many fairness keys have messages; counted only if keys are requested.
        keys: the fairness keys with the most messages, as many as requested; a hundred with ``inspect``.
        throttles: the throttles with a rate that its messages name.
        registered: its registered consumers; only with ``inspect``.
        staged: messages that wait for their batch to be published; they count towards the limits, and in no other
            number here.
        sinks: its sinks; only with ``inspect``.
        partitions: how many partitions it has, in a cluster; 1 if it is not split.
        refused: messages that a limit has kept out since the queue was created, as of about a second ago.
        dead_letters: how many of its messages died in other queues, of which it is the dead-letter queue.
        redrives: the redrives that move dead letters out of it or its dead-letter queue now.
        dead_letter_queue: where its messages are when they are dead: in its own dead-letter queue, or in the queue that
            its policy names, unless the queue is split.
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
    refused: int = 0
    redrives: tuple[RedriveView, ...] = ()
    dead_letters: int = 0
    dead_letter_queue: str = ""


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """Why a message is not being processed, or that it is.

    Attributes:
        reason: ``leased``, ``queue_paused``, ``paused``, ``capped``, ``throttled``, ``behind`` (strict order),
                ``not_due``, ``no_consumer``, ``turn`` (others go first), or ``expired``.
            words: the reason as a sentence.
            until_ms: when the reason ends by itself, if that is known.
            turns: how many turns of other keys come first, if that is known.
            share: which part of the throttle the queue gets, if other queues have messages for it, too.
            first: with strict order, the id of the first message of its key, which must be done before.
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
    share: float | None = None
    correlation_id: str | None = None
    first: str | None = None


class DeadLetterFilter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A selection of dead letters: all given conditions must hold.

    Attributes:
        fairness_key: has this key.
        error: one of its errors contains this text.
        reason: died for this reason.
        older_than_ms: has been dead for at least this long.
        newer_than_ms: has been dead for at most this long.
        ids: has one of these ids.
        origin: died in this queue.
    """

    fairness_key: RequestKey | None = None
    error: str | None = None
    reason: str | None = None
    older_than_ms: int | None = None
    newer_than_ms: int | None = None
    ids: Ids | None = None
    origin: str | None = None


def dead_letters_meant(view: QueueView, wanted: DeadLetterFilter) -> tuple[str, DeadLetterFilter]:
    """Return where the dead letters are that a user means by a queue, and the filter that selects them there.

    These are the dead letters in the queue, if it has some of other queues. Otherwise they are those of the queue: in
    its own dead-letter queue, or in one that may have those of other queues as well.
    """
    if view.dead_letters:
        return view.name, wanted
    if view.dead_letter_queue == own_dlq(view.name):
        return view.dead_letter_queue, wanted
    return view.dead_letter_queue, msgspec.structs.replace(wanted, origin=view.name)


class ReaderView(msgspec.Struct, frozen=True, kw_only=True):
    """A registered reader of the journal.

    Attributes:
        behind: how many events it has not read.
        is_passed: whether some of them have been trimmed already.
    """

    name: str
    position: int
    at_ms: int
    behind: int
    is_passed: bool


class HookTrial(msgspec.Struct, frozen=True, kw_only=True):
    """The result of trying a script on a sample: an answer or a fault, and how long it took."""

    answer: EnqueueAnswer | FailureAnswer | None
    fault: str | None
    elapsed_us: int


BreakerCause: TypeAlias = Literal["faults", "time"]


class HookStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of the scripts of one queue since the broker was opened."""

    calls: int
    faults: int
    bypassed: int
    """Calls not made because the breaker was open."""
    elapsed_us: int
    is_open: bool
    """Whether the breaker is open, so that no script runs."""
    last_fault: str | None
    trips: int = 0
    """How often the breaker has opened."""
    open_by: BreakerCause | None = None
    """Why the breaker is open, if it is: ``faults`` in a row, or more script ``time`` than the queue's share."""


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A node of a cluster, as another node sees it.

    Attributes:
        address: the address of its HTTP interface; ``grpc`` is that of its gRPC interface.
        is_live: whether it has sent a heartbeat within the timeout.
        is_draining: whether its groups are moving to other nodes.
        beat: the number of heartbeats it has sent; ``silent_ms`` is how long ago the answering node saw the last one.
        groups: the groups that it reports as open, each with its load in records per second.
        takeovers: how many groups it has taken over from nodes that died.
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
        home: the node that should own it.
        owner: the live node that reports it as open; None while it moves.
        is_pinned: whether it stays at its home while that node is alive.
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
