"""The engine: one writer, cycle by cycle.

A cycle takes the requests that have come in, decides each against the ledger, applies the records it leads to, and lets
the schedule follow, so that each request sees what the ones before it did. Then it hands out to whoever waits, and
does a little housekeeping. All records of the cycle, with all new bodies, are one commit. Only when that is durable are
the requests answered and the messages delivered; until then nobody outside knows that anything happened.

A commit is final. If the store says it failed, or if anything unexpected goes wrong in a cycle, nobody can say what
is true: the engine discards its memory, folds the journal again, and refuses the requests of that cycle as maybe done.
There is no other way back, so there is nothing to undo.

A store that several processes can reach may be taken over by another. Then there is no way back at all: everybody who
waits is told so, and so is everybody who asks from then on.

The engine owns no thread and no loop. A face calls ``begin``, ``write``, ``sync`` and ``finish`` in this order, from
one thread at a time; ``sync`` alone may run elsewhere meanwhile.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, TypeVar

from fairlane.broker.bodies import Bodies
from fairlane.broker.cycle import Cycle
from fairlane.broker.engine.commands import run_command, set_hooks
from fairlane.broker.engine.expiry import expire, remove_departed
from fairlane.broker.engine.housekeeping import CARRY_FLOOR, Housekeeper
from fairlane.broker.engine.recovery import recover
from fairlane.broker.engine.replies import (
    answer_all,
    guarded,
    refuse_all,
    refuse_cycle,
    refuse_everybody,
    reply_to,
    send_home,
)
from fairlane.broker.engine.time import BrokerTime
from fairlane.broker.engine.undelivered import Undelivered
from fairlane.broker.hook_calls import HookCalls
from fairlane.broker.measurements import EngineMetrics
from fairlane.broker.requests import Attach, Call, Consumer, HandOut, NoReply, Read, Submission, Waiter
from fairlane.broker.settings import Settings
from fairlane.broker.waiting.claims import WaitingClaims
from fairlane.broker.waiting.consumers import HandingOut
from fairlane.broker.waiting.dispatcher import Dispatcher
from fairlane.broker.waiting.producers import WaitingProducers
from fairlane.broker.waiting.redrives import Redrives
from fairlane.broker.waiting.sinks import WaitingSinks
from fairlane.broker.waiting.wait_times import Waits
from fairlane.core.apply import apply
from fairlane.core.commands import NOTHING_GIVEN, Command, Given, Open
from fairlane.core.decide import decide
from fairlane.core.ledger import Ledger, Limits, Message
from fairlane.core.schedule import Schedule
from fairlane.errors import Closed, FairlaneError, InvalidArgument, StoreFailed, StoreFenced
from fairlane.journal import codec
from fairlane.journal.records import AnyRecord
from fairlane.model.message import Delivery, Receipt
from fairlane.ports.clock import Clock
from fairlane.ports.entropy import Entropy
from fairlane.ports.hooks import Hooks
from fairlane.ports.store import Commit, Store
from fairlane.verbs.batches import MakeClaim, Stage
from fairlane.verbs.leases import Nack
from fairlane.verbs.messages import Enqueue
from fairlane.verbs.verb import Request

O = TypeVar("O")  # noqa: E741 - the outcome

_log = logging.getLogger("fairlane.broker")
_CALM_MS, _CALM_MS_MAX = 5, 1_000
Tap = Callable[[Sequence[AnyRecord], int], None]
HandOutTap = Callable[[str, list[Message]], None]


class Engine:
    """The broker's one writer. Not thread-safe; see the module's theory of operation."""

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
        self._inbox: deque[Submission] = deque()
        self._undelivered = Undelivered()
        self._is_down = True
        self.is_closed = False
        self._setbacks = 0
        self._is_fenced = False
        self._reopens = reopens
        self._was_opened = False
        self._calm_until_ms = 0
        self._is_opening = True
        self._is_applying = False
        self.taps: list[Tap] = []
        self.hand_out_taps: list[HandOutTap] = []
        """Who is told of messages that were handed out, but for those that were claimed, with their queue."""
        self.bodies = Bodies(store, cache_bytes_max=self.settings.cache_bytes_max)
        self.dispatcher = Dispatcher(waiters_max=self.settings.waiters_max)
        self.waits = Waits()
        self.meters = EngineMetrics()
        self._handing_out = HandingOut(
            self.dispatcher,
            self.waits,
            cycle_events_max=self.settings.cycle_events_max,
            answer_bytes_max=self.settings.answer_bytes_max,
        )
        self._claims = WaitingClaims(cycle_events_max=self.settings.cycle_events_max)
        self.hook_calls = HookCalls(hooks, entropy, self.bodies)
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
            StoreFailed, StoreCorrupt: it can't be read.
        """
        limits = Limits(
            payload_bytes_max=self.settings.payload_bytes_max,
            waiting_max=self.settings.waiting_max,
            waiting_bytes_max=self.settings.waiting_bytes_max,
        )
        begun = perf_counter()
        self.bodies.clear()
        ledger = recover(self.store, limits)
        self.time = BrokerTime(self._clock.now_ms(), not_before_ms=max(ledger.at_ms, self.now_ms()))
        now_ms = self.now_ms()
        for name in self.ledger.queues.keys() - ledger.queues.keys():
            self.hooks.remove(name)
        for queue in ledger.queues.values():
            set_hooks(self.hooks, queue.name, queue.policy)
        self.ledger = ledger
        self.schedule = Schedule(ledger, now_ms)
        self._housekeeper = Housekeeper(ledger, self.settings, carry_floor=self._carry_floor)
        self.redrives.stop_all()
        self._is_down = False
        self._was_opened = True
        self._is_opening = True
        self._is_applying = False
        self._undelivered.reclaim(self)
        self.dispatcher.reconcile(ledger.token_of)
        self._handing_out.unserved = dict.fromkeys(self.dispatcher.queues())
        self.meters.recoveries += 1
        self.meters.recovery_s = perf_counter() - begun

    # ------------------------------------------------------------------------------------------------------------ time

    def now_ms(self) -> int:
        """Return the broker's time."""
        return self.time.at(self._clock.now_ms())

    def next_event_at(self) -> int | None:
        """Return when a cycle is due without a request: a lease, delay, token or wait that ends. None for never."""
        if self._is_fenced:
            return None
        if self._is_down:
            return self._calm_until_ms
        instants = (
            self.schedule.next_event_at(),
            self.dispatcher.next_limit_at(),
            self.producers.next_limit_at(),
            self._sinks.next_limit_at(),
            self.redrives.next_step_at(),
            self._housekeeper.next_seal_at(),
        )
        at_ms = min((at_ms for at_ms in instants if at_ms is not None), default=None)
        if not self._setbacks:
            return at_ms
        if self._inbox or self._handing_out.unserved:
            return self._calm_until_ms
        return None if at_ms is None else max(at_ms, self._calm_until_ms)

    @property
    def is_fenced(self) -> bool:
        """Whether it answers nothing any more: another has taken over the store, or it failed and is not reopened."""
        return self._is_fenced

    def has_requests(self) -> bool:
        """Tell whether a cycle is due at once: for requests, or for waiters that the last cycle had no room for."""
        if not self._setbacks:
            return bool(self._inbox or self._handing_out.unserved)
        return any(asked.reply is not None for asked in self._inbox)  # what the broker asks of itself can wait

    def submit(self, asked: Submission) -> None:
        """Put a request in line for the next cycle."""
        self._inbox.append(asked)

    # ----------------------------------------------------------------------------------------------------------- cycles

    def begin(self) -> Cycle:
        """Decide and apply everything that can be committed together now."""
        if not self.is_closed:
            self._make_sure()
        now_ms = self.time.advance(self._clock.now_ms())
        cycle = Cycle(now_ms, self.ledger.next_sequence)
        if self._is_down or self.is_closed:
            return cycle
        try:
            self._run(cycle)
        except Exception as error:  # noqa: BLE001 - whatever it is, memory can't be trusted: see the theory above
            _log.exception("A cycle went wrong; recovering from the store.")
            self.fail(cycle, error)
            return Cycle(now_ms, self.ledger.next_sequence)
        except BaseException:
            self.distrust(cycle)
            raise
        return cycle

    def _make_sure(self) -> None:
        """Make sure that what is in memory is what is in the store, and that the store is ours; else open it anew."""
        if not self._is_down:
            try:
                self.store.check_owned()
            except FairlaneError as error:
                _log.warning("The store has to be opened anew: %s", error)
                self._is_down = True
        if self._is_down:
            self._reopen()

    def _reopen(self) -> None:
        try:
            if self._was_opened and not self._reopens:
                raise StoreFenced("The store has failed, and the broker has to be opened anew.")
            self.open()
        except FairlaneError as error:
            self._pause()
            if isinstance(error, StoreFenced):
                self._abdicate(error)
            self._handing_out.unserved = {}
            asked, self._inbox = self._inbox, deque(asked for asked in self._inbox if asked.reply is None)
            refuse_all((each.reply for each in asked), error)

    def _abdicate(self, error: StoreFenced) -> None:
        if not self._is_fenced:
            _log.error("%s", error)
        self._is_fenced = True
        refuse_everybody(self.dispatcher, self.producers, self._sinks, error)

    def _run(self, cycle: Cycle) -> None:
        now_ms = cycle.now_ms

        def execute(command: Command[Any]) -> object:
            return self.execute(command, cycle)

        if self._is_opening:
            execute(Open(built_ms=self.schedule.built_ms))
            self._is_opening = False
        expire(self, cycle, most=self.settings.cycle_events_max)
        queues, self._handing_out.unserved = self._handing_out.unserved, {}
        is_first = True  # whatever time has done in this cycle, somebody who asks gets an answer
        while self._inbox and (is_first or self._fits(cycle)):
            is_first = False
            asked = cycle.current = self._inbox.popleft()
            if asked.reply is None:
                cycle.own.append(asked)
            try:
                self._take(asked, cycle, queues)
            except Exception as error:
                if self._is_applying:
                    raise
                cycle.answer(asked.reply, InvalidArgument(f"The request makes no sense: {error!r:.200}."))
        cycle.current = None
        self.producers.retry(self, cycle)
        self._sinks.retry(self, cycle)
        self.redrives.step(self, cycle)
        remove_departed(self, cycle)
        self._handing_out.serve(self, cycle, queues)
        self._claims.serve(self, cycle)
        self._housekeeper.tend(execute, now_ms)
        cycle.dropped = self.ledger.dropped
        self.ledger.dropped = []
        self.schedule.settle_events()

    def _fits(self, cycle: Cycle) -> bool:
        return self.ledger.next_sequence - cycle.sequence < self.settings.cycle_events_max

    def _take(self, asked: Submission, cycle: Cycle, queues: dict[str, None]) -> None:
        if type(asked) is Call:
            kind = type(asked.request)
            if kind is Enqueue:
                self.producers.take(self, asked, cycle)
            elif kind is Stage:
                self._sinks.take(self, asked, cycle)
            elif kind is MakeClaim:
                self._claims.take(self, asked, cycle)
            else:
                cycle.answer(asked.reply, self.run_command(asked, cycle))
        elif type(asked) is Waiter:
            if asked.reply.done():
                return
            self._handing_out.admit(self, asked, cycle)
            queues[asked.queue] = None
        elif type(asked) is Attach:
            self._handing_out.attach(self, asked, cycle)
            queues[asked.consumer.queue] = None
        elif type(asked) is Read:
            cycle.questions.append(asked)

    def run_command(self, call: Call, cycle: Cycle) -> object:
        """Ask the hooks about a request, decide it, and apply its records. Returns its outcome."""
        return run_command(self, self.hooks, call, cycle, dismiss=self._handing_out.dismiss)

    def execute(
        self, command: Command[O] | Request[O], cycle: Cycle, given: Given = NOTHING_GIVEN
    ) -> O | FairlaneError:
        """Decide a request or command and apply its records, within a cycle. Returns its outcome."""
        ledger, schedule, now_ms = self.ledger, self.schedule, cycle.now_ms
        decision = decide(ledger, command, now_ms, given)
        self._is_applying = True
        for record in decision.records:
            schedule.prepare(record)
            messages = apply(ledger, record, now_ms)
            schedule.follow(record, messages, now_ms)
            self.dispatcher.note(record)
        cycle.records.extend(decision.records)
        if decision.bodies:
            cycle.bodies.extend(decision.bodies)
        self._is_applying = False
        return decision.outcome

    # ------------------------------------------------------------------------------------------------ for those who go

    def abandon(self, consumer: Consumer) -> None:
        """Let a consumer end that nobody waits for."""
        self.submit(Attach(consumer, NoReply(), is_closing=True))

    def give_back(self, queue: str, deliveries: Sequence[Delivery | Receipt]) -> None:
        """Let messages go back that were handed out to somebody who is gone."""
        receipts = [Receipt(delivery.id, delivery.token) for delivery in deliveries]
        if receipts:
            self.submit(Call(Nack(queue=queue, receipts=receipts, intent="defer", delay_ms=0)))

    # ------------------------------------------------------------------------------------------------- commit and after

    def write(self, cycle: Cycle) -> None:
        """Hand the commit to the store.

        Raises:
            StoreFailed: call ``fail`` then.
        """
        if not cycle.records:
            return
        begun = perf_counter()
        page = codec.encode(cycle.records, cycle.now_ms)
        base = self.ledger.settle_base()
        self.store.write(
            Commit(
                sequence=cycle.sequence,
                next_sequence=self.ledger.next_sequence,
                page=page,
                bodies=cycle.bodies,
                dropped=cycle.dropped,
                base=base,
                trim=self._housekeeper.trim_to,
            )
        )
        self._housekeeper.note_page(len(page))
        size = len(page) + sum(len(data) for _, data in cycle.bodies)
        self.meters.written = (self.ledger.next_sequence - cycle.sequence, size, perf_counter() - begun)

    def sync(self) -> None:
        """Make what was written durable. May run in another thread, while nothing else is called.

        Raises:
            StoreFailed: call ``fail`` then.
        """
        begun = perf_counter()
        self.store.sync()
        self.meters.committed(perf_counter() - begun)

    def finish(self, cycle: Cycle) -> None:
        """Answer and deliver, now that the cycle is durable."""
        if cycle.records:
            self._setbacks = 0
            self.dispatcher.confirm()
        for number, data in cycle.bodies:
            self.bodies.keep(number, data)
        if cycle.dropped:
            self.bodies.forget(cycle.dropped)
        answer_all(cycle.answers)
        for hand_out in cycle.hand_outs:
            self._deliver(hand_out)
        for consumer in cycle.ended:
            guarded(consumer.deliver, [])
        for question in cycle.questions:
            reply_to(question, self.store)
        if cycle.records:
            for tap in self.taps:
                guarded(tap, cycle.records, cycle.now_ms)

    def _deliver(self, hand_out: HandOut) -> None:
        guarded(self._handing_out.deliver, self, hand_out)
        for tap in self.hand_out_taps:
            guarded(tap, hand_out.taker.queue, hand_out.messages)

    def fail(self, cycle: Cycle, error: BaseException) -> None:
        """Refuse the cycle's requests as possibly done, and recover from the store."""
        failure = (
            error if isinstance(error, FairlaneError) else StoreFailed(f"The broker had to recover: {error!r:.200}.")
        )
        refuse_cycle(cycle, failure)
        self.meters.failures += 1
        self._inbox.extend(cycle.own)  # nobody else gives back what nobody has; but whoever asks goes first
        self.producers.fail(cycle, failure)
        self.dispatcher.restore()
        self._handing_out.fail(cycle)
        self._undelivered.take_in(cycle.hand_outs)
        self._is_down = True
        if not self.is_closed:
            self._pause()
            self._reopen()

    def _pause(self) -> None:
        """Let some time pass before time alone asks for another cycle, since whatever failed may fail again."""
        self._setbacks += 1
        self._calm_until_ms = self.now_ms() + min(_CALM_MS_MAX, _CALM_MS << min(self._setbacks, 10))

    def distrust(self, cycle: Cycle | None) -> None:
        """Note that a cycle was interrupted, so that the next begins with recovery."""
        self._is_down = True
        if cycle is not None:
            self.fail(cycle, StoreFailed("The broker was interrupted."))

    def close(self) -> None:
        """Let everybody go who waits, with what they have, and let go of the store."""
        self.let_go()
        self.store.close()

    def let_go(self) -> None:
        """Let everybody go who waits, with what they have, and take nothing more; the store is still to be closed."""
        send_home(self.dispatcher, self.producers, self._sinks)
        self.is_closed = True
        refuse_all((asked.reply for asked in self._inbox), Closed("The broker has been closed."))
        self._inbox.clear()

    def send_away(self, error: FairlaneError) -> None:
        """Refuse everybody who waits, and hand out nothing more; what has been leased stays leased."""
        refuse_all((waiter.reply for waiter in self.dispatcher.everybody()), error)
        for consumers in self.dispatcher.consumers.values():
            for consumer in consumers:
                consumer.credit = 0
                consumer.ending = error

    def send_away_from(self, queue: str, error: FairlaneError) -> None:
        """Refuse everybody who waits at a queue, and let its consumers end; what has been leased stays leased."""
        takers = self.dispatcher.dismiss(queue)
        refuse_all((taker.reply for taker in takers if isinstance(taker, Waiter)), error)
        for consumer in (taker for taker in takers if isinstance(taker, Consumer)):
            self.dispatcher.detach(consumer)
            consumer.credit = 0
            consumer.ending = error
            guarded(consumer.deliver, [])

    def dismiss_consumers(self) -> None:
        """Let all consumers end, with the next cycle: what they have goes back to its queue."""
        for consumers in list(self.dispatcher.consumers.values()):
            for consumer in consumers:
                self.abandon(consumer)
