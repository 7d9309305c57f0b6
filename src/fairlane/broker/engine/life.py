"""What the engine is made of, and its life: opened, recovered after a failure, fenced, closed.

The states and what changes them are in ``state``. ``Engine`` adds the cycle.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from fairlane.broker.bodies import Bodies
from fairlane.broker.calls import set_hooks
from fairlane.broker.cycle import Cycle
from fairlane.broker.disk_reserve import DiskReserve
from fairlane.broker.engine.housekeeping import CARRY_FLOOR, Housekeeper
from fairlane.broker.engine.recovery import Undelivered, recover
from fairlane.broker.engine.replies import (
    refuse_all,
    refuse_cycle,
    refuse_everyone,
    release_everyone,
    send_away,
    send_away_from,
)
from fairlane.broker.engine.state import RUNNING, Event, State, after
from fairlane.broker.hook_calls import HookCalls
from fairlane.broker.intake import InboxOrder
from fairlane.broker.measurements import EngineMetrics
from fairlane.broker.progress import ProgressReports
from fairlane.broker.read_leases import ReadLeases
from fairlane.broker.refusals import CollectedRefusals
from fairlane.broker.requests import Attach, AttachedConsumer, Call, NoReply, Submission
from fairlane.broker.settings import Settings
from fairlane.broker.steady_time import BrokerTime
from fairlane.broker.waiting.consumers import WaitingConsumers
from fairlane.broker.waiting.fetches import Fetches
from fairlane.broker.waiting.peeks import Peeks
from fairlane.broker.waiting.pieces import WaitingPieces
from fairlane.broker.waiting.producers import WaitingEnqueues
from fairlane.broker.waiting.redrives import Redrives
from fairlane.broker.waiting.script_lines import ScriptLines
from fairlane.broker.waiting.sinks import WaitingSinks
from fairlane.broker.waiting.ticks import Ticks
from fairlane.broker.waiting.watchers import StatusWatchers
from fairlane.core.commands import Open
from fairlane.core.ledger import Ledger, Message
from fairlane.core.rows.messages import ROWS_FROM
from fairlane.core.schedule import Schedule
from fairlane.errors import Closed, FairlaneError, StoreFailed, StoreFenced
from fairlane.journal.records import AnyRecord
from fairlane.model.message import NEVER_MS, Delivery, Receipt
from fairlane.ports.clock import Clock
from fairlane.ports.disk import Disk
from fairlane.ports.entropy import Entropy
from fairlane.ports.hooks import Hooks
from fairlane.ports.store import Store
from fairlane.scheduler.timers import Timers
from fairlane.verbs.leases import Nack
from fairlane.verbs.verb import Reply

_log = logging.getLogger("fairlane.broker")
_RETRY_MS, _RETRY_MS_MAX = 5, 1_000
Tap = Callable[[Sequence[AnyRecord], int], None]
HandOutTap = Callable[[str, list[Message]], None]


class EngineLife:
    """The parts of an engine, and the transitions between its states.

    Attributes:
        state: see ``fairlane.broker.engine.state``.
        inbox: the requests that the next cycle takes, the first in front.
        taps: called with the records of every durable commit and its instant.
        hand_out_taps: called with a queue and the messages that were leased from it, claims excepted.
    """

    def __init__(
        self,
        store: Store,
        *,
        hooks: Hooks,
        clock: Clock,
        entropy: Entropy,
        disk: Disk | None = None,
        settings: Settings | None = None,
        carry_floor: int = CARRY_FLOOR,
        reopens: bool = True,
        rows_from: int | None = ROWS_FROM,
    ) -> None:
        self._rows_from = rows_from
        self.settings = settings if settings is not None else Settings()
        self.store = store
        self.hooks = hooks
        self._carry_floor = carry_floor
        self._reopens = reopens
        self.state = State.NEW
        self._fenced_by = StoreFenced("The store belongs to another process.")
        self._failures = 0
        self._retry_at_ms = 0
        self._due_ms = 0
        self._reserved = 0
        self._renewed_id = ""
        self._entropy = entropy
        self.inbox: deque[Submission] = deque()
        self._intake = InboxOrder()
        self._undelivered = Undelivered()
        self.taps: list[Tap] = []
        self.hand_out_taps: list[HandOutTap] = []
        self.metrics = EngineMetrics()
        self.bodies = Bodies(
            store, cache_bytes_max=self.settings.cache_bytes_max, whole_bytes_max=self.settings.payload_bytes_max
        )
        self.hook_calls = HookCalls(hooks, entropy, self.bodies, self.settings)
        self.script_lines = ScriptLines()
        self.consumers = WaitingConsumers(self.settings)
        self.producers = WaitingEnqueues()
        self.sinks = WaitingSinks()
        self.pieces = WaitingPieces()
        self.fetches = Fetches(store)
        self.peeks = Peeks()
        self.redrives = Redrives()
        self.refusals = CollectedRefusals()
        self.ticks = Ticks()
        self.progress = ProgressReports()
        self.read_leases = ReadLeases()
        self.watchers = StatusWatchers(waiters_max=self.settings.waiters_max)
        self.time = BrokerTime(clock)
        self.reserve = DiskReserve(disk, self.settings.disk_reserve_bytes)
        self.ledger = Ledger()
        self.schedule = Schedule(self.ledger, 0)
        self._housekeeper = Housekeeper(self.ledger, self.settings)

    # --------------------------------------------------------------------------------------------------------- opening

    def open(self) -> None:
        """Recover everything from the store. Raises StoreFailed or StoreCorrupt if the store can't be read."""
        settings = self.settings
        begun = perf_counter()
        self.bodies.clear()
        ledger, self._reserved = recover(self.store, settings.for_ledger(), rows_from=self._rows_from)
        self.time.reach(ledger.at_ms)
        for name in self.ledger.queues.keys() - ledger.queues.keys():
            self.hooks.remove(name)
        for queue in ledger.queues.values():
            set_hooks(self.hooks, queue.name, queue.policy)
        self.ledger = ledger
        self.schedule = Schedule(ledger, self.now_ms())
        self._housekeeper = Housekeeper(ledger, settings, carry_floor=self._carry_floor)
        self._begin_again(ledger)
        self.state = after(self.state, Event.RECOVER)
        self._due_ms = 0
        self._undelivered.give_back(ledger, self.submit)
        self.consumers.reconcile(ledger.token_of)
        self.metrics.recoveries += 1
        self.metrics.recovery_s = perf_counter() - begun

    def _begin_again(self, ledger: Ledger) -> None:
        """Forget what the broker was doing by itself; what is still to be done follows from the ledger."""
        self.redrives.resume(ledger, self.now_ms())
        self.script_lines.forget_own()
        self.ticks.rebuild(ledger)
        self.watchers.doubt()

    def _opening(self) -> Open:
        """Return the command that records the opening, with the id of the journal: a new journal gets one now."""
        journal_id = self._renewed_id or self.ledger.journal_id or self._new_journal_id()
        return Open(built_ms=self.schedule.built_ms, reserved=self._reserved, journal_id=journal_id)

    def _new_journal_id(self) -> str:
        return f"{self._entropy.below(1 << 64):016x}"

    def renew_journal(self, *, skip: int) -> str:
        """Give the journal of a restored store a new id with the next commit, and return the id.

        Args:
            skip: how many sequences are left out, because the broker may have issued them after the backup was made.
        """
        self._renewed_id = self._new_journal_id()
        self._reserved = max(self._reserved, self.ledger.next_sequence + skip)
        return self._renewed_id

    def _reopen(self) -> None:
        """Recover from the store, or refuse the requests that wait if that is not possible now, or not here."""
        try:
            if self.state is State.DOWN and not self._reopens:
                raise StoreFenced("The store has failed, and this broker does not reopen it.")
            self.open()
        except FairlaneError as error:
            self._back_off()
            if isinstance(error, StoreFenced):
                self._abdicate(error)
            self.consumers.unserved = {}
            self._refuse_inbox(error)
            refuse_all((*self.script_lines.dismiss(), *self.pieces.dismiss()), error)
            refuse_all((*self.fetches.dismiss(), *self.peeks.dismiss()), error)

    def _abdicate(self, error: StoreFenced) -> None:
        """Give up for good: the store is for another process to serve."""
        _log.error("%s", error)
        self.state = after(self.state, Event.FENCE)
        self._fenced_by = error
        refuse_everyone(self.consumers, self.producers, self.sinks, error)
        refuse_all(self._dismiss_waiting(), error)

    def _dismiss_waiting(self) -> list[Reply | None]:
        """Forget the requests that wait for the broker's own work, and return their replies."""
        waiting = *self.script_lines.dismiss(), *self.watchers.dismiss(), *self.pieces.dismiss()
        return [*waiting, *self.fetches.dismiss(), *self.peeks.dismiss()]

    def _refuse_inbox(self, error: FairlaneError) -> None:
        """Refuse the requests of callers. What the broker asks of itself stays: no caller would repeat it."""
        asked = [self.inbox.popleft() for _ in range(len(self.inbox))]  # not those that threads add meanwhile
        self.inbox.extend(submission for submission in asked if submission.reply is None)
        refuse_all((submission.reply for submission in asked), error)

    def _back_off(self) -> None:
        """Postpone the cycles that time alone asks for: what failed is likely to fail again."""
        self._failures += 1
        self._retry_at_ms = self.now_ms() + min(_RETRY_MS_MAX, _RETRY_MS << min(self._failures, 10))

    def fail(self, cycle: Cycle, error: BaseException) -> None:
        """Refuse the cycle's requests as possibly done, and recover from the store."""
        failure = (
            error if isinstance(error, FairlaneError) else StoreFailed(f"The broker had to recover: {error!r:.200}.")
        )
        refuse_cycle(cycle, failure)
        self.metrics.failures += 1
        self.inbox.extend(cycle.own)  # behind the requests of callers, who go first
        self.producers.fail(cycle, failure)
        self.consumers.fail(cycle)
        self._undelivered.add(cycle.hand_outs)
        self.state = after(self.state, Event.FAIL)
        if self.state in (State.NEW, State.DOWN):
            self._back_off()
            self._reopen()

    def distrust(self, cycle: Cycle | None) -> None:
        """Note that a cycle was interrupted, so that the next begins with a recovery."""
        self.state = after(self.state, Event.FAIL)
        if cycle is not None:
            self.fail(cycle, StoreFailed("The broker was interrupted."))

    # ------------------------------------------------------------------------------------------------------------ time

    def now_ms(self) -> int:
        """Return the broker's time."""
        return self.time.now_ms()

    def next_event_at(self) -> int | None:
        """Return when a cycle is due without a request: a lease, delay, token or wait that ends. None for never."""
        if self.state is State.FENCED:
            return None
        if self.state not in RUNNING:
            return self._retry_at_ms
        instants = [self.schedule.next_event_at(), self._housekeeper.next_seal_at()]
        if self.refusals.due_ms < NEVER_MS:
            instants.append(self.refusals.due_ms)
        instants += [limits.next_at() for limits in self._timers() if limits.entries]
        if self.inbox and self._intake.pace.until_ms:
            instants.append(self._intake.pace.until_ms)
        if self.redrives.running or self.redrives.dry_runs.running:
            instants.append(self.redrives.next_step_at())
        known = [at_ms for at_ms in instants if at_ms is not None]
        at_ms = min(known) if known else None
        if not self._failures:
            return at_ms
        waiting = self.consumers.unserved or self.script_lines.lines or self.pieces.lines or self.fetches.loaded
        if self.inbox or waiting:
            return self._retry_at_ms
        return None if at_ms is None else max(at_ms, self._retry_at_ms)

    def next_look_at(self) -> int | None:
        """Return when to ask ``next_event_at``: too early if something is gone by then, but never too late.

        It costs a few comparisons, so a front end can ask it after every cycle.
        """
        redrives = self.redrives
        if self.state not in RUNNING or self._failures or redrives.running or redrives.dry_runs.running:
            return self.next_event_at()
        at_ms = min(self.refusals.due_ms, self._due_ms)
        if self.inbox and 0 < self._intake.pace.until_ms < at_ms:
            at_ms = self._intake.pace.until_ms
        for timers in self._timers():
            if timers.entries and timers.entries[0][0] < at_ms:
                at_ms = timers.entries[0][0]
        seal_at_ms = self._housekeeper.next_seal_at()
        return at_ms if seal_at_ms is None or at_ms < seal_at_ms else seal_at_ms

    def _timers(self) -> tuple[Timers[Any], ...]:
        """Return the instants at which waits end and schedules are due."""
        waiting = self.consumers.limits, self.producers.limits, self.sinks.limits
        return *waiting, self.ticks.timers, self.watchers.limits

    @property
    def is_fenced(self) -> bool:
        """Whether every request is refused for good; see ``State.FENCED``."""
        return self.state is State.FENCED

    @property
    def is_closed(self) -> bool:
        """Whether the broker was closed."""
        return self.state is State.CLOSED

    @property
    def is_well(self) -> bool:
        """Whether requests are decided and the latest commit succeeded."""
        return self.state in RUNNING and not self._failures

    def has_requests(self) -> bool:
        """Return whether a cycle is due at once: for requests, or for what the last cycle had no time for."""
        if not self._failures:
            is_asked = bool(self.inbox) and not self._intake.is_waiting(self.inbox, self.now_ms())
            waiting = is_asked or self.consumers.unserved or self.script_lines.lines or self.watchers.searches.jobs
            own = self.ledger.discarded.entries or self.fetches.loaded or self.peeks.jobs
            more = self.pieces.lines or (own and self.state in RUNNING)
            return bool(waiting or more)
        asked = list(self.inbox)  # a copy, since threads may add to it meanwhile
        return any(submission.reply is not None for submission in asked)  # the broker's own requests can wait

    def submit(self, submission: Submission) -> None:
        """Add a request for the next cycle. The only thing that any thread may do at any time."""
        self.inbox.append(submission)

    # -------------------------------------------------------------------------------------------------------- departing

    def abandon(self, consumer: AttachedConsumer) -> None:
        """Detach a consumer whose caller does not wait for that."""
        self.submit(Attach(consumer, NoReply(), is_closing=True))

    def give_back(self, queue: str, deliveries: Sequence[Delivery | Receipt]) -> None:
        """Return messages to their queue that were handed out to a caller that is gone."""
        receipts = [Receipt(delivery.id, delivery.token) for delivery in deliveries]
        if receipts:
            self.submit(Call(Nack(queue=queue, receipts=receipts, intent="defer", delay_ms=0)))

    def close(self) -> None:
        """Answer everyone who waits with what they have so far, and release the store."""
        self.let_go()
        self.store.close()

    def let_go(self) -> None:
        """Answer everyone who waits, and take no more requests. The store is still to be closed."""
        release_everyone(self.consumers, self.producers, self.sinks)
        self.state = after(self.state, Event.CLOSE)
        closed = Closed("The broker has been closed.")
        refuse_all([submission.reply for submission in list(self.inbox)], closed)
        refuse_all(self._dismiss_waiting(), closed)
        self.inbox.clear()

    def send_away(self, error: FairlaneError) -> None:
        """Refuse everyone who waits, and hand out nothing more. What has been leased stays leased."""
        self._intake.pace.release()
        send_away(self.consumers, error)
        refuse_all(self._dismiss_waiting(), error)

    def send_away_from(self, queue: str, error: FairlaneError) -> None:
        """Refuse everyone who waits at a queue, and end its consumers. What has been leased stays leased."""
        send_away_from(self.consumers, queue, error)

    def dismiss_consumers(self) -> None:
        """End all consumers with the next cycle. What they hold goes back to its queue."""
        self._intake.pace.release()
        for consumer in self.consumers.all_attached():
            self.abandon(consumer)
