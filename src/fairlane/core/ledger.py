"""The ledger: all that is true and durable, in memory. A pure fold over the journal; only ``apply`` changes it.

Bodies are not here, only the number of the chunk that holds them. A chunk counts its messages that are not done; with
the last of them it is dropped from the store.

Recovery folds the journal from the *base* on, which is a ``Baseline``: a record of everything besides messages. Every
chunk has a *home*, the record that describes its messages; so has every batch of dedup ids, and so have the producer
numbers of every caller. To move the base, a new baseline is written; what has an older home and still lives is
*carried*, a little with each commit, that is written down again as it is now; and once nothing has a home before the
new baseline, that is the base. So recovery reads a bounded multiple of what is alive, and no commit ever waits for a
snapshot.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field

from fairlane.core.dedup_ids import DedupHome
from fairlane.core.finished import FinishedMessages
from fairlane.core.pauses import PauseLog
from fairlane.core.producer_numbers import ProducerNumbers
from fairlane.core.rows.chunks import ChunkHome, ChunkHomes
from fairlane.core.rows.messages import KEYS_PER_ROWS_FROM, ROWS_FROM, Messages
from fairlane.core.sources import Declared
from fairlane.core.states.aftermath import Aftermath
from fairlane.core.states.claims import RegisteredConsumer
from fairlane.core.states.fan_outs import FanOuts
from fairlane.core.states.redrives import RedriveState
from fairlane.core.states.schedules import ScheduleState
from fairlane.core.states.sinks import SinkState
from fairlane.core.states.uploads import Discards, Pieces, Upload
from fairlane.journal.records import ReaderImage, SegmentImage, TemporaryImage
from fairlane.model.broker_limits import Limits
from fairlane.model.ids import MessageIds
from fairlane.model.message import NEVER_MS, Key
from fairlane.model.names import is_dlq
from fairlane.model.partitions import NUMBER_BITS
from fairlane.model.policy import QueuePolicy
from fairlane.scheduler.item import Item, Priority
from fairlane.verbs.templates import Templates

PRIORITIES = (Priority.HIGH, Priority.NORMAL, Priority.LOW)
_NORMAL = Priority.NORMAL

TermsRow = tuple[Key, int, int, Priority, tuple[str, ...], int | None, int | None]
"""Key, weight, cost, priority, throttles, due and deadline of one message."""

Group = tuple[Key, str | None]  # what is kept in order together: a fairness key, and an order key


class ScheduledItem(Item):
    """What the schedule of a queue has to know of a message beyond what the kernel does.

    Attributes:
        number: the message's number for life.
        weight: the weight it brought for its key, 0 for none.
        joined: the sequence at which it last began to wait, or with strict order came; 0 while it is staged.
        size: the size of its payload.
        since_ms: when it last began to wait: at its enqueue, or when it was returned, dead-lettered or redriven.
        after: what few messages have; the cap that it brought is there.
    """

    __slots__ = ("after", "joined", "number", "since_ms", "size", "weight")

    number: int
    weight: int
    joined: int
    size: int
    since_ms: int
    after: Aftermath | None

    @property
    def ready_ms(self) -> int:
        """The instant from which on the message can be delivered, as far as its own terms go."""
        return self.since_ms if self.due_ms is None else max(self.since_ms, self.due_ms)

    @property
    def delivered_bytes(self) -> int:
        """How many bytes a delivery of it has, about."""
        return self.size

    @property
    def group(self) -> Group:
        """The group that it is kept in order with, where its queue has a strict order."""
        return self.key, None if self.after is None else self.after.order_key


class Message(ScheduledItem):
    """A message without its body. What it has as an ``Item`` belongs to the schedule, the rest to the ledger.

    Attributes:
        token: the fencing token of its lease, 0 when it has none.
        leased_ms: when it was last leased; 0 if it never was.
    """

    __slots__ = ("attempts", "chunk", "enqueued_ms", "expires_ms", "failures", "leased_ms", "owner", "queue", "token")

    def __init__(
        self, number: int, queue: Queue, chunk: ChunkHome, size: int, enqueued_ms: int, terms: TermsRow
    ) -> None:
        # Not through Item.__init__: what comes from a record has been checked before it became one.
        key, self.weight, self.cost, priority, throttles, due_ms, deadline_ms = terms
        self.key = key
        self.priority = priority
        self.throttles = throttles
        self.due_ms = due_ms
        self.deadline_ms = deadline_ms
        self.plain = not throttles and due_ms is None and deadline_ms is None and priority is _NORMAL
        self.held = None
        self.lane = None
        self.next = None
        self.previous = None
        self.sequence = 0
        self.number = number
        self.queue = queue
        self.chunk = chunk
        self.size = size
        self.enqueued_ms = self.since_ms = enqueued_ms
        self.joined = number
        self.attempts = 0
        self.failures = 0
        self.token = 0
        self.expires_ms = self.leased_ms = 0
        self.owner: str | None = None
        self.after = None

    def set_times(self, *, due_ms: int | None, deadline_ms: int | None) -> None:
        """Give the message other instants. It must not be waiting, or its kernel would not know."""
        self.due_ms = due_ms
        self.deadline_ms = deadline_ms
        self.plain = self._is_plain()

    @property
    def id(self) -> str:
        """The id by which callers know it."""
        return self.queue.ids.id_of(self.number)

    @property
    def body_number(self) -> int:
        """The number of the chunk that has its body."""
        return self.number if self.chunk.is_shared else self.chunk.number

    @property
    def correlation_id(self) -> str | None:
        """The correlation id that it was given; None if its own id is its correlation id."""
        known = self.chunk.correlation_ids
        if known is None:
            return None
        at = self.number - self.chunk.number
        return known[at] if at < len(known) else None

    @property
    def delivered_bytes(self) -> int:
        """How many bytes a delivery of it has, about: payload, headers, state and errors."""
        size, after = self.size + self.chunk.head_bytes, self.after
        return size if after is None else size + after.delivered_bytes

    @property
    def is_claimed(self) -> bool:
        """Whether a registered consumer has it, under a lease that no timer ends."""
        return self.expires_ms == NEVER_MS

    @property
    def max_attempts(self) -> int:
        """How many attempts may fail, by its own limit or its queue's; 0 for any number."""
        own = None if self.after is None else self.after.max_attempts
        return self.queue.policy.max_attempts if own is None else own

    @property
    def visibility_ms(self) -> int:
        """How long its leases last, by its own timeout or its queue's."""
        own = None if self.after is None else self.after.visibility_ms
        return self.queue.policy.visibility_timeout_ms if own is None else own

    @property
    def result_ttl_ms(self) -> int:
        """How long its end is remembered, by its own time or its queue's."""
        own = None if self.after is None else self.after.result_ttl_ms
        return self.queue.policy.result_ttl_ms if own is None else own

    @property
    def expiries(self) -> int:
        """How many of its leases have expired, or were released when their consumer disconnected."""
        return 0 if self.after is None else self.after.expiries

    @property
    def pieces(self) -> Pieces | None:
        """Where its payload is, if that was uploaded."""
        return None if self.after is None else self.after.pieces

    def aftermath(self) -> Aftermath:
        """Return what few messages have, made when first needed."""
        if self.after is None:
            self.after = Aftermath()
        return self.after


