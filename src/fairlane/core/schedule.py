"""The schedule: which message goes next, and when something happens by itself. Soft state, never written down.

Each queue has a schedule of its own, see ``core/queue_schedule.py``; they share one table of throttles. The schedule
follows the records: the engine applies a record to the ledger, then passes it on to ``follow``. Only *picking* begins
here: a lease takes messages out of a kernel first, and is decided for them afterwards. If the commit fails, the engine
drops ledger and schedule together and recovers, so a pick never has to be undone.

After recovery buckets are empty, so that a throttle holds across a crash, and deficits start from zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from fairlane.core.ledger import Ledger, Message
from fairlane.core.presence import Presence
from fairlane.core.queue_schedule import QueueSchedule, QueueSchedules
from fairlane.core.rows.messages import LeaseBatch
from fairlane.core.rows.offering import contents, explain
from fairlane.core.states.schedules import ScheduleState
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
    PieceStored,
    Published,
    QueuePaused,
    QueueRemoved,
    QueueSet,
    Redriven,
    Removed,
    Returned,
    ScheduleFired,
    ScheduleMissed,
    SchedulePaused,
    ScheduleSet,
    SinkRemoved,
    SinkSet,
    Staged,
    UploadBegun,
    UploadDropped,
)
from fairlane.model.message import NEVER_MS, Key
from fairlane.scheduler.buckets import Throttles
from fairlane.scheduler.explanation import Explanation
from fairlane.scheduler.kernel import Kernel
from fairlane.scheduler.policy import Backpressure, KeyPolicy
from fairlane.scheduler.timers import Timers
from fairlane.scheduler.token_bucket import Limit

MessageSchedule: TypeAlias = QueueSchedule[Message]
RecurringRecord: TypeAlias = ScheduleSet | SchedulePaused | ScheduleFired | ScheduleMissed
_OF_CONSUMERS: Final = (ConsumerSet, ConsumerRemoved, ClaimsEnded)
_OF_PRESENCE: Final = (*_OF_CONSUMERS, Staged, SinkSet, SinkRemoved, UploadBegun, PieceStored, UploadDropped)


class Schedule:
    """Which message is next in each queue, and when leases, delays, deadlines and throttles need attention.

    Attributes:
        built_ms: the instant from which on its buckets fill.
        presence: which registered consumers, sinks and uploads have been silent for too long.
        revived: the queues that may go on with tokens of a shared throttle that another queue has given back.
        unarmed: the schedules (in the sense of cron) whose next tick may be another one.
    """

    def __init__(self, ledger: Ledger, now_ms: int) -> None:
        self._ledger = ledger
        self.built_ms = now_ms
        self.presence = Presence(ledger, now_ms)
        self.revived: dict[str, None] = {}
        self.unarmed: list[ScheduleState] = []
        self._queues: QueueSchedules[Message] = QueueSchedules(ledger, contents, now_ms, on_returned=self._revive)
        self._known = self._queues.known
        self._leases: Timers[LeaseBatch] = Timers(lambda at_ms, batch: batch.is_live(at_ms))
        self._events: Timers[MessageSchedule] = Timers(lambda at_ms, schedule: schedule.next_at == at_ms)
        # In order, so that a replay serves queues in the same order.
        self._touched: dict[MessageSchedule, None] = dict.fromkeys(self._queues)
        self._followers = self._follower_table()
        for queue in ledger.queues.values():
            for message in contents(queue)[0]:
                if not message.is_claimed:
                    self._leases.push(message.expires_ms, LeaseBatch(queue, [message.number]))
        self.settle_events()

    def _follower_table(self) -> dict[type[AnyRecord], Callable[[Any, list[Message], int], None]]:
        return {
            Enqueued: self._enqueued,
            Leased: self._leased,
            Extended: self._leased,
            Acked: self._acked,
            Returned: self._returned,
            Dead: self._dead,
            Removed: self._removed,
            Redriven: self._redriven,
            Published: self._enqueued,
            **dict.fromkeys((QueueSet, QueueRemoved, QueuePaused, ConfigSet), self._settings),
            **dict.fromkeys(_OF_PRESENCE, self._presence),
            **dict.fromkeys((ScheduleSet, SchedulePaused, ScheduleFired, ScheduleMissed), self._recurring),
        }

    @property
    def throttles(self) -> Throttles:
        """The token buckets that all queues share."""
        return self._queues.throttles

    def throttle_patterns(self) -> Iterator[tuple[str, Limit]]:
        """Yield the patterns of throttles that have a rate, each with what it says."""
        return self._queues.throttle_config.patterns()

    # -------------------------------------------------------------------------------------------------- following

    def prepare(self, record: AnyRecord) -> None:
        """Take messages out of the kernels that a record, about to be applied, gives other terms."""
        if type(record) is Redriven:
            schedule = self._known[record.queue]
            for number in record.numbers:
                schedule.kernel.cancel(schedule.queue.messages[number])

    def follow(self, record: AnyRecord, messages: list[Message], now_ms: int) -> None:
        """Act on a record that has been applied."""
        follower = self._followers.get(type(record))
        if follower is not None:
            follower(record, messages, now_ms)

    def _of(self, queue: str) -> MessageSchedule:
        """Return the schedule of a queue in which something changes."""
        schedule = self._known[queue]
        self._touched[schedule] = None
        return schedule

    def _enqueued(self, record: Enqueued | Published, messages: list[Message], now_ms: int) -> None:
        schedule = self._known[record.queue]
        self._touched[schedule] = None
        if record.terms.weights is not None or record.terms.caps is not None:
            schedule.learn(messages, now_ms)
        if type(record) is Enqueued:
            largest, heads = max(record.sizes), record.heads
            if heads is not None:
                largest += max(heads)
            if messages:
                schedule.offer(messages, now_ms, largest=largest, is_mixed=heads is not None)
            else:
                numbers = range(record.sequence, record.sequence + len(record.sizes))
                schedule.offer_rows(record.terms.keys, numbers, largest, now_ms, is_mixed=heads is not None)
        else:
            schedule.offer(messages, now_ms)
        schedule.queue.messages.key_count = len(schedule.kernel.remembered_keys)
        if self.presence.uploads and type(record) is Enqueued:
            self.presence.follow(record)

    def _leased(self, record: Leased | Extended, messages: list[Message], _now_ms: int) -> None:
        schedule = self._known[record.queue]
        self._touched[schedule] = None
        if record.expires_ms == NEVER_MS:
            self.presence.follow(record)
        elif messages:
            self._leases.push(record.expires_ms, LeaseBatch(schedule.queue, record.numbers))
            if type(record) is Leased and record.ends_ms is not None:
                for message in messages:
                    if message.expires_ms != record.expires_ms:
                        self._leases.push(message.expires_ms, LeaseBatch(schedule.queue, [message.number]))

    def _presence(self, record: AnyRecord, _messages: list[Message], _now_ms: int) -> None:
        self.presence.follow(record)

    def _recurring(self, record: RecurringRecord, _messages: list[Message], _now_ms: int) -> None:
        self.unarmed.append(self._ledger.queues[record.queue].schedules[record.name])

    def _acked(self, record: Acked, messages: list[Message], now_ms: int) -> None:
        schedule = self._known[record.queue]
        self._touched[schedule] = None
        if record.is_late:
            schedule.cancel(messages, now_ms)
        else:
            schedule.release(messages, now_ms)
        if record.costs is not None:
            schedule.settle(messages, record.costs)

    def _returned(self, record: Returned, messages: list[Message], now_ms: int) -> None:
        self._of(record.queue).take_back(messages, now_ms)

    def _dead(self, record: Dead, messages: list[Message], now_ms: int) -> None:
        schedule = self._of(record.queue)
        if record.ended is not None:
            schedule.release(messages, now_ms)
        else:
            schedule.cancel(messages, now_ms)
        self._of(record.dlq).offer(messages, now_ms)

    def _removed(self, record: Removed, messages: list[Message], now_ms: int) -> None:
        self._of(record.queue).cancel(messages, now_ms)

    def _redriven(self, record: Redriven, messages: list[Message], now_ms: int) -> None:
        self._of(record.queue)
        self._of(record.target).offer_new(messages, now_ms)

    def _settings(self, record: AnyRecord, _messages: list[Message], now_ms: int) -> None:
        """Follow what operators change. A schedule that is replaced needs no attention any more."""
        queue = getattr(record, "queue", None)
        before = None if queue is None else self._known.get(queue)
        concerned = self._queues.follow(record, now_ms)
        if before is not None and self._known.get(before.queue.name) is not before:
            self._touched.pop(before, None)
        self._touched |= dict.fromkeys(concerned)
        if type(record) is QueueRemoved:
            self.presence.follow(record)

    # ---------------------------------------------------------------------------------------------------- picking

    def pick(
        self, queue: str, count: int, now_ms: int, *, size_bytes: int | None = None, is_single: bool = False
    ) -> list[Message]:
        """Take up to ``count`` messages whose turn it is; fewer only if no other may go now.

        Or if those before have ``size_bytes``, which the last may exceed; ``is_single``: see the kernel.
        """
        schedule = self._known[queue]
        picked, is_in_vain = schedule.pick(count, now_ms, size_bytes=size_bytes, is_single=is_single)
        if picked or is_in_vain:
            self._touched[schedule] = None
        if is_in_vain:
            schedule.note_move(self._ledger.next_sequence, now_ms, asked=schedule.asked)
        return picked

    def last_picking(self, queue: str, picked: list[Message]) -> Picking | None:
        """Return what the journal has to tell of the last pick, which found these messages; None if nothing."""
        return self._known[queue].picking(picked)

    def may_pick(self, queue: str) -> bool:
        """Return whether ``pick`` is likely to find something."""
        schedule = self._known.get(queue)
        return schedule is not None and not schedule.queue.is_paused and schedule.kernel.has_ready()

    def has_prompt(self, queue: str, now_ms: int) -> bool:
        """Return whether ``pick`` may find a message that should start at once; see ``Kernel.has_prompt``."""
        schedule = self._known.get(queue)
        return schedule is not None and schedule.kernel.has_prompt(now_ms)

    def in_order(self, queues: list[str]) -> list[str]:
        """Return queues in the order in which they are served: who has had least of a shared throttle comes first.

        Queues that have not been waiting for a token of a shared throttle keep their places.
        """
        if not self.throttles.divided:
            return queues
        # The line of a queue may still be there when the queue is not: its creation failed, and its waiter was refused.
        found = [(self._known.get(queue), at) for at, queue in enumerate(queues)]
        standings = [(schedule.kernel.standing(), at) for schedule, at in found if schedule is not None]
        waiting = [(standing, at) for standing, at in standings if standing is not None]
        ordered = list(queues)
        for (_, place), (_, at) in zip(waiting, sorted(waiting), strict=True):
            ordered[place] = queues[at]
        return ordered

    def known(self, queue: str) -> MessageSchedule:
        """Return the schedule of a queue, for reading."""
        return self._known[queue]

    def victim(self, queue: str, message: Message, policy: Backpressure, *, key: Key | None) -> Message | None:
        """Return the waiting message that would be dropped in favour of a new one."""
        return self._known[queue].kernel.victim(message, policy, key=key)

    def explain(self, message: Message, now_ms: int) -> Explanation:
        """Return why a message waits."""
        schedule = self._of(message.queue.name)
        time_releases = schedule.kernel.time_releases()
        explanation = explain(schedule, message, now_ms)
        self._note_time_releases(schedule, time_releases, now_ms)
        return explanation

    def key_policy(self, queue: str, key: Key) -> KeyPolicy | None:
        """Return weight and cap of a key in a queue, None for the defaults."""
        return self._known[queue].policies.of(key)

    def kernel(self, queue: str) -> Kernel[Message]:
        """Return the kernel of a queue, for reading."""
        return self._known[queue].kernel

    # -------------------------------------------------------------------------------------------------------- time

    def departed(self, now_ms: int) -> list[tuple[str, list[Message]]]:
        """Move time forward, and return the messages whose deadlines have passed, by queue."""
        events = self._events.entries
        if events and events[0][0] <= now_ms:
            due = self._events.pop_due(now_ms)
            for schedule in due:
                schedule.next_at = None
            self._touched.update(dict.fromkeys(due))
        found = []
        for schedule in self._touched:
            kernel = schedule.kernel
            if kernel.now_ms >= now_ms and not kernel.departures:
                continue  # whatever touched it has moved it to this instant already
            time_releases = kernel.time_releases()
            expired = [departure.item for departure in kernel.reap(now_ms)]
            if expired and schedule.moves.are_shared:  # their tokens are dealt to others, in the order of the queues
                schedule.note_move(self._ledger.next_sequence, now_ms, asked=0)
            else:
                self._note_time_releases(schedule, time_releases, now_ms)
            if expired:
                found.append((schedule.queue.name, expired))
        return found

    def _note_time_releases(self, schedule: MessageSchedule, before: int, now_ms: int) -> None:
        """Remember if the passing of time alone has moved parked lanes: no record will tell."""
        if schedule.kernel.time_releases() != before:
            schedule.note_move(self._ledger.next_sequence, now_ms, asked=0)

    def expired_leases(self, now_ms: int, *, most: int) -> list[tuple[str, list[Message]]]:
        """Return about ``most`` messages whose leases have ended, by queue; call it again for the rest."""
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
        for schedule in self._touched:
            at_ms = 0 if schedule.kernel.departures else schedule.kernel.next_event_at()
            if at_ms != schedule.next_at:
                schedule.next_at = at_ms
                if at_ms is not None:
                    self._events.push(at_ms, schedule)
        self._touched.clear()
        due_ms = NEVER_MS
        for entries in (self._events.entries, self._leases.entries):
            if entries and entries[0][0] < due_ms:
                due_ms = entries[0][0]
        if any(self.presence.watched):
            due_ms = min(due_ms, self.presence.next_at() or 0)
        if self._ledger.temporary:
            due_ms = min(due_ms, self._ledger.config_due_ms)
        if self._ledger.finished.known:
            due_ms = min(due_ms, self._ledger.finished.due_ms)
        return due_ms

    def _revive(self, queue: str) -> None:
        self.revived[queue] = None

    def held_up(self) -> dict[str, int]:
        """Return for each throttle, or pattern of them, that holds something back the weights of those queues in it."""
        found: dict[str, int] = {}
        for schedule in self._queues:
            for name in dict.fromkeys(map(self.throttles.setting_of, schedule.kernel.throttles_in_force())):
                found[name] = found.get(name, 0) + self.throttles.weight_of(name, schedule.queue.name)
        return found

    def next_event_at(self) -> int | None:
        """Return when something will change by itself, None for never."""
        earliest = self.presence.next_at() if any(self.presence.watched) else None
        timers: tuple[Timers[Any], ...] = (self._events, self._leases)
        for one in timers:
            at_ms = one.next_at() if one.entries else None
            if at_ms is not None and (earliest is None or at_ms < earliest):
                earliest = at_ms
        if self._ledger.temporary and (earliest is None or self._ledger.config_due_ms < earliest):
            earliest = self._ledger.config_due_ms
        if self._ledger.finished.known and (earliest is None or self._ledger.finished.due_ms < earliest):
            earliest = self._ledger.finished.due_ms
        return earliest

    def touched(self) -> list[str]:
        """Return the queues in which something may have become ready since events were settled."""
        return [schedule.queue.name for schedule in self._touched]
