"""The engine: one writer, turn by turn.

A turn takes the requests that have come in, decides each against the ledger, applies the records it leads to, and lets
the schedule follow, so that each request sees what the ones before it did. Then it hands out to whoever waits, and
does a little housekeeping. All records of the turn, with all new bodies, are one commit. Only when that is durable are
the requests answered and the messages delivered; until then nobody outside knows that anything happened.

A commit is final. If the store says it failed, or if anything unexpected goes wrong in a turn, nobody can say what is
true: the engine throws its memory away, folds the journal anew, and refuses the requests of that turn as possibly done.
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

from fairlane.broker.bodies import Bodies
from fairlane.broker.cycle import Turn
from fairlane.broker.engine.commands import run_command, set_hooks
from fairlane.broker.engine.expiry import expire, remove_departed
from fairlane.broker.engine.housekeeping import CARRY_FLOOR, Housekeeper
from fairlane.broker.engine.recovery import recover
from fairlane.broker.engine.replies import (
    answer_all,
    guarded,
    refuse_all,
    refuse_everybody,
    refuse_turn,
    reply_to,
    send_home,
)
from fairlane.broker.engine.time import BrokerTime
from fairlane.broker.engine.undelivered import Orphans
from fairlane.broker.hook_calls import Inquiries
from fairlane.broker.measurements import Meters
from fairlane.broker.requests import Asked, Attach, Consumer, HandOut, Nobody, Read, Request, Waiter
from fairlane.broker.settings import Settings
from fairlane.broker.waiting.claims import Claiming
from fairlane.broker.waiting.consumers import HandingOut
from fairlane.broker.waiting.dispatcher import Dispatcher
from fairlane.broker.waiting.producers import EnqueueLine
from fairlane.broker.waiting.redrives import Redrives
from fairlane.broker.waiting.sinks import StageLine
from fairlane.broker.waiting.wait_times import Waits
from fairlane.core.apply import apply
from fairlane.core.commands import Claim, Command, Enqueue, Nack, Open, Stage
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
        self._inbox: deque[Asked] = deque()
        self._orphans = Orphans()
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
        self.meters = Meters()
        self._handing_out = HandingOut(
            self.dispatcher,
            self.waits,
            turn_events=self.settings.turn_events,
            answer_bytes_max=self.settings.answer_bytes_max,
        )
        self._claiming = Claiming(turn_events=self.settings.turn_events)
        self.inquiries = Inquiries(hooks, entropy, self.bodies)
        self.enqueues = EnqueueLine()
        self._stages = StageLine()
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
        self._orphans.reclaim(self)
        self.dispatcher.reconcile(ledger.token_of)
        self._handing_out.unserved = dict.fromkeys(self.dispatcher.queues())
        self.meters.recoveries += 1
        self.meters.recovery_s = perf_counter() - begun

    # ------------------------------------------------------------------------------------------------------------ time

    def now_ms(self) -> int:
        """Return the broker's time."""
        return self.time.at(self._clock.now_ms())

    def next_event_at(self) -> int | None:
        """Return when a turn is due without a request: a lease, a delay, a token, the end of a wait. None for never."""
        if self._is_fenced:
            return None
        if self._is_down:
            return self._calm_until_ms
        instants = (
            self.schedule.next_event_at(),
            self.dispatcher.next_limit_at(),
            self.enqueues.next_limit_at(),
            self._stages.next_limit_at(),
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
        """Tell whether a turn is due at once: for requests, or for waiters that the last turn had no room for."""
        if not self._setbacks:
            return bool(self._inbox or self._handing_out.unserved)
        return any(asked.reply is not None for asked in self._inbox)  # what the broker asks of itself can wait

    def submit(self, asked: Asked) -> None:
        """Put a request in line for the next turn."""
        self._inbox.append(asked)

    # ------------------------------------------------------------------------------------------------------------ turns

    def begin(self) -> Turn:
        """Decide and apply everything that can be committed together now."""
        if not self.is_closed:
            self._make_sure()
        now_ms = self.time.advance(self._clock.now_ms())
        turn = Turn(now_ms, self.ledger.next_sequence)
        if self._is_down or self.is_closed:
            return turn
        try:
            self._run(turn)
        except Exception as error:  # noqa: BLE001 - whatever it is, memory can't be trusted: see the theory above
            _log.exception("A turn went wrong; recovering from the store.")
            self.fail(turn, error)
            return Turn(now_ms, self.ledger.next_sequence)
        except BaseException:
            self.distrust(turn)
            raise
        return turn

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
        refuse_everybody(self.dispatcher, self.enqueues, self._stages, error)

    def _run(self, turn: Turn) -> None:
        now_ms = turn.now_ms

        def execute(command: Command) -> object:
            return self.execute(command, turn)

        if self._is_opening:
            execute(Open(built_ms=self.schedule.built_ms))
            self._is_opening = False
        expire(self, turn, most=self.settings.turn_events)
        queues, self._handing_out.unserved = self._handing_out.unserved, {}
        is_first = True  # whatever time has done in this turn, somebody who asks gets an answer
        while self._inbox and (is_first or self._fits(turn)):
            is_first = False
            asked = turn.current = self._inbox.popleft()
            if asked.reply is None:
                turn.own.append(asked)
            try:
                self._take(asked, turn, queues)
            except Exception as error:
                if self._is_applying:
                    raise
                turn.answer(asked.reply, InvalidArgument(f"The request makes no sense: {error!r:.200}."))
        turn.current = None
        self.enqueues.retry(self, turn)
        self._stages.retry(self, turn)
        self.redrives.step(self, turn)
        remove_departed(self, turn)
        self._handing_out.serve(self, turn, queues)
        self._claiming.serve(self, turn)
        self._housekeeper.tend(execute, now_ms)
        turn.dropped = self.ledger.dropped
        self.ledger.dropped = []
        self.schedule.settle_events()

    def _fits(self, turn: Turn) -> bool:
        return self.ledger.next_sequence - turn.sequence < self.settings.turn_events

    def _take(self, asked: Asked, turn: Turn, queues: dict[str, None]) -> None:
        if type(asked) is Request:
            command = asked.command
            if type(command) is Enqueue:
                self.enqueues.take(self, asked, turn)
            elif type(command) is Stage:
                self._stages.take(self, asked, turn)
            elif type(command) is Claim:
                self._claiming.take(self, asked, turn)
            else:
                turn.answer(asked.reply, self.run_command(command, turn))
        elif type(asked) is Waiter:
            if asked.reply.done():
                return
            self._handing_out.admit(self, asked, turn)
            queues[asked.queue] = None
        elif type(asked) is Attach:
            self._handing_out.attach(self, asked, turn)
            queues[asked.consumer.queue] = None
        elif type(asked) is Read:
            turn.questions.append(asked)

    def run_command(self, command: Command, turn: Turn) -> object:
        """Ask the hooks what they have to say about a command, decide it, and make it so. Returns its outcome."""
        return run_command(self, self.hooks, command, turn, dismiss=self._handing_out.dismiss)

    def execute(self, command: Command, turn: Turn) -> object:
        """Decide a command and make it so, within a turn. Returns its outcome."""
        ledger, schedule, now_ms = self.ledger, self.schedule, turn.now_ms
        decision = decide(ledger, command, now_ms)
        self._is_applying = True
        for record in decision.records:
            schedule.prepare(record)
            messages = apply(ledger, record, now_ms)
            schedule.follow(record, messages, now_ms)
            self.dispatcher.note(record)
        turn.records.extend(decision.records)
        if decision.bodies:
            turn.bodies.extend(decision.bodies)
        self._is_applying = False
        return decision.outcome

    # ------------------------------------------------------------------------------------------------ for those who go

    def abandon(self, consumer: Consumer) -> None:
        """Let a consumer end that nobody waits for."""
        self.submit(Attach(consumer, Nobody(), is_closing=True))

    def give_back(self, queue: str, deliveries: Sequence[Delivery | Receipt]) -> None:
        """Let messages go back that were handed out to somebody who is gone."""
        receipts = [Receipt(delivery.id, delivery.token) for delivery in deliveries]
        if receipts:
            self.submit(Request(Nack(queue=queue, receipts=receipts, intent="defer", delay_ms=0)))

    # ------------------------------------------------------------------------------------------------- commit and after

    def write(self, turn: Turn) -> None:
        """Hand the commit to the store.

        Raises:
            StoreFailed: call ``fail`` then.
        """
        if not turn.records:
            return
        begun = perf_counter()
        page = codec.encode(turn.records, turn.now_ms)
        base = self.ledger.settle_base()
        self.store.write(
            Commit(
                sequence=turn.sequence,
                next_sequence=self.ledger.next_sequence,
                page=page,
                bodies=turn.bodies,
                dropped=turn.dropped,
                base=base,
                trim=self._housekeeper.trim_to,
            )
        )
        self._housekeeper.note_page(len(page))
        size = len(page) + sum(len(data) for _, data in turn.bodies)
        self.meters.written = (self.ledger.next_sequence - turn.sequence, size, perf_counter() - begun)

    def sync(self) -> None:
        """Make what was written durable. May run in another thread, while nothing else is called.

        Raises:
            StoreFailed: call ``fail`` then.
        """
        begun = perf_counter()
        self.store.sync()
        self.meters.committed(perf_counter() - begun)

    def finish(self, turn: Turn) -> None:
        """Answer and deliver, now that the turn is durable."""
        if turn.records:
            self._setbacks = 0
            self.dispatcher.confirm()
        for number, data in turn.bodies:
            self.bodies.keep(number, data)
        if turn.dropped:
            self.bodies.forget(turn.dropped)
        answer_all(turn.answers)
        for hand_out in turn.hand_outs:
            self._deliver(hand_out)
        for consumer in turn.ended:
            guarded(consumer.deliver, [])
        for question in turn.questions:
            reply_to(question, self.store)
        if turn.records:
            for tap in self.taps:
                guarded(tap, turn.records, turn.now_ms)

    def _deliver(self, hand_out: HandOut) -> None:
        guarded(self._handing_out.deliver, self, hand_out)
        for tap in self.hand_out_taps:
            guarded(tap, hand_out.taker.queue, hand_out.messages)

    def fail(self, turn: Turn, error: BaseException) -> None:
        """Refuse the turn's requests as possibly done, and recover from the store."""
        failure = (
            error if isinstance(error, FairlaneError) else StoreFailed(f"The broker had to recover: {error!r:.200}.")
        )
        refuse_turn(turn, failure)
        self.meters.failures += 1
        self._inbox.extend(turn.own)  # nobody else gives back what nobody has; but whoever asks goes first
        self.enqueues.fail(turn, failure)
        self.dispatcher.restore()
        self._handing_out.fail(turn)
        self._orphans.take_in(turn.hand_outs)
        self._is_down = True
        if not self.is_closed:
            self._pause()
            self._reopen()

    def _pause(self) -> None:
        """Let some time pass before time alone asks for another turn, since whatever failed may fail again."""
        self._setbacks += 1
        self._calm_until_ms = self.now_ms() + min(_CALM_MS_MAX, _CALM_MS << min(self._setbacks, 10))

    def distrust(self, turn: Turn | None) -> None:
        """Note that a turn was interrupted, so that the next begins with recovery."""
        self._is_down = True
        if turn is not None:
            self.fail(turn, StoreFailed("The broker was interrupted."))

    def close(self) -> None:
        """Let everybody go who waits, with what they have, and let go of the store."""
        self.let_go()
        self.store.close()

    def let_go(self) -> None:
        """Let everybody go who waits, with what they have, and take nothing more; the store is still to be closed."""
        send_home(self.dispatcher, self.enqueues, self._stages)
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
        """Let all consumers end, with the next turn: what they have goes back to its queue."""
        for consumers in list(self.dispatcher.consumers.values()):
            for consumer in consumers:
                self.abandon(consumer)
