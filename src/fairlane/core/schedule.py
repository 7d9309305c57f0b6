"""The schedule: who is next and what happens when. Soft state, rebuilt from the ledger, never written down.

There is one kernel a queue, and one table of throttles for all. The schedule follows the records: the writer applies a
record to the ledger and then shows it here. The one thing that begins here is *picking*: handing out takes messages
from a kernel first, and a lease is then decided for them. Should the commit fail, ledger and schedule are thrown away
together, so picking needs no undoing.

After recovery buckets are empty, so that a throttle holds across a crash, and deficits start anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fairlane.core.key_policies import KeyPolicies
from fairlane.core.ledger import Ledger, Message, Queue
from fairlane.core.presence import Presence
from fairlane.core.throttling import set_throttle, throttle_names
from fairlane.journal.records import (
    Acked,
    AnyRecord,
    ClaimsEnded,
    ConfigSet,
    ConsumerRemoved,
    ConsumerSet,
    Dead,
    Enqueued,
    Extended,
    Leased,
    Picking,
    Published,
    QueuePaused,
    QueueRemoved,
    QueueSet,
    Redriven,
    Removed,
    Returned,
    SinkRemoved,
    SinkSet,
    Staged,
)
from fairlane.model.message import NEVER_MS, Key
from fairlane.model.names import dlq_of, is_dlq
from fairlane.model.partitions import partition_name, served_name
from fairlane.scheduler.buckets import Throttles
from fairlane.scheduler.explanation import Explanation
from fairlane.scheduler.holdups import NOT_HELD, Holdup
from fairlane.scheduler.kernel import Kernel
from fairlane.scheduler.policy import Backpressure, KeyPolicy
from fairlane.scheduler.timers import Timers

_MOVES_MAX = 10_000
"""So much is remembered for one lease to tell. A replay is exact up to there."""


class Line:
    """One queue's part of the schedule.

    Attributes:
        asked: how many messages the last pick was asked for.
        held: what held those up that it found.
        largest: no message that waits has a larger payload.
        moves: what has stirred the kernel since the last pick that found something, see ``Picking``.
    """

    __slots__ = (
        "_made_with",
        "asked",
        "held",
        "kernel",
        "largest",
        "moves",
        "next_at",
        "picked_ms",
        "policies",
        "queue",
    )

    def __init__(self, queue: Queue, throttles: Throttles, config: dict[str, str]) -> None:
        self.queue = queue
        self.policies = KeyPolicies(queue, config)
        self.kernel = _kernel(queue, throttles, self.policies)
        self.next_at: int | None = None
        self.asked = 0
        self.picked_ms = 0
        self.held: Mapping[Message, Holdup] = {}
        self.largest = 0
        self.moves: list[tuple[int, int, int]] = []
        self._made_with = (queue.policy.quantum, queue.policy.strict_priority)

    def offer(self, messages: list[Message], now_ms: int) -> None:
        """Let messages wait."""
        largest = max([message.size for message in messages], default=0)
        self.largest = max(self.largest, largest) if len(self.kernel) else largest
        self.kernel.offer_many(messages, now_ms)

    def take(self, count: int, now_ms: int) -> list[Message]:
        """Take up to so many messages."""
        self.asked, self.picked_ms = count, now_ms
        picked = self.kernel.take(count, now_ms)
        self.held = self.kernel.holdups()
        return picked

    def take_within(self, count: int, size_bytes: int, now_ms: int) -> tuple[list[Message], bool]:
        """Take up to so many messages, and none once they have so many bytes: one by one, since sizes differ.

        Returns also whether the last was asked for in vain.
        """
        self.asked, self.picked_ms = 1, now_ms
        picked: list[Message] = []
        held: dict[Message, Holdup] = {}
        size = 0
        one: list[Message] = []
        while len(picked) < count and size < size_bytes:
            one = self.kernel.take(1, now_ms)
            if not one:
                break
            picked += one
            size += one[0].size
            held |= self.kernel.holdups()
        self.held = held
        return picked, not one

    def paused_ms(self, picked: list[Message]) -> list[int] | None:
        """Return how long of its wait each picked message was paused; None if none of them was."""
        pauses, until_ms = self.queue.pauses, self.picked_ms
        if not pauses:
            return None
        found = [pauses.within(message.key, message.ready_ms, until_ms) for message in picked]
        return found if any(found) else None

    def is_made_for(self, queue: Queue) -> bool:
        """Tell whether the kernel is one that the policy of a queue asks for now."""
        return self.queue is queue and self._made_with == (queue.policy.quantum, queue.policy.strict_priority)


def _kernel(queue: Queue, throttles: Throttles, policies: KeyPolicies) -> Kernel[Message]:
    # Dead letters were throttled once; whoever looks through them should not wait for the same tokens again.
    table = Throttles() if is_dlq(queue.name) else throttles
    policy = queue.policy
    kernel: Kernel[Message] = Kernel(
        quantum=policy.quantum, strict_priority=policy.strict_priority, counts_use=True, throttles=table
    )
    kernel.set_policy_provider(policies.of)
    for key in queue.paused_keys:
        kernel.pause(key)
    return kernel


class LeaseBatch:
    """Messages of a queue that were leased or extended together, until one instant.

    Only their numbers are kept, since most are acked long before, and what is gone should not take memory until then.
    """

    __slots__ = ("_known", "_numbers")

    def __init__(self, queue: Queue, numbers: list[int]) -> None:
        self._known = queue.messages
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def is_live(self, at_ms: int) -> bool:
        """Tell whether one of them is still leased until then."""
        get = self._known.get
        for number in self._numbers:
            message = get(number)
            if message is not None and message.token and message.expires_ms == at_ms:
                return True
        return False

    def ended(self, now_ms: int) -> list[Message]:
        """Return those whose leases have ended."""
        found = map(self._known.get, self._numbers)
        return [message for message in found if message is not None and message.token and message.expires_ms <= now_ms]


class Schedule:
    """Who is next in each queue, and when leases, delays, deadlines and throttles need attention.

    Attributes:
        built_ms: the instant since when its buckets fill.
    """

    def __init__(self, ledger: Ledger, now_ms: int) -> None:
        self._ledger = ledger
        self.built_ms = now_ms
        self.throttles = Throttles()
        self.presence = Presence(ledger, now_ms)
        self._lines: dict[str, Line] = {}
        self._leases: Timers[LeaseBatch] = Timers(lambda at_ms, batch: batch.is_live(at_ms))
        self._events: Timers[Line] = Timers(lambda at_ms, line: line.next_at == at_ms)
        self._touched: dict[Line, None] = {}  # in order, so that a replay serves queues in the same order
        self._followers: dict[type[AnyRecord], Callable[[Any, list[Message], int], None]] = {
            Enqueued: self._enqueued,
            Leased: self._leased,
            Extended: self._leased,
            Acked: self._acked,
            Returned: self._returned,
            Dead: self._dead,
            Removed: self._removed,
            Redriven: self._redriven,
            QueueSet: self._queue_set,
            QueueRemoved: self._queue_removed,
            QueuePaused: self._queue_paused,
            ConfigSet: self._config_set,
            Published: self._enqueued,
            **dict.fromkeys((ConsumerSet, ConsumerRemoved, ClaimsEnded), self._presence),
            **dict.fromkeys((Staged, SinkSet, SinkRemoved), self._presence),
        }
        for name in throttle_names(ledger.config):
            set_throttle(self.throttles, ledger.config, name, now_ms=now_ms, tokens=0)
        for queue in ledger.queues.values():
            self._build(queue, now_ms)
        self.settle_events()

    def _build(self, queue: Queue, now_ms: int) -> Line:
        """Make the line of a queue from what the ledger says."""
        line = self._lines[queue.name] = Line(queue, self.throttles, self._ledger.config)
        self._touched[line] = None
        in_order = sorted(queue.messages.values(), key=_number)
        line.policies.learn(in_order)
        leased = [message for message in in_order if message.token]
        for key, count in Counter(message.key for message in leased).items():
            line.kernel.occupy(key, count)
        for message in leased:
            if not message.is_claimed:
                self._leases.push(message.expires_ms, LeaseBatch(queue, [message.number]))
        line.offer(sorted((m for m in in_order if not m.token), key=_line), now_ms)
        return line

    # -------------------------------------------------------------------------------------------------- following

    def prepare(self, record: AnyRecord) -> None:
        """Take out of the kernels what a record, about to be applied, gives other terms."""
        if type(record) is Redriven:
            line = self._lines[record.queue]
            for number in record.numbers:
                line.kernel.cancel(line.queue.messages[number])

    def follow(self, record: AnyRecord, messages: list[Message], now_ms: int) -> None:
        """Act on a record that has been applied."""
        follower = self._followers.get(type(record))
        if follower is not None:
            follower(record, messages, now_ms)

    def _line(self, name: str) -> Line:
        line = self._lines[name]
        self._touched[line] = None
        return line

    def _enqueued(self, record: Enqueued | Published, messages: list[Message], now_ms: int) -> None:
        line = self._line(record.queue)
        if record.terms.weights is not None or record.terms.caps is not None:
            for key in line.policies.learn(messages):
                line.kernel.refresh_policy(key)
        line.offer(messages, now_ms)

    def _leased(self, record: Leased | Extended, messages: list[Message], _now_ms: int) -> None:
        line = self._line(record.queue)
        if record.expires_ms == NEVER_MS:
            self.presence.follow(record)
        elif messages:
            self._leases.push(record.expires_ms, LeaseBatch(line.queue, record.numbers))

    def _presence(self, record: AnyRecord, _messages: list[Message], _now_ms: int) -> None:
        self.presence.follow(record)

    def _acked(self, record: Acked, messages: list[Message], now_ms: int) -> None:
        line = self._line(record.queue)
        self._release(line, messages, now_ms)
        if record.costs is not None:
            for message, cost in zip(messages, record.costs, strict=True):
                if cost is not None and cost != message.cost:
                    line.kernel.settle(message.key, cost - message.cost, message.priority)

    def _release(self, line: Line, messages: list[Message], now_ms: int) -> None:
        line.kernel.release_many(Counter([message.key for message in messages]), now_ms)

    def _returned(self, record: Returned, messages: list[Message], now_ms: int) -> None:
        line = self._line(record.queue)
        self._release(line, messages, now_ms)
        line.offer(messages, now_ms)

    def _dead(self, record: Dead, messages: list[Message], now_ms: int) -> None:
        line = self._line(record.queue)
        if record.ended is not None:
            self._release(line, messages, now_ms)
        else:
            _cancel(line, messages)
        self._line(dlq_of(record.queue)).offer(messages, now_ms)

    def _removed(self, record: Removed, messages: list[Message], _now_ms: int) -> None:
        _cancel(self._line(record.queue), messages)

    def _redriven(self, record: Redriven, messages: list[Message], now_ms: int) -> None:
        self._touched[self._lines[record.queue]] = None
        line = self._line(record.target)
        for key in line.policies.learn(messages):
            line.kernel.refresh_policy(key)
        line.offer(messages, now_ms)

    def _queue_set(self, record: QueueSet, _messages: list[Message], now_ms: int) -> None:
        """Make a new line; if a policy changes what a kernel is made with, make the line anew, else ask it again."""
        queue = self._ledger.queues[record.queue]
        before = self._lines.get(record.queue)
        if before is None:
            self._build(queue, now_ms)
        elif before.is_made_for(queue):
            before.kernel.set_policy_provider(before.policies.of)
            self._touched[before] = None
        else:
            self._retire(before)
            self._build(queue, now_ms)

    def _retire(self, line: Line) -> None:
        """Let a line rest for good: its messages leave its kernel and the gates of shared throttles."""
        _cancel(line, line.kernel.waiting_items())
        line.next_at = None
        self._touched.pop(line, None)

    def _queue_removed(self, record: QueueRemoved, _messages: list[Message], _now_ms: int) -> None:
        self._retire(self._lines.pop(record.queue))
        self.presence.follow(record)

    def _queue_paused(self, record: QueuePaused, _messages: list[Message], _now_ms: int) -> None:
        line = self._line(record.queue)
        if record.key is not None:
            (line.kernel.pause if record.is_paused else line.kernel.resume)(record.key)

    def _config_set(self, record: ConfigSet, _messages: list[Message], now_ms: int) -> None:
        for name in throttle_names((record.key,)):
            set_throttle(self.throttles, self._ledger.config, name, now_ms=now_ms)
            self._touched.update(dict.fromkeys(self._lines.values()))  # what the throttle held back may be anywhere
        for line, key in self._line_of_setting(record.key):
            line.kernel.refresh_policy(key)
            self._touched[line] = None

    def _line_of_setting(self, setting: str) -> Iterable[tuple[Line, Key]]:
        parts = setting.split(":", 2)
        if len(parts) != 3 or parts[0] not in ("weight", "cap"):  # noqa: PLR2004 - see KeyPolicies
            return
        line = self._lines.get(served_name(partition_name(parts[1], self._ledger.partition)))
        if line is not None:
            path = tuple(parts[2].split("/"))
            if all(path):
                yield line, path
            if len(path) > 1:
                yield line, parts[2]

    # ---------------------------------------------------------------------------------------------------- picking

    def pick(self, queue: str, count: int, now_ms: int, *, size_bytes: int | None = None) -> list[Message]:
        """Take up to so many messages whose turn it is; fewer only if no other may go now.

        Or if those before have ``size_bytes`` of payload, which the last of them may exceed.
        """
        line = self._lines[queue]
        if line.queue.is_paused:
            return []
        self._touched[line] = None
        if size_bytes is None or count * line.largest <= size_bytes:
            picked = line.take(count, now_ms)
            is_in_vain = not picked
        else:
            picked, is_in_vain = line.take_within(count, size_bytes, now_ms)
        if is_in_vain:
            self._note_move(line, now_ms, asked=line.asked)
        return picked

    def last_picking(self, queue: str, picked: list[Message]) -> Picking | None:
        """Return what is to be told of the last pick, which found these; None if nothing is."""
        line = self._lines[queue]
        known, paused_ms = line.held, line.paused_ms(picked)
        if not known and not line.moves and line.asked == len(picked) and paused_ms is None:
            return None
        picking = Picking(line.asked, paused_ms=paused_ms)
        if known:
            held = [known.get(message, NOT_HELD) for message in picked]
            picking.throttled_ms = [each.throttled_ms for each in held]
            picking.capped_ms = [each.capped_ms for each in held]
        if line.moves:
            picking.moves, line.moves = line.moves, []
        return picking

    def may_pick(self, queue: str) -> bool:
        """Tell whether ``pick`` is likely to find something."""
        line = self._lines.get(queue)
        return line is not None and not line.queue.is_paused and line.kernel.has_ready()

    def victim(self, queue: str, message: Message, policy: Backpressure, *, key: Key | None) -> Message | None:
        """Return the waiting message that would have to make room for a new one."""
        return self._lines[queue].kernel.victim(message, policy, key=key)

    def explain(self, message: Message, now_ms: int) -> Explanation:
        """Tell why a message waits."""
        line = self._lines[message.queue.name]
        self._touched[line] = None
        time_releases = line.kernel.time_releases()
        explanation = line.kernel.explain(message, now_ms)
        self._note_time_releases(line, time_releases, now_ms)
        return explanation

    def key_policy(self, queue: str, key: Key) -> KeyPolicy | None:
        """Return what a key of a queue is entitled to, None for the default."""
        return self._lines[queue].policies.of(key)

    def kernel(self, queue: str) -> Kernel[Message]:
        """Return the kernel of a queue, for reading."""
        return self._lines[queue].kernel

    # -------------------------------------------------------------------------------------------------------- time

    def departed(self, now_ms: int) -> list[tuple[str, list[Message]]]:
        """Let time pass, and return the messages whose deadlines have passed, by queue."""
        events = self._events.entries
        if events and events[0][0] <= now_ms:
            due = self._events.pop_due(now_ms)
            for line in due:
                line.next_at = None
            self._touched.update(dict.fromkeys(due))
        found = []
        for line in self._touched:
            kernel = line.kernel
            if kernel.now_ms >= now_ms and not kernel.departures:
                continue  # whatever touched it has moved it to this instant already
            time_releases = kernel.time_releases()
            expired = [departure.item for departure in kernel.reap(now_ms)]
            self._note_time_releases(line, time_releases, now_ms)
            if expired:
                found.append((line.queue.name, expired))
        return found

    def _note_time_releases(self, line: Line, before: int, now_ms: int) -> None:
        """Note that time alone has let something go on, if it has: no record will tell."""
        if line.kernel.time_releases() != before:
            self._note_move(line, now_ms, asked=0)

    def _note_move(self, line: Line, now_ms: int, *, asked: int) -> None:
        if len(line.moves) < _MOVES_MAX:
            line.moves.append((self._ledger.next_sequence, now_ms, asked))

    def expired_leases(self, now_ms: int, *, most: int) -> list[tuple[str, list[Message]]]:
        """Return messages whose leases have ended, by queue; about so many, and the rest when asked again."""
        by_queue: dict[str, dict[Message, None]] = {}
        count = 0
        while count < most and (batch := self._leases.pop_one(now_ms)) is not None:
            count += len(batch)
            for message in batch.ended(now_ms):
                by_queue.setdefault(message.queue.name, {})[message] = None
        return [(queue, list(messages)) for queue, messages in by_queue.items()]

    def settle_events(self) -> int:
        """Note when the queues that were touched next need attention, and return when anything does.

        That instant may be too early, because of something that is gone, but is never too late.
        """
        for line in self._touched:
            at_ms = 0 if line.kernel.departures else line.kernel.next_event_at()
            if at_ms != line.next_at:
                line.next_at = at_ms
                if at_ms is not None:
                    self._events.push(at_ms, line)
        self._touched.clear()
        due_ms = NEVER_MS
        for entries in (self._events.entries, self._leases.entries):
            if entries and entries[0][0] < due_ms:
                due_ms = entries[0][0]
        presence = self.presence
        if presence.consumers or presence.sinks:
            due_ms = min(due_ms, presence.next_at() or 0)
        return due_ms

    def held_up(self) -> dict[str, int]:
        """Return of each throttle that holds something back how much waits in those queues."""
        found: dict[str, int] = {}
        for line in self._lines.values():
            for throttle in line.kernel.throttles_in_force():
                found[throttle] = found.get(throttle, 0) + len(line.kernel)
        return found

    def next_event_at(self) -> int | None:
        """Return when something will change by itself, None for never."""
        earliest = self.presence.next_at() if self.presence.consumers or self.presence.sinks else None
        timers: tuple[Timers[Any], ...] = (self._events, self._leases)
        for one in timers:
            at_ms = one.next_at() if one.entries else None
            if at_ms is not None and (earliest is None or at_ms < earliest):
                earliest = at_ms
        return earliest

    def touched(self) -> list[str]:
        """Return the queues in which something may have become ready since events were settled."""
        return [line.queue.name for line in self._touched]


def _cancel(line: Line, messages: Iterable[Message]) -> None:
    for message in messages:
        if message.lane is not None:
            line.kernel.cancel(message)


def _number(message: Message) -> int:
    return message.number


def _line(message: Message) -> int:
    return message.line
