"""The queues of a journal while it is replayed: everything in them but the consumers.

This is the one player of what-if. A *simulation* lets modelled consumers take messages from these queues; a
*reproduction* takes them exactly when the journal says, and compares what comes out. So a reproduction that is exact
vouches for the very code that makes forecasts.

What a record about queues, config or pauses means is not decided here. The scenario may change or drop the record
(``Scenario.adjusted``); from then on it goes the way it goes in a broker: through ``apply`` into a ledger, and from
there into ``QueueSchedules``. The ledger holds queues and config, and no messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fairlane.core.apply import apply
from fairlane.core.ledger import Ledger, Queue
from fairlane.core.queue_schedule import QueueSchedule, QueueSchedules
from fairlane.journal.records import AnyRecord, QueuePaused, QueueRemoved, QueueSet
from fairlane.model.message import key_of
from fairlane.model.policy import QueuePolicy
from fairlane.scheduler.kernel import Kernel
from fairlane.spark.whatif.messages import ReplayedMessage
from fairlane.spark.whatif.scenario import Scenario

LATER: Final = 1 << 62

Leased = Callable[[], list[ReplayedMessage]]
"""Returns the messages that are leased at the moment, in the order in which their leases end."""


class ReplayedQueue:
    """One queue while it is replayed.

    Attributes:
        number: its number among the queues.
        free: how many more leases the consumers would hold.
        wake_ms: when something happens there by itself.
        changes_at: when the number of consumers changes.
        kernel, offer_many, take, release: what the simulation's loop calls, at hand.
        is_strict: whether its messages are kept in order.
    """

    __slots__ = (
        *("_slots", "_there", "changes_at", "free", "kernel", "number", "offer_many", "release", "schedule", "take"),
        *("is_strict", "wake_ms"),
    )

    def __init__(self, number: int, schedule: QueueSchedule[ReplayedMessage], slots: list[tuple[int, int]]) -> None:
        self.number = number
        self._slots = slots[::-1]
        self._there = 0
        self.free = 0
        self.wake_ms = LATER
        self.changes_at = 0
        self.set_schedule(schedule)
        self.pass_time(0)

    @property
    def queue(self) -> Queue:
        """The queue as the ledger has it."""
        return self.schedule.queue

    def set_schedule(self, schedule: QueueSchedule[ReplayedMessage]) -> None:
        """Use another schedule."""
        self.schedule = schedule
        self.kernel: Kernel[ReplayedMessage] = schedule.kernel
        self.offer_many, self.take, self.release = self.kernel.offer_many, self.kernel.take, self.kernel.release
        self.is_strict = schedule.is_strict

    def pass_time(self, now_ms: int) -> None:
        """Set the number of consumers to that of an instant."""
        while self._slots and self._slots[-1][0] <= now_ms:
            _, there = self._slots.pop()
            self.free += there - self._there
            self._there = there
        self.changes_at = self._slots[-1][0] if self._slots else LATER


class ReplayedQueues:
    """Queues, throttles and config under one scenario.

    Attributes:
        all: the queues, by number.
        missed: the numbers of messages whose deadlines passed, as far as it was noticed.
        removed: the numbers of messages that were taken out.
    """

    def __init__(self, sequence: int, scenario: Scenario, leased: Leased) -> None:
        """Begin with no queues.

        Args:
            sequence: any sequence of the journal, which tells the partition that it is of.
            scenario: what is set otherwise than in the journal.
            leased: returns the leased messages.
        """
        self._scenario = scenario
        self._leased = leased
        self._ledger = Ledger(sequence=max(1, sequence))
        self._ledger.config.update({key: value for key, value in scenario.config.items() if value is not None})
        self._schedules: QueueSchedules[ReplayedMessage] = QueueSchedules(self._ledger, self._contents, 0, tokens=None)
        self._by_name: dict[str, ReplayedQueue] = {}
        self.all: list[ReplayedQueue] = []
        self.missed: list[int] = []
        self.removed: list[int] = []

    def _contents(self, queue: Queue) -> tuple[list[ReplayedMessage], list[ReplayedMessage]]:
        known = self._by_name.get(queue.name)
        if known is None:
            return [], []
        return [message for message in self._leased() if message.queue == known.number], known.kernel.waiting_items()

    def get(self, name: str) -> ReplayedQueue | None:
        """Return a queue by name; None for one that does not exist at the moment."""
        return self._by_name.get(name) if name in self._ledger.queues else None

    def add(self, name: str, slots: list[tuple[int, int]]) -> None:
        """Create a queue with consumers, as it is before the journal tells its policy."""
        self._create(QueueSet(self._ledger.next_sequence, name, QueuePolicy()), 0, slots)

    # -------------------------------------------------------------------------------------------------- changes

    def change(self, record: AnyRecord, now_ms: int) -> None:
        """Follow a record about a queue, a pause or the config."""
        adjusted = self._scenario.adjusted(record)
        if adjusted is None:
            return
        name = getattr(adjusted, "queue", None)
        known = None if name is None else self._by_name.get(name)
        if isinstance(adjusted, QueueSet) and (known is None or name not in self._ledger.queues):
            self._create(adjusted, now_ms, [])
            return
        if known is not None:
            self.reap(known)  # a kernel that is replaced takes its notes along
        if isinstance(adjusted, QueueRemoved) and known is not None:
            for message in known.kernel.waiting_items():
                self.remove(message, now_ms)
        self._follow(adjusted, now_ms)

    def _create(self, record: QueueSet, now_ms: int, slots: list[tuple[int, int]]) -> None:
        """Create a queue, or again one that was removed, with the keys paused that the scenario pauses."""
        self._follow(self._scenario.adjusted(record) or record, now_ms)
        if record.queue not in self._by_name:
            added = ReplayedQueue(len(self.all), self._schedules[record.queue], slots)
            self._by_name[record.queue] = added
            self.all.append(added)
        for key, is_paused in self._scenario.paused.get(record.queue, {}).items():
            if is_paused:
                self._follow(QueuePaused(record.sequence, record.queue, is_paused, key_of(key.split("/"))), now_ms)

    def _follow(self, record: AnyRecord, now_ms: int) -> None:
        apply(self._ledger, record, now_ms)
        self._schedules.follow(record, now_ms)
        self._refresh()

    def _refresh(self) -> None:
        for name, queue in self._by_name.items():
            schedule = self._schedules.get(name)
            if schedule is not None and schedule is not queue.schedule:
                queue.set_schedule(schedule)

    def reopen(self, now_ms: int) -> None:
        """Rebuild everything, as a broker does when it is opened: buckets are empty, and deficits start from zero."""
        for queue in self.all:
            self.reap(queue)
        self._schedules.reopen(now_ms)
        self._refresh()

    # ------------------------------------------------------------------------------------------------- messages

    def remove(self, message: ReplayedMessage, now_ms: int) -> None:
        """Take a message out, if it waits."""
        if message.lane is not None:
            self.all[message.queue].kernel.cancel(message, now_ms)
            self.removed.append(message.number)

    def reap(self, queue: ReplayedQueue, now_ms: int | None = None) -> None:
        """Note the messages whose deadlines have passed."""
        self.missed += [departure.item.number for departure in queue.kernel.reap(now_ms)]