@dataclass(slots=True, eq=False)
class KeyUsage:
    """How much one fairness key has in a queue."""

    messages: int = 0
    size: int = 0


@dataclass(slots=True, eq=False, repr=False)
class Queue:
    """A queue: its policy, its messages by number, and what they add up to."""

    name: str
    policy: QueuePolicy
    created_ms: int
    ids: MessageIds = field(default_factory=MessageIds)  # those of the ledger
    declared: Declared = field(init=False)
    is_paused: bool = False
    paused_keys: set[Key] = field(default_factory=set)
    pauses: PauseLog = field(default_factory=PauseLog)
    messages: Messages = field(init=False)
    leased: int = 0
    claimed: int = 0  # of those that are leased
    dead_letters: int = 0  # those that died in another queue
    size: int = 0
    consumers: dict[str, RegisteredConsumer] = field(default_factory=dict)
    sinks: dict[str, SinkState] = field(default_factory=dict)
    schedules: dict[str, ScheduleState] = field(default_factory=dict)
    staged: dict[int, Message] = field(default_factory=dict)  # not among the messages, but within the limits
    staged_size: int = 0
    uploads: dict[int, Upload] = field(default_factory=dict)  # payloads that no message has taken yet
    dedups: dict[str, tuple[int, int]] = field(default_factory=dict)  # the number, and until when it counts
    uniques: dict[str, int] = field(default_factory=dict)  # the number of the message that has each unique key
    tallies: dict[Key, KeyUsage] | None = None  # only where a limit on keys asks for it
    refused: int = 0  # messages that a limit kept out since the queue was created
    leased_groups: dict[Group, dict[int, Message]] | None = None  # only with strict order

    def __post_init__(self) -> None:
        self.messages = Messages(self._made_of)
        self.set_policy(self.policy)

    def _made_of(self, number: int, key: Key, chunk: ChunkHome, size: int, enqueued_ms: int) -> Message:
        """Return the message that a row stands for."""
        return Message(number, self, chunk, size, enqueued_ms, (key, 0, 1, _NORMAL, (), None, None))

    def set_policy(self, policy: QueuePolicy) -> None:
        """Set the queue's policy."""
        self.policy = policy
        self.declared = Declared(policy)

    @property
    def is_strict(self) -> bool:
        """Whether the messages of a group are kept in order; dead letters never are."""
        return self.policy.order == "strict" and not is_dlq(self.name)


