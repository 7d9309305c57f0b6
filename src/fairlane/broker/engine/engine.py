"""The engine: the broker's only writer, cycle by cycle.

A cycle takes the requests that have come in, decides each against the ledger, applies the records it leads to, and
updates the schedule, so that each request sees what the ones before it did. Then it leases to consumers that wait, and
does a little housekeeping. All records of the cycle, with all new bodies, are one commit. Only when the commit is
durable are the requests answered and the messages delivered; until then nobody outside knows that anything happened.

A commit is final. If the store says it failed, or if anything unexpected goes wrong in a cycle, nobody can say what is
true: the engine discards its memory, folds the journal again, and refuses the requests of that cycle as possibly done.
There is no other way back, so there is nothing to undo.

An exception *before* a request's records are applied is different: memory is as it was, so only that request fails. It
is a bug of the broker's and is reported as one, to the caller as ``internal`` and to the operator in the log.

A store that several processes can reach may be taken over by another. Then there is no way back at all: everyone who
waits is refused, and so is every later request. ``state`` has the states and what changes them.

Most cycles have nothing to do but their requests, so whatever depends on time or on waiting callers is guarded by one
comparison, and called only when it has work.

The engine owns no thread and no loop. A front end calls ``begin``, ``write``, ``sync`` and ``finish`` in this order,
from one thread at a time; ``sync`` alone may run elsewhere meanwhile.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from fairlane.broker.bodies import Bodies
from fairlane.broker.cycle import Cycle
from fairlane.broker.engine.broker_time import BrokerTime
from fairlane.broker.engine.expiry import expire, remove
from fairlane.broker.engine.housekeeping import CARRY_FLOOR, Housekeeper
from fairlane.broker.engine.recovery import Undelivered, recover
from fairlane.broker.engine.replies import (
    guarded,
    refuse_all,
    refuse_cycle,
    refuse_everyone,
    release_everyone,
    send_away,
    send_away_from,
)
from fairlane.broker.engine.state import RUNNING, Event, State, after
from fairlane.broker.hook_calls import HookCalls, run_command, set_hooks
from fairlane.broker.measurements import COMMITS_KEPT, EngineMetrics
from fairlane.broker.requests import Attach, Consumer, NoReply, Read, Reply, Request, Submission, Waiter
from fairlane.broker.settings import Settings
from fairlane.broker.waiting.claims import serve_claims, take_claim
from fairlane.broker.waiting.consumers import WaitingConsumers, deliver
from fairlane.broker.waiting.producers import WaitingProducers
from fairlane.broker.waiting.redrives import Redrives
from fairlane.broker.waiting.sinks import WaitingSinks
from fairlane.core.apply import apply
from fairlane.core.commands import Claim, Command, Enqueue, Nack, Open, Stage
from fairlane.core.decide import DECIDERS
from fairlane.core.ledger import Ledger, Limits, Message
from fairlane.core.schedule import Schedule
from fairlane.errors import Closed, FairlaneError, InternalError, StoreFailed, StoreFenced
from fairlane.journal import codec
from fairlane.journal.records import AnyRecord, Redriven
from fairlane.model.message import Delivery, Receipt
from fairlane.ports.clock import Clock
from fairlane.ports.entropy import Entropy
from fairlane.ports.hooks import Hooks
from fairlane.ports.store import Commit, Store
from fairlane.scheduler.timers import Timers

_log = logging.getLogger("fairlane.broker")
_RETRY_MS, _RETRY_MS_MAX = 5, 1_000
Tap = Callable[[Sequence[AnyRecord], int], None]
HandOutTap = Callable[[str, list[Message]], None]


class _ApplyFailed(Exception):
    """Records of a request were applied in part: memory can't be trusted any more."""


