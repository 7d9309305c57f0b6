"""The schedules of queues: one kernel each, and everything that can happen to it besides messages and leases.

A policy or config change, a pause, a removed queue, a reopened broker: what each of them means for a queue's kernel is
defined here once. Two users rely on it. The broker's ``Schedule`` follows its own journal, and what-if replays an
exported journal under other settings; a second definition there would make its forecasts wrong as soon as the two
differ.

``QueueSchedules`` reads queues and config from a ledger that the record has been applied to already. It never asks the
ledger for messages, since a replay has none there: ``contents`` returns them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from fairlane.core.config_patterns import KEY_SETTINGS, ConfigPatterns
from fairlane.core.dead_letters import has_died
from fairlane.core.key_policies import KeyPolicies
from fairlane.core.ledger import Group, Ledger, Queue, ScheduledItem
from fairlane.core.moves import Moves
from fairlane.core.rows.offering import offer_all, withdraw
from fairlane.core.throttling import ThrottleConfig, throttle_names, throttle_weights
from fairlane.journal.records import AnyRecord, ConfigSet, Picking, QueuePaused, QueueRemoved, QueueSet
from fairlane.model.message import Key
from fairlane.model.names import is_dlq
from fairlane.model.partitions import partition_name, served_name
from fairlane.scheduler.buckets import Throttles, rate_family
from fairlane.scheduler.kernel import Kernel
from fairlane.scheduler.lanes import NOT_HELD, Holdup
from fairlane.scheduler.policy import StrictOrder
from fairlane.verbs.keys import EVERY

I = TypeVar("I", bound=ScheduledItem)  # noqa: E741 - the name that the kernel uses
Contents = Callable[[Queue], tuple[list[I], list[I]]]
"""Returns the items of a queue that are leased, and those that wait."""

_SETTING_PARTS = 3
"""``weight:QUEUE:KEY``, ``cap:QUEUE:KEY`` and the others of ``KEY_SETTINGS``."""


class QueueSchedule(Generic[I]):
    """The schedule of one queue: its kernel, the policies of its keys, and notes about its last pick.

    Attributes:
        asked: how many messages the last pick was asked for.
        held: what held up the messages that it found.
        is_strict: whether the messages of a group are kept in order.
        largest: no waiting message has a larger payload.
        moves: what has moved parked lanes since the last pick that found something, here or in queues that share
            throttles with this one; see ``Picking``.
        next_at: the instant that the broker has noted as the next at which something happens here.
    """

    __slots__ = (
        *(
            "_is_single",
            "_made_with",
            "_picked_ms",
            "asked",
            "held",
            "is_strict",
            "kernel",
            "largest",
            "moves",
            "next_at",
        ),
        *("policies", "queue"),
    )

    def __init__(self, queue: Queue, throttles: Throttles, config: Mapping[str, str], patterns: ConfigPatterns) -> None:
        self.queue = queue
        self.policies = KeyPolicies(queue, config, patterns)
        self.kernel: Kernel[I] = _kernel(queue, throttles, self.policies)
        self.next_at: int | None = None
        self.asked = 0
        self.held: Mapping[I, Holdup] = {}
        self.largest = 0
        self.moves = Moves(self)
        self.is_strict = queue.is_strict
        self._picked_ms = 0
        self._is_single = False
        self._made_with = _made_with(queue)

    # -------------------------------------------------------------------------------------------------- messages

    def offer(self, items: list[I], now_ms: int) -> None:
        """Add messages that wait."""
        largest = items[0].size if len(items) == 1 else max([item.size for item in items], default=0)
        self.largest = max(self.largest, largest) if len(self.kernel) else largest
        self.kernel.offer_many(items, now_ms)

    def offer_rows(self, keys: Sequence[Key], numbers: Sequence[int], largest: int, now_ms: int) -> None:
        """Add plain messages that wait as rows, of which none has a payload above ``largest``."""
        self.largest = max(self.largest, largest) if len(self.kernel) else largest
        self.kernel.offer_rows(keys, numbers, now_ms, self.queue.messages.made)

    def offer_new(self, items: list[I], now_ms: int) -> None:
        """Add messages that may bring weights and caps for their keys."""
        for key in self.policies.learn(items):
            self.kernel.refresh_policy(key, now_ms)
        self.offer(items, now_ms)

    def cancel(self, items: Iterable[I], now_ms: int) -> None:
        """Take out those of some messages that wait."""
        withdraw(self.kernel, items, now_ms)

    def release(self, items: Sequence[I], now_ms: int) -> None:
        """Free what leased messages that are done take of the caps of their keys, and let those behind them go."""
        self.kernel.release_many(Counter([item.key for item in items]), now_ms)
        if self.is_strict:
            self.kernel.finish(items, now_ms)

    def take_back(self, items: list[I], now_ms: int) -> None:
        """Free what leased messages take of the caps of their keys, and add them to those that wait."""
        self.kernel.release_many(Counter([item.key for item in items]), now_ms)
        self.offer(items, now_ms)
        if self.is_strict:  # after they were offered: else those behind them would go first
            self.kernel.finish(items, now_ms)

    def settle(self, items: Iterable[I], costs: Iterable[int | None]) -> None:
        """Charge keys the difference between true and estimated cost, where a consumer reported the true one."""
        for item, cost in zip(items, costs, strict=True):
            if cost is not None and cost != item.cost:
                self.kernel.settle(item.key, cost - item.cost, item.priority)

    # --------------------------------------------------------------------------------------------------- picking

    def pick(
        self, count: int, now_ms: int, *, size_bytes: int | None = None, is_single: bool = False, is_part: bool = False
    ) -> tuple[list[I], bool]:
        """Take up to ``count`` messages whose turn it is, and return them and whether the last was asked for in vain.

        Args:
            count: the most messages to take.
            now_ms: the instant.
            size_bytes: stop once the payloads have reached this size, which the last of them may exceed.
            is_single: whether to take at most one message of each group, where they are kept in order.
            is_part: whether more is picked for the same consumer; then ``Kernel.end_take`` ends the pick.
        """
        if self.queue.is_paused:
            return [], False
        self._picked_ms = now_ms
        self._is_single = is_single and self.is_strict and self.queue.policy.order_batch_max > 1
        if size_bytes is None or count * self.largest <= size_bytes:
            self.asked = count
            picked = self.kernel.take(count, now_ms, is_single=is_single, is_part=is_part)
            self.held = self.kernel.holdups()
            return picked, not picked
        return self._pick_within(count, size_bytes, now_ms, is_single=is_single)

    def _pick_within(self, count: int, size_bytes: int, now_ms: int, *, is_single: bool) -> tuple[list[I], bool]:
        """Take messages one by one, since their sizes differ."""
        self.asked = 1
        picked: list[I] = []
        held: dict[I, Holdup] = {}
        size = 0
        one: list[I] = []
        while len(picked) < count and size < size_bytes:
            one = self.kernel.take(1, now_ms, is_single=is_single, is_part=True)
            if not one:
                break
            picked += one
            size += one[0].size
            held |= self.kernel.holdups()
        self.kernel.end_take()
        self.held = held
        return picked, not one

    def picking(self, picked: list[I]) -> Picking | None:
        """Return what the journal has to tell of the last pick, which found these messages; None if nothing."""
        known, paused_ms = self.held, self.paused_ms(picked) if self.queue.pauses.spans else None
        is_plain = not known and not self.moves.entries and not self._is_single
        if is_plain and self.asked == len(picked) and paused_ms is None:
            return None
        picking = Picking(self.asked, paused_ms=paused_ms, is_single=self._is_single)
        if known:
            held = [known.get(item, NOT_HELD) for item in picked]
            picking.throttled_ms = [each.throttled_ms for each in held]
            picking.capped_ms = [each.capped_ms for each in held]
        if self.moves.entries:
            picking.moves = self.moves.told_by(self.queue.name)
        return picking

    def paused_ms(self, picked: list[I]) -> list[int] | None:
        """Return how long of its wait each picked message was paused; None if none of them was."""
        pauses, until_ms = self.queue.pauses, self._picked_ms
        found = [pauses.within(item.key, item.ready_ms, until_ms) for item in picked]
        return found if any(found) else None

    def note_move(self, sequence: int, now_ms: int, *, asked: int) -> None:
        """Remember something that moved parked lanes and leaves no record; see ``Picking.moves``."""
        self.moves.note(sequence, now_ms, asked, self.queue.name)

    # -------------------------------------------------------------------------------------------------- settings

    def is_made_for(self, queue: Queue) -> bool:
        """Return whether the kernel is one that the queue's present policy asks for."""
        return self.queue is queue and self._made_with == _made_with(queue)

    def retire(self, now_ms: int) -> None:
        """Empty the kernel for good: messages that wait leave it, and it leaves the throttles that queues share."""
        self.kernel.retire(now_ms)
        self.moves.leave(self)
        self.next_at = None