class Ledger:
    """Queues with their messages, config, readers and segments of the journal.

    Attributes:
        rows_from: from this number of messages on, plain ones that come are rows; None for never. A queue with many
            keys needs more.
        limits: what holds for all queues together.
        templates: the queue templates among the config values, by pattern.
        temporary: the config values that expire, by config key.
        config_due_ms: when the first of them does.
        redrives: those that run and the last of those that have ended, by number.
        base: the sequence of the record that recovery begins with.
        baseline: the sequence of the latest baseline, which is to be the next base.
        fan_outs: messages that wait for others to end.
        finished: the messages that have ended and are remembered.
        dropped: bodies that have become unneeded since the writer last took this list.
        discarded: pieces that have become unneeded and are deleted little by little.
        uploaders: how many uploads each caller has open, and their bytes.
        size: the payload bytes of all messages and open uploads.
        trimmed: the journal before this sequence is gone.
        ids: the ids of its messages, which follow from their numbers and the ids of the journal.
        journal_id: names the journal; empty until the broker is opened for the first time.
        journal_since: the first sequence under this id. What is before it belongs to the journal whose backup this one
            was restored from.
    """

    def __init__(self, limits: Limits | None = None, *, sequence: int = 1, rows_from: int | None = ROWS_FROM) -> None:
        """Know of nothing.

        Args:
            limits: what holds for all queues together.
            sequence: of the record that recovery begins with: the first of all, or one that tells what was before it.
            rows_from: from this number of messages on, plain ones that come are rows; None for never.
        """
        self.rows_from = rows_from
        self.limits = limits if limits is not None else Limits()
        self.next_sequence = sequence
        self.at_ms = 0
        self.queues: dict[str, Queue] = {}
        self.config: dict[str, str] = {}
        self.templates: Templates = {}
        self.temporary: dict[str, TemporaryImage] = {}
        self.config_due_ms = NEVER_MS
        self.redrives: dict[int, RedriveState] = {}
        self.readers: dict[str, ReaderImage] = {}
        self.segments: deque[SegmentImage] = deque()
        self.segment_first = sequence
        self.segment_first_ms = 0
        self.trimmed = sequence
        self.ids = MessageIds()
        self.journal_id = ""
        self.journal_since = sequence
        self.base = sequence
        self.baseline = sequence
        self.chunks = ChunkHomes()
        self.dedup_homes: deque[DedupHome] = deque()
        self.producer_numbers: OrderedDict[str, ProducerNumbers] = OrderedDict()  # by caller; in the order of homes
        self.fan_outs = FanOuts()
        self.finished = FinishedMessages()
        self.dropped: list[int] = []
        self.discarded = Discards()
        self.uploaders: dict[str, KeyUsage] = {}
        self.messages = self.size = 0

    @property
    def partition(self) -> int:
        """Which partition of a queue is kept here, which all sequences tell; 0 for whole queues."""
        return self.next_sequence >> NUMBER_BITS

    @property
    def counts_from(self) -> int:
        """What the sequences of this journal begin after."""
        return self.partition << NUMBER_BITS

    def keeps_rows(self, queue: Queue) -> bool:
        """Return whether a plain message that comes now is to be a row."""
        least, known = self.rows_from, queue.messages
        if least is None or self.messages < least:
            return False
        return len(known) >= known.key_count * least // KEYS_PER_ROWS_FROM

    def may_be_full(self, queue: Queue, count: int) -> bool:
        """Return whether a limit of the queue or of the broker may refuse one of ``count`` new messages.

        If not, there is no need to look at each of them. Bytes are judged by the largest payload allowed.
        """
        policy, limits = queue.policy, self.limits
        size = count * limits.payload_bytes_max
        held = count + len(queue.messages) + len(queue.staged)
        return (
            policy.key_waiting_max is not None
            or policy.key_waiting_bytes_max is not None
            or (policy.waiting_max is not None and held > policy.waiting_max)
            or (limits.waiting_max is not None and self.messages + count > limits.waiting_max)
            or (
                policy.waiting_bytes_max is not None
                and queue.size + queue.staged_size + size > policy.waiting_bytes_max
            )
            or (limits.waiting_bytes_max is not None and self.size + size > limits.waiting_bytes_max)
        )

    def settle_base(self) -> int:
        """Move the base to the latest baseline if nothing alive has an older home, and return the base."""
        if self.base != self.baseline and self.oldest_home() >= self.baseline:
            self.base = self.baseline
        return self.base

    def oldest_home(self) -> int:
        """Return the sequence of the oldest record that something alive is described in."""
        oldest = self.next_sequence
        if self.chunks:
            oldest = next(iter(self.chunks.values())).home
        if self.dedup_homes:
            oldest = min(oldest, self.dedup_homes[0].home)
        if self.producer_numbers:
            oldest = min(oldest, next(iter(self.producer_numbers.values())).home)
        if self.finished.known:
            oldest = min(oldest, self.finished.oldest_home or oldest)
        return min(oldest, self.discarded.oldest_home(oldest)) if self.discarded.entries else oldest

    def find(self, queue: str, number: int | None) -> Message | None:
        """Return a message of a queue by its number, for reading, or for changing it if it is leased."""
        known = self.queues.get(queue)
        return None if known is None or number is None else known.messages.get(number)

    def token_of(self, queue: str, number: int | None) -> int:
        """Return the token under which a message is leased, 0 if it is not."""
        message = self.find(queue, number)
        return 0 if message is None else message.token
