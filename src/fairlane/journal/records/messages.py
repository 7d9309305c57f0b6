"""Records about messages: what became of each."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from fairlane.journal.records.base import OfMessages, Record, Runs
from fairlane.model.message import FailureDetail, Key
from fairlane.model.names import dlq_of
from fairlane.model.status import Ending
from fairlane.model.waits import WaitReasons, split_wait

ReturnReason: TypeAlias = Literal["failure", "defer", "expiry", "release"]
LOST: Final = frozenset(("expiry", "release"))
"""Why leases end without a word from their holder. They count as attempts, but not as failures."""
DeadReason: TypeAlias = Literal["max_attempts", "max_expiries", "hook", "deadline", "requested", "members"]
RemoveReason: TypeAlias = Literal["deadline", "dropped", "purged", "cancelled", "unstaged"]


class Terms(msgspec.Struct, array_like=True, gc=False):
    """The terms that messages compete under, as columns: the outcome of hook, policy and producer's request."""

    keys: list[Key]
    weights: list[int] | None = None
    """0 for a message without one, which leaves its key's weight unchanged."""
    costs: list[int] | None = None
    priorities: list[int] | None = None
    throttles: list[list[str]] | None = None
    due_ms: list[int | None] | None = None
    deadlines_ms: list[int | None] | None = None
    caps: list[int | None] | None = None
    max_attempts: list[int | None] | None = None
    visibilities_ms: list[int | None] | None = None
    result_ttls_ms: list[int | None] | None = None
    order_keys: list[str | None] | None = None
    unique_keys: list[str | None] | None = None


class Numbered(msgspec.Struct, array_like=True, gc=False):
    """The numbers that new messages have among those of their producer; see ``core/producer_numbers.py``.

    Attributes:
        caller: the name of the API key that the producer used, empty for none.
        numbers: one for each message, or only the first if the others follow it.
    """

    caller: str
    producer: str
    numbers: list[int]


class FinishedImage(msgspec.Struct, array_like=True, gc=False):
    """Everything the ledger knows of a message that has ended."""

    number: int
    queue: str
    key: Key
    ending: Ending
    enqueued_ms: int
    finished_ms: int
    until_ms: int
    attempts: int = 0
    body: int = 0
    size: int = 0
    note: str | None = None


class Enqueued(Record, tag="enqueued"):
    """New messages, numbered from ``sequence`` on. ``chunks`` has the index of the first message of each chunk."""

    queue: str
    sizes: list[int]
    chunks: list[int]
    terms: Terms
    dedup_ids: list[str | None] | None = None
    dedup_until_ms: int = 0
    correlation_ids: list[str | None] | None = None
    cause: int | None = None
    """The message whose acknowledgement enqueued these."""
    numbered: Numbered | None = None
    """For messages that their producer has numbered. They count until ``dedup_until_ms``, too."""
    uploads: list[int | None] | None = None
    """The upload that each message takes its payload from, None for a payload in a chunk."""
    heads: list[int] | None = None
    """What the messages of each chunk have besides their payloads, at most, in bytes; None for nothing."""

    @property
    def count(self) -> int:
        """One number for each message."""
        return len(self.sizes)


class Picking(msgspec.Struct, array_like=True, gc=False):
    """How the schedule came to its pick: what a replay of the order needs, and what held the messages up.

    The three lists of milliseconds have an entry for each message, or are None if nothing held any of them up.

    Attributes:
        asked: how many messages the consumer requested. Lanes that were met without a token for the rest are parked.
        throttled_ms: how long each message waited for a throttle's token.
        capped_ms: how long each waited because a key was at its cap.
        moves: what moved parked lanes since the last pick without leaving a record, in this queue and in those that
            share a throttle with it: for each, the sequence that came next, the instant, how many messages were
            requested in vain, or 0 when only time passed, and the queue, empty for this one.
        paused_ms: how long each waited because its queue or key was paused.
        is_single: with strict order, whether the consumer could have had several messages of a key, and was given one
            of each, since it handles them at the same time.
    """

    asked: int
    throttled_ms: list[int] | None = None
    capped_ms: list[int] | None = None
    moves: list[tuple[int, int, int, str]] | None = None
    paused_ms: list[int] | None = None
    is_single: bool = False

    def split(self, wait_ms: int, at: int) -> WaitReasons:
        """Return the wait of one of the messages, by reason."""
        paused_ms, throttled_ms, capped_ms = self.paused_ms, self.throttled_ms, self.capped_ms
        return split_wait(
            wait_ms,
            paused_ms=paused_ms[at] if paused_ms is not None else 0,
            throttled_ms=throttled_ms[at] if throttled_ms is not None else 0,
            capped_ms=capped_ms[at] if capped_ms is not None else 0,
        )