class Engine:
    """The broker's only writer. Not thread-safe; see the module's theory of operation.

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
        settings: Settings | None = None,
        carry_floor: int = CARRY_FLOOR,
        reopens: bool = True,
    ) -> None:
        self.settings = settings if settings is not None else Settings()
        self.store = store
        self.hooks = hooks
        self._clock = clock
        self._carry_floor = carry_floor
        self._reopens = reopens
        self.state = State.NEW
        self._fenced_by = StoreFenced("The store belongs to another process.")
        self._failures = 0
        self._retry_at_ms = 0
        self._due_ms = 0
        self.inbox: deque[Submission] = deque()
        self._undelivered = Undelivered()
        self.taps: list[Tap] = []
        self.hand_out_taps: list[HandOutTap] = []
        self.metrics = EngineMetrics()
        self.bodies = Bodies(store, cache_bytes_max=self.settings.cache_bytes_max)
        self.hook_calls = HookCalls(hooks, entropy, self.bodies)
        self.consumers = WaitingConsumers(self.settings)
        self.producers = WaitingProducers()
        self._sinks = WaitingSinks()
        self.redrives = Redrives()
        self.time = BrokerTime(clock.now_ms())
        self.ledger = Ledger()
        self.schedule = Schedule(self.ledger, 0)
        self._housekeeper = Housekeeper(self.ledger, self.settings)

    # --------------------------------------------------------------------------------------------------------- opening

    def open(self) -> None:
        """Recover everything from the store.

        Raises:
            StoreFailed, StoreCorrupt: the store can't be read.
        """
        settings = self.settings
        limits = Limits(
            payload_bytes_max=settings.payload_bytes_max,
            waiting_max=settings.waiting_max,
            waiting_bytes_max=settings.waiting_bytes_max,
        )
        begun = perf_counter()
        self.bodies.clear()
        ledger = recover(self.store, limits)
        self.time = BrokerTime(self._clock.now_ms(), not_before_ms=max(ledger.at_ms, self.now_ms()))
        for name in self.ledger.queues.keys() - ledger.queues.keys():
            self.hooks.remove(name)
        for queue in ledger.queues.values():
            set_hooks(self.hooks, queue.name, queue.policy)
        self.ledger = ledger
        self.schedule = Schedule(ledger, self.now_ms())
        self._housekeeper = Housekeeper(ledger, settings, carry_floor=self._carry_floor)
        self.redrives.stop_all()
        self.state = after(self.state, Event.RECOVER)
        self._due_ms = 0
        self._undelivered.give_back(self)
        self.consumers.reconcile(ledger.token_of)
        self.metrics.recoveries += 1
        self.metrics.recovery_s = perf_counter() - begun

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

    def _abdicate(self, error: StoreFenced) -> None:
        """Give up for good: the store is for another process to serve."""
        _log.error("%s", error)
        self.state = after(self.state, Event.FENCE)
        self._fenced_by = error
        refuse_everyone(self.consumers, self.producers, self._sinks, error)

    def _refuse_inbox(self, error: FairlaneError) -> None:
        """Refuse the requests of callers. What the broker asks of itself stays: nobody else would ask again."""
        asked = list(self.inbox)
        self.inbox.clear()
        self.inbox.extend(submission for submission in asked if submission.reply is None)
        refuse_all((submission.reply for submission in asked), error)

    def _back_off(self) -> None:
        """Let some time pass before time alone asks for another cycle: what failed is likely to fail again."""
        self._failures += 1
        self._retry_at_ms = self.now_ms() + min(_RETRY_MS_MAX, _RETRY_MS << min(self._failures, 10))

    # ------------------------------------------------------------------------------------------------------------ time

    def now_ms(self) -> int:
        """Return the broker's time."""
        return self.time.at(self._clock.now_ms())

    def next_event_at(self) -> int | None:
        """Return when a cycle is due without a request: a lease, delay, token or wait that ends. None for never."""
        if self.state is State.FENCED:
            return None
        if self.state not in RUNNING:
            return self._retry_at_ms
        instants = [self.schedule.next_event_at(), self._housekeeper.next_seal_at()]
        waiting: tuple[Timers[Any], ...] = (self.consumers.limits, self.producers.limits, self._sinks.limits)
        instants += [limits.next_at() for limits in waiting if limits.entries]
        if self.redrives.jobs:
            instants.append(self.redrives.next_step_at())
        known = [at_ms for at_ms in instants if at_ms is not None]
        at_ms = min(known) if known else None
        if not self._failures:
            return at_ms
        if self.inbox or self.consumers.unserved:
            return self._retry_at_ms
        return None if at_ms is None else max(at_ms, self._retry_at_ms)

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
        """Tell whether a cycle is due at once: for requests, or for waiters that the last cycle could not serve."""
        if not self._failures:
            return bool(self.inbox or self.consumers.unserved)
        return any(submission.reply is not None for submission in self.inbox)  # the broker's own requests can wait

    def submit(self, submission: Submission) -> None:
        """Add a request for the next cycle."""
        self.inbox.append(submission)

    # ---------------------------------------------------------------------------------------------------------- cycles

    def begin(self) -> Cycle:
        """Decide and apply everything that can be committed together now."""
        if self.state in RUNNING:
            try:
                self.store.check_owned()
            except FairlaneError as error:
                _log.warning("The store has to be opened again: %s", error)
                self.state = after(self.state, Event.FAIL)
        if self.state is State.FENCED:
            self._refuse_inbox(self._fenced_by)
        elif self.state in (State.NEW, State.DOWN):
            self._reopen()
        now_ms = self.time.advance(self._clock.now_ms())
        cycle = Cycle(now_ms, self.ledger.next_sequence)
        if self.state not in RUNNING:
            return cycle
        try:
            self._run(cycle)
        except Exception as error:  # noqa: BLE001 - whatever it is, memory can't be trusted: see the theory above
            _log.exception("A cycle failed; recovering from the store.")
            self.fail(cycle, error.__cause__ if isinstance(error, _ApplyFailed) and error.__cause__ else error)
            return Cycle(now_ms, self.ledger.next_sequence)
        except BaseException:
            self.distrust(cycle)
            raise
        return cycle

    def _run(self, cycle: Cycle) -> None:
        consumers = self.consumers
        if self.state is State.RECOVERED:
            self.execute(Open(built_ms=self.schedule.built_ms), cycle)
        if cycle.now_ms >= self._due_ms:
            expire(self, cycle, leases_max=self.settings.cycle_events_max)
        queues, consumers.unserved = consumers.unserved, {}
        if self.inbox:
            self._take_requests(cycle, queues)
        if self.producers.waiting:
            self.producers.retry(self, cycle)
        if self._sinks.waiting:
            self._sinks.retry(self, cycle)
        if self.redrives.jobs:
            self.redrives.step(self, cycle)
        if departed := self.schedule.departed(cycle.now_ms):
            remove(self, cycle, departed)
        if consumers.lines:
            consumers.serve(self, cycle, queues)
        if cycle.claims:
            serve_claims(self, cycle, handed_out_max=self.settings.cycle_events_max)
        self._housekeeper.tend(self, cycle)
        cycle.dropped, self.ledger.dropped = self.ledger.dropped, []
        self._due_ms = self.schedule.settle_events()

    def _take_requests(self, cycle: Cycle, queues: dict[str, None]) -> None:
        """Take requests while the cycle has capacity; the first always, whatever time has done in this cycle."""
        inbox, ledger = self.inbox, self.ledger
        end = cycle.sequence + self.settings.cycle_events_max
        is_first = True
        while inbox and (is_first or ledger.next_sequence < end):
            is_first = False
            submission = cycle.current = inbox.popleft()
            if submission.reply is None:
                cycle.own.append(submission)
            try:
                self._take(submission, cycle, queues)
            except _ApplyFailed:
                raise
            except Exception as error:  # noqa: BLE001 - a bug of ours: nothing was applied, so the others go on
                cycle.answer(submission.reply, self._internal_error(error))
        cycle.current = None

    def _take(self, submission: Submission, cycle: Cycle, queues: dict[str, None]) -> None:
        if isinstance(submission, Request):
            command = submission.command
            if isinstance(command, Enqueue):
                (self._sinks if isinstance(command, Stage) else self.producers).take(self, submission, cycle)
            elif isinstance(command, Claim):
                take_claim(self, submission, cycle)
            else:
                cycle.answer(submission.reply, run_command(self, command, cycle))
        elif isinstance(submission, Waiter):
            if not submission.reply.done():
                self.consumers.admit(self, submission, cycle)
                queues[submission.queue] = None
        elif isinstance(submission, Attach):
            self.consumers.attach(self, submission, cycle)
            queues[submission.consumer.queue] = None
        else:
            cycle.reads.append(submission)

    def _internal_error(self, error: Exception) -> InternalError:
        """Report a bug of the broker's: to the operator in the log and the metrics, to the caller as ``internal``."""
        _log.exception("A request failed because of a bug in the broker.", exc_info=error)
        self.metrics.internal_errors += 1
        return InternalError(f"The broker failed to decide the request: {error!r:.200}.")

    def execute(self, command: Command, cycle: Cycle) -> object:
        """Decide a command, apply its records, and return its outcome; see ``Executor``."""
        ledger, schedule, now_ms = self.ledger, self.schedule, cycle.now_ms
        decision = DECIDERS[type(command)](ledger, command, now_ms)
        try:
            for record in decision.records:
                if type(record) is Redriven:
                    schedule.prepare(record)
                messages = apply(ledger, record, now_ms)
                schedule.follow(record, messages, now_ms)
                if self.consumers.holders:
                    self.consumers.free(record)
        except Exception as error:
            raise _ApplyFailed from error
        cycle.records.extend(decision.records)
        if decision.bodies:
            cycle.bodies.extend(decision.bodies)
        return decision.outcome

    # ------------------------------------------------------------------------------------------------- commit and after

    def write(self, cycle: Cycle) -> None:
        """Hand the commit to the store.

        Raises:
            StoreFailed: call ``fail`` then.
        """
        if not cycle.records:
            return
        begun = perf_counter()
        ledger = self.ledger
        page = codec.encode(cycle.records, cycle.now_ms)
        self.store.write(
            Commit(
                sequence=cycle.sequence,
                next_sequence=ledger.next_sequence,
                page=page,
                bodies=cycle.bodies,
                dropped=cycle.dropped,
                base=ledger.base if ledger.base == ledger.baseline else ledger.settle_base(),
                trim=self._housekeeper.trim_to,
            )
        )
        self._housekeeper.segment_size += len(page)
        size = len(page)
        for _, data in cycle.bodies:
            size += len(data)
        self.metrics.written = (ledger.next_sequence - cycle.sequence, size, perf_counter() - begun)

    def sync(self) -> float:
        """Make what was written durable, and return the seconds it took.

        May run in another thread, while nothing else is called.

        Raises:
            StoreFailed: call ``fail`` then.
        """
        begun = perf_counter()
        self.store.sync()
        seconds = perf_counter() - begun
        events, size, write_s = self.metrics.written
        self.metrics.written = (events, size, write_s + seconds)
        return seconds

    def finish(self, cycle: Cycle) -> None:
        """Answer and deliver, now that the cycle is durable."""
        if cycle.records:
            self._confirm(cycle)
        for reply, outcome in cycle.answers:
            if not reply.done():
                if isinstance(outcome, FairlaneError):
                    reply.set_exception(outcome)
                else:
                    reply.set_result(outcome)
        for hand_out in cycle.hand_outs:
            guarded(deliver, self, hand_out)
            for hand_out_tap in self.hand_out_taps:
                guarded(hand_out_tap, hand_out.taker.queue, hand_out.messages)
        for consumer in cycle.ended:
            guarded(consumer.deliver, [])
        for read in cycle.reads:
            self._answer_read(read)
        if cycle.records:
            for tap in self.taps:
                try:
                    tap(cycle.records, cycle.now_ms)
                except Exception:  # noqa: BLE001 - code of others, after the commit: it undoes nothing
                    _log.exception("A tap failed after a commit; the commit stands.")

    def _confirm(self, cycle: Cycle) -> None:
        """Note that a commit is durable."""
        if self.state is State.RECOVERED:
            self.state = after(self.state, Event.CONFIRM)
        self._failures = 0
        self.consumers.freed.clear()  # the records that freed the credit are durable
        if cycle.bodies:
            self.bodies.keep(cycle.bodies)
        if cycle.dropped:
            self.bodies.forget(cycle.dropped)
        metrics = self.metrics
        metrics.commits.append(metrics.written)
        if len(metrics.commits) >= COMMITS_KEPT:
            metrics.fold()

    def _answer_read(self, read: Read) -> None:
        """Answer a question about the present, unless the store has been lost meanwhile."""
        reply: Reply = read.reply
        if reply.done():
            return
        try:
            self.store.check_owned()
            answer = read.ask()
        except FairlaneError as error:
            reply.set_exception(error)
        except Exception as error:  # noqa: BLE001 - a bug of ours; reading changes nothing, so all goes on
            reply.set_exception(self._internal_error(error))
        else:
            reply.set_result(answer)

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

    # -------------------------------------------------------------------------------------------------------- departing

    def abandon(self, consumer: Consumer) -> None:
        """Detach a consumer whose caller does not wait for that."""
        self.submit(Attach(consumer, NoReply(), is_closing=True))

    def give_back(self, queue: str, deliveries: Sequence[Delivery | Receipt]) -> None:
        """Return messages to their queue that were handed out to a caller that is gone."""
        receipts = [Receipt(delivery.id, delivery.token) for delivery in deliveries]
        if receipts:
            self.submit(Request(Nack(queue=queue, receipts=receipts, intent="defer", delay_ms=0)))

    def close(self) -> None:
        """Answer everyone who waits with what they have so far, and release the store."""
        self.let_go()
        self.store.close()

    def let_go(self) -> None:
        """Answer everyone who waits, and take no more requests. The store is still to be closed."""
        release_everyone(self.consumers, self.producers, self._sinks)
        self.state = after(self.state, Event.CLOSE)
        refuse_all((submission.reply for submission in self.inbox), Closed("The broker has been closed."))
        self.inbox.clear()

    def send_away(self, error: FairlaneError) -> None:
        """Refuse everyone who waits, and hand out nothing more. What has been leased stays leased."""
        send_away(self.consumers, error)

    def send_away_from(self, queue: str, error: FairlaneError) -> None:
        """Refuse everyone who waits at a queue, and end its consumers. What has been leased stays leased."""
        send_away_from(self.consumers, queue, error)

    def dismiss_consumers(self) -> None:
        """End all consumers with the next cycle. What they hold goes back to its queue."""
        for consumer in self.consumers.all_attached():
            self.abandon(consumer)