def _kernel(queue: Queue, throttles: Throttles, policies: KeyPolicies) -> Kernel[I]:
    # Dead letters have paid for their tokens once. An operator who looks through them should not wait for others.
    table = Throttles() if is_dlq(queue.name) else throttles
    policy = queue.policy
    kernel: Kernel[I] = Kernel(
        quantum=policy.quantum,
        strict_priority=policy.strict_priority,
        counts_use=True,
        throttles=table,
        name=queue.name,
        order=_order(queue) if queue.is_strict else None,
    )
    kernel.set_policy_provider(policies.of)
    kernel.set_in_use_max(policy.in_flight_max)
    for key in queue.paused_keys:
        kernel.pause(key)
    return kernel


def _made_with(queue: Queue) -> tuple[object, ...]:
    """Return what a kernel is made with and can't change."""
    policy = queue.policy
    return policy.quantum, policy.strict_priority, queue.is_strict, policy.order_batch_max


def _order(queue: Queue) -> StrictOrder[I]:
    return StrictOrder(group_of=_group, place_of=_joined, ready_of=_ready_ms, batch_max=queue.policy.order_batch_max)


class QueueSchedules(Generic[I]):
    """The schedules of all queues of a ledger, and the throttles that they share.

    Attributes:
        throttles: the token buckets, by name.
        patterns: the patterns in the config.
        throttle_config: what the config says about throttles.
        known: the schedule of each queue, for reading.
    """

    def __init__(
        self,
        ledger: Ledger,
        contents: Contents[I],
        now_ms: int,
        *,
        tokens: float | None = 0,
        on_returned: Callable[[str], None] | None = None,
    ) -> None:
        """Create the schedules of all queues.

        Args:
            ledger: the queues and the config.
            contents: returns the messages of a queue.
            now_ms: the instant.
            tokens: how many tokens buckets begin with; None for full ones. A broker begins with none, so that a
                throttle holds across a crash.
            on_returned: called with the name of a queue that may go on with tokens that another has given back.
        """
        self._ledger = ledger
        self._contents = contents
        self.known: dict[str, QueueSchedule[I]] = {}
        self._on_returned = on_returned
        self.throttles = Throttles(self._share_moves, on_returned)
        self._reset(now_ms, tokens)

    def __getitem__(self, queue: str) -> QueueSchedule[I]:
        return self.known[queue]

    def __iter__(self) -> Iterator[QueueSchedule[I]]:
        return iter(self.known.values())

    def get(self, queue: str) -> QueueSchedule[I] | None:
        """Return the schedule of a queue, None if there is no such queue."""
        return self.known.get(queue)

    def reopen(self, now_ms: int) -> None:
        """Rebuild all schedules, as when a broker is opened: buckets are empty, and deficits start from zero."""
        self._reset(now_ms, 0)

    def _reset(self, now_ms: int, tokens: float | None) -> None:
        self.throttles = Throttles(self._share_moves, self._on_returned)
        self.patterns = ConfigPatterns(self._ledger.config)
        self.throttle_config = ThrottleConfig(self._ledger.config, self.patterns)
        self.throttle_config.begin(self.throttles, now_ms=now_ms, tokens=tokens)
        self._set_throttle_weights(self._ledger.config, now_ms)
        has_rates = any(key.startswith("rate:") for key in self._ledger.config)
        for queue in self._ledger.queues.values():
            if tokens is not None and (has_rates or queue.policy.key_rate is not None):
                self.throttles.begin_empty(rate_family(queue.name), now_ms=now_ms)
            self._build(queue, now_ms)

    def _build(self, queue: Queue, now_ms: int) -> QueueSchedule[I]:
        """Create the schedule of a queue, in place of an earlier one."""
        leased, waiting = self._contents(queue)
        before = self.known.get(queue.name)
        if before is not None:
            before.retire(now_ms)
        schedule: QueueSchedule[I] = QueueSchedule(queue, self.throttles, self._ledger.config, self.patterns)
        self.known[queue.name] = schedule
        if not is_dlq(queue.name):  # dead letters come from several queues, and say nothing about their keys here
            own = (item for item in (*leased, *waiting) if not has_died(item))
            schedule.policies.learn(sorted(own, key=lambda item: item.number))
        for key, count in Counter(item.key for item in leased).items():
            schedule.kernel.occupy(key, count)
        schedule.kernel.resume_order(sorted(leased, key=_joined))
        for item in waiting:
            item.held = None  # what the clocks of the earlier kernel showed means nothing to this one
        offer_all(schedule, sorted(waiting, key=_joined), queue.messages.runs(), now_ms)
        return schedule

    def follow(self, record: AnyRecord, now_ms: int) -> list[QueueSchedule[I]]:
        """Act on a record about queues or config that the ledger knows already; return the schedules it concerns."""
        if isinstance(record, QueueSet):
            return [self._set_policy(self._ledger.queues[record.queue], now_ms)]
        if isinstance(record, QueueRemoved):
            self.known.pop(record.queue).retire(now_ms)
        elif isinstance(record, QueuePaused):
            return [self._pause(record)]
        elif isinstance(record, ConfigSet):
            return self._set_config(record.key, now_ms)
        return []

    def _set_policy(self, queue: Queue, now_ms: int) -> QueueSchedule[I]:
        known = self.known.get(queue.name)
        if known is None or not known.is_made_for(queue):  # else it can't be changed
            return self._build(queue, now_ms)
        known.kernel.set_in_use_max(queue.policy.in_flight_max)  # first: keys come back in the order of their waits
        known.kernel.set_policy_provider(known.policies.of, now_ms)
        return known

    def _pause(self, record: QueuePaused) -> QueueSchedule[I]:
        schedule = self.known[record.queue]
        if record.key is not None:  # a queue that is paused as a whole is not picked from, its kernel need not know
            (schedule.kernel.pause if record.is_paused else schedule.kernel.resume)(record.key)
        return schedule

    def _set_config(self, setting: str, now_ms: int) -> list[QueueSchedule[I]]:
        concerned: dict[QueueSchedule[I], None] = {}
        self.patterns.follow(setting, self._ledger.config.get(setting))
        for name in throttle_names((setting,)):
            self.throttle_config.follow(self.throttles, name, now_ms=now_ms)
            concerned |= dict.fromkeys(self)  # what the throttle held back may be in any queue
        self._set_throttle_weights((setting,), now_ms)
        for schedule, key in self._keys_of(setting):
            if key is None:
                schedule.kernel.set_policy_provider(schedule.policies.of, now_ms)
            else:
                schedule.kernel.refresh_policy(key, now_ms)
            concerned[schedule] = None
        return list(concerned)

    def _set_throttle_weights(self, settings: Iterable[str], now_ms: int) -> None:
        for setting, queue, throttle in throttle_weights(settings):
            weight = self._ledger.config.get(setting)
            name = served_name(partition_name(queue, self._ledger.partition))
            self.throttles.set_weight(throttle, name, None if weight is None else int(weight), now_ms=now_ms)

    def _share_moves(self, one: str, other: str) -> None:
        """Join the moves of two queues that share a throttle from now on."""
        first, second = self.known.get(one), self.known.get(other)
        if first is not None and second is not None:
            first.moves.join(second.moves)

    def _keys_of(self, setting: str) -> Iterator[tuple[QueueSchedule[I], Key | None]]:
        """Yield the keys that a setting is about, None for all of a queue.

        A path with slashes may also be a plain key of that name. Config names queues as operators do; the journal of a
        partition knows its part of ``orders`` as ``orders~1``.
        """
        parts = setting.split(":", _SETTING_PARTS - 1)
        if len(parts) != _SETTING_PARTS or parts[0] not in KEY_SETTINGS:
            return
        _, queue, name = parts
        schedule = self.known.get(served_name(partition_name(queue, self._ledger.partition)))
        found = list(self) if queue == EVERY else [] if schedule is None else [schedule]
        path = tuple(name.split("/"))
        keys: list[Key | None] = [path] if all(path) else []
        keys += [name] if len(path) > 1 else []
        yield from ((each, key) for each in found for key in ([None] if name.endswith(EVERY) else keys))


def _joined(item: ScheduledItem) -> int:
    return item.joined


def _group(item: ScheduledItem) -> Group:
    return item.group


def _ready_ms(item: ScheduledItem) -> int:
    return item.ready_ms