class Leased(OfMessages, tag="leased"):
    """Messages were leased; the fencing tokens are the sequence numbers of the record."""

    expires_ms: int
    owner: str | None = None
    picking: Picking | None = None
    """None if as many messages were found as requested, and nothing held them up."""
    claim: int | None = None
    """The number of the claim; the owner is then the registered consumer, and the lease has no end."""
    ends_ms: list[int] | None = None
    """When each lease expires, if not all of them do at ``expires_ms``."""


class Extended(OfMessages, tag="extended"):
    """Leases were extended or shortened."""

    expires_ms: int


class Acked(OfMessages, tag="acked"):
    """Messages were acknowledged, with their true costs where consumers reported them."""

    costs: list[int | None] | None = None
    is_late: bool = False
    """Whether their leases had expired, and they were waiting again."""
    finished: list[FinishedImage] | None = None
    """Those that are remembered, whole: on recovery the messages themselves may be unknown."""


class Returned(OfMessages, tag="returned"):
    """Leased messages were returned: they wait again, not before an instant.

    They wait behind those of their key, or with strict order at the places that they had.
    """

    reason: ReturnReason
    due_ms: list[int] | None = None
    errors: list[str] | None = None
    detail: FailureDetail | None = None
    """Where and how the attempts failed, which is the same for all."""


class Dead(OfMessages, tag="dead"):
    """Messages were moved to a dead-letter queue."""

    reason: DeadReason
    ended: ReturnReason | None = None
    """How the last attempt ended, if a lease was the occasion."""
    errors: list[str] | None = None
    target: str | None = None
    """The dead-letter queue, if it is not the queue's own."""
    detail: FailureDetail | None = None
    """Where and how the attempts failed, which is the same for all."""

    @property
    def dlq(self) -> str:
        """The dead-letter queue."""
        return dlq_of(self.queue) if self.target is None else self.target


class Removed(OfMessages, tag="removed"):
    """Messages were removed without being acknowledged."""

    reason: RemoveReason
    finished: list[FinishedImage] | None = None
    """Those that are remembered, whole: on recovery the messages themselves may be unknown."""
    note: str | None = None
    """Why they were cancelled, if the caller said so."""
    by: str | None = None
    """Who cancelled them, if known."""


class StateSet(Record, tag="state_set"):
    """The workflow state of a leased message was written; its bytes are the body of this number."""

    queue: str
    number: int
    size: int


class StateRemoved(Record, tag="state_removed"):
    """The workflow state of a leased message was removed."""

    queue: str
    number: int


class ResultsSwept(Record, tag="results_swept"):
    """The ends of messages that were remembered until this instant or before were forgotten, with their results."""

    through_ms: int


class Staged(Record, tag="staged"):
    """New messages were staged for a batch, numbered from ``sequence`` on; see ``Enqueued``."""

    queue: str
    sizes: list[int]
    chunks: list[int]
    terms: Terms
    sink: str
    batch: int
    part: str
    correlation_ids: list[str | None] | None = None
    heads: list[int] | None = None

    @property
    def count(self) -> int:
        """One number for each message."""
        return len(self.sizes)


class Published(OfMessages, tag="published"):
    """Staged messages entered their queue, in this order and on these terms.

    Sizes and terms are repeated, with delays and deadlines counted from now, so that readers need not look them up.
    """

    sink: str
    batch: int
    sizes: list[int]
    terms: Terms


class RefusedMessages(Record, tag="refused"):
    """Messages that a limit kept out of a queue since about a second before, summed up by key.

    Attributes:
        code: the code of the error that producers got.
        keys: the fairness keys of the messages; None stands for keys that are not known, or too many to name.
        messages: how many messages each key had refused.
        costs: what they would have cost.
    """

    queue: str
    code: str
    keys: list[Key | None]
    messages: list[int]
    costs: list[int]

    @property
    def count(self) -> int:
        """One number for each key."""
        return len(self.keys)


class FannedOut(Record, tag="fanned_out"):
    """Messages were enqueued, and one more was staged, without a sink: it waits until all of these have ended.

    Attributes:
        queue: the queue of the continuation, which is the message that waits.
        name: what its producer calls the fan-out.
        number: the continuation.
        members: the messages that it waits for, by queue.
        window_ms: how long after the end the name is known.
        runs_anyway: whether the continuation runs even if a member fails.
    """

    queue: str
    name: str
    number: int
    members: dict[str, Runs]
    window_ms: int
    runs_anyway: bool = False


class PiecesImage(msgspec.Struct, array_like=True, gc=False):
    """The pieces of a streamed payload: the size of each but the last, and the number of the body of each."""

    piece_bytes: int
    numbers: list[int]
