"""The engine: the broker's only writer, cycle by cycle.

A cycle takes the requests that have come in, decides each against the ledger, applies the records it leads to, and
updates the schedule, so that each request sees what the ones before it did. Then it leases to consumers that wait, and
does a little housekeeping. All records of the cycle, with all new bodies, are one commit. Only when the commit is
durable are the requests answered and the messages delivered; until then no caller knows that anything happened.

A commit is final. If the store says it failed, or if anything unexpected goes wrong in a cycle, the truth is unknown:
the engine discards its memory, folds the journal again, and refuses the requests of that cycle as possibly done.
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
from collections.abc import Callable, Sequence
from time import perf_counter

from fairlane.broker.cycle import Cycle, O
from fairlane.broker.disk_reserve import GROWING
from fairlane.broker.engine.expiry import expire, forget_excess, remove
from fairlane.broker.engine.life import EngineLife
from fairlane.broker.engine.replies import answer_read, guarded
from fairlane.broker.engine.state import RUNNING, Event, State, after
from fairlane.broker.measurements import COMMITS_KEPT
from fairlane.broker.pace import note_pace
from fairlane.broker.requests import Attach, Call, HandOut, StatusWaiter, Submission, Waiter
from fairlane.broker.takers import take_call, take_read
from fairlane.broker.views.deliveries import deliver
from fairlane.broker.waiting.claims import serve_claims
from fairlane.broker.waiting.pieces import tend_pieces
from fairlane.core.apply import apply
from fairlane.core.commands import NOTHING_GIVEN, Command, EndFanOut, Given
from fairlane.core.decide import DECIDERS
from fairlane.core.decision import Decision
from fairlane.core.ledger import Message
from fairlane.errors import FairlaneError, InternalError
from fairlane.journal import codec
from fairlane.journal.records import AnyRecord, Redriven
from fairlane.model.limits import PIECE_BYTES
from fairlane.ports.store import Commit
from fairlane.verbs.leases import Ack
from fairlane.verbs.messages import Enqueue
from fairlane.verbs.verb import Request

_log = logging.getLogger("fairlane.broker")
_RETRY_MS, _RETRY_MS_MAX = 5, 1_000
Tap = Callable[[Sequence[AnyRecord], int], None]
HandOutTap = Callable[[str, list[Message]], None]


class _ApplyFailed(Exception):
    """Records of a request were applied in part: memory can't be trusted any more."""


class Engine(EngineLife):
    """The broker's only writer. Not thread-safe; see the module's theory of operation."""

    # ---------------------------------------------------------------------------------------------------------- cycles

    def begin(self) -> Cycle:
        """Decide and apply everything that can be committed together now."""
        if self.state in RUNNING:
            try:
                self.store.check_owned()
            except FairlaneError as error:
                _log.warning("Reopening the store: %s", error)
                self.state = after(self.state, Event.FAIL)
        if self.state is State.FENCED:
            self._refuse_inbox(self._fenced_by)
        elif self.state in (State.NEW, State.DOWN):
            self._reopen()
        now_ms = self.time.advance()
        if now_ms >= self.reserve.due_ms or self.reserve.due_bytes <= 0:
            self.reserve.look(now_ms, self.ledger.size)
        cycle = Cycle(now_ms, self.ledger.next_sequence)
        if self.state not in RUNNING:
            return cycle
        if self.hook_calls.cycle_ns:
            self.hook_calls.begin_cycle()
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
            self.execute(self._opening(), cycle)
            cycle.skipped = max(0, self._reserved - cycle.sequence)
        if cycle.now_ms >= self._due_ms or cycle.now_ms >= self.ticks.due_ms:
            self._pass_time(cycle)
        queues, consumers.unserved = consumers.unserved, {}
        if self.script_lines.lines:
            self._continue_scripts(cycle)
        if self.inbox or self.fetches.loaded:
            self._take_requests(cycle, queues)
        if self.pieces.lines or self.ledger.discarded.entries:
            tend_pieces(self, cycle, bytes_max=self.settings.cycle_bytes_max or PIECE_BYTES)
        redrives = self.redrives
        if self.producers.waiting or self.sinks.waiting or redrives.running or redrives.dry_runs.running:
            self._serve_senders(cycle)
        departed = self.schedule.departed(cycle.now_ms)
        if departed or self.ledger.fan_outs.complete:
            self._settle_ends(cycle, departed)
        if consumers.lines:
            consumers.serve(self, cycle, queues)
        if cycle.claims or self.schedule.revived:
            self._serve_claims(cycle)
        housekeeper, now_ms = self._housekeeper, cycle.now_ms
        is_due = now_ms >= housekeeper.due_ms or now_ms >= self.refusals.due_ms
        if is_due or self.ledger.next_sequence >= housekeeper.due_sequence:
            self._tend(cycle)
        cycle.dropped, self.ledger.dropped = self.ledger.dropped, []
        self._due_ms = self.schedule.settle_events()
        if self.schedule.unarmed:
            self.ticks.arm(self.schedule, cycle.now_ms)

    def _pass_time(self, cycle: Cycle) -> None:
        """Carry out what time alone does, and enqueue the messages of schedules that are due."""
        if cycle.now_ms >= self._due_ms:
            expire(self, cycle, leases_max=self.settings.cycle_events_max)
        if cycle.now_ms < self.ticks.due_ms:
            return
        try:
            self.ticks.fire(self, cycle, refusal=self.reserve.refusal() if self.reserve.is_short else None)
        except _ApplyFailed:
            raise
        except Exception as error:  # noqa: BLE001 - a bug of ours: nothing of this tick was applied, so the others go on
            self.internal_error(error)

    def _settle_ends(self, cycle: Cycle, departed: list[tuple[str, list[Message]]]) -> None:
        """Remove messages whose deadlines have passed, and release continuations whose members have all ended."""
        remove(self, cycle, departed)
        for number in list(self.ledger.fan_outs.complete):
            self.execute(EndFanOut(number=number), cycle)

    def _continue_scripts(self, cycle: Cycle) -> None:
        """Go on with what waits for script time, before the requests that have come since."""
        for work in self.script_lines.heads():
            cycle.current = work.call
            try:
                if self.reserve.is_short and type(work.call.request) in GROWING:
                    self.script_lines.remove(work)
                    cycle.answer(work.reply, self.reserve.refusal())
                elif work.advance(self, cycle):
                    self.script_lines.remove(work)
                    work.decide(self, cycle)
            except _ApplyFailed:
                raise
            except Exception as error:  # noqa: BLE001 - a bug of ours: nothing was applied, so the others go on
                self.script_lines.remove(work)
                cycle.answer(work.reply, self.internal_error(error))
        cycle.current = None

    def _serve_senders(self, cycle: Cycle) -> None:
        """Try those again that wait for capacity, or on a short disk refuse them. Then go on with redrives."""
        is_short = self.reserve.is_short
        if self.producers.waiting:
            if is_short:
                self.producers.refuse(self.reserve.refusal(), cycle)
            self.producers.retry(self, cycle)
        if self.sinks.waiting:
            if is_short:
                self.sinks.refuse(self.reserve.refusal(), cycle)
            self.sinks.retry(self, cycle)
        self.redrives.step(self, cycle)

    def _tend(self, cycle: Cycle) -> None:
        """Do the broker's own work that is due."""
        if cycle.now_ms >= self.refusals.due_ms:
            self.refusals.record(self, cycle, is_disk_short=self.reserve.is_short)
        self._housekeeper.tend(self, cycle)

    def _serve_claims(self, cycle: Cycle) -> None:
        """Pick messages for claims; tokens that come back by it are for the next cycle."""
        if cycle.claims:
            claimed = serve_claims(self, cycle, handed_out_max=self.settings.cycle_events_max)
            for queue in claimed & self.consumers.lines.keys():
                self.consumers.serve_again(queue)  # the prompt messages that a busy consumer had to leave may be gone
        if self.schedule.revived:
            self.consumers.serve_revived(self.schedule)

    def _take_requests(self, cycle: Cycle, queues: dict[str, None]) -> None:
        """Take requests while the cycle has capacity; the first always, whatever time has done in this cycle."""
        inbox, ledger = self.inbox, self.ledger
        inbox.extend(self.fetches.settle() if self.fetches.loaded else ())
        events_max = self.settings.cycle_events_max
        end, count = cycle.sequence + events_max, len(inbox)
        is_many = count > 1 or self._intake.pace.is_kept
        if is_many and not self._failures:  # while cycles fail, callers go before what the broker asks of itself
            count = self._intake.arrange(inbox, cycle.now_ms, events_max)
        try:
            for at in range(count):
                if at and ledger.next_sequence >= end:
                    break
                submission = cycle.current = inbox.popleft()
                if submission.reply is None:
                    cycle.own.append(submission)
                try:
                    self._take(submission, cycle, queues)
                except _ApplyFailed:
                    raise
                except Exception as error:  # noqa: BLE001 - a bug of ours: nothing was applied, so the others go on
                    cycle.answer(submission.reply, self.internal_error(error))
            cycle.current = None
            if ledger.finished.known:
                forget_excess(self, cycle, self.settings)
        finally:
            inbox.extendleft(reversed(cycle.postponed))  # also if the cycle fails: no answer was begun

    def _take(self, submission: Submission, cycle: Cycle, queues: dict[str, None]) -> None:
        if isinstance(submission, Call):
            kind = type(submission.request)
            if self.reserve.is_short and kind in GROWING:
                cycle.answer(submission.reply, self.reserve.refusal())
            elif kind is Enqueue:
                self.producers.take(self, submission, cycle)
            elif kind is Ack:  # the most frequent one that no hook is asked about
                cycle.answer(submission.reply, self.execute(submission.request, cycle))
            else:
                take_call(self, submission, cycle)
        elif isinstance(submission, Waiter):
            if not submission.reply.done():
                self.consumers.admit(self, submission, cycle)
                queues[submission.queue] = None
        elif isinstance(submission, Attach):
            self.consumers.attach(self, submission, cycle)
            queues[submission.consumer.queue] = None
        elif isinstance(submission, StatusWaiter):
            cycle.watchers.append(submission)
        else:
            take_read(submission, cycle)

    def internal_error(self, error: Exception) -> InternalError:
        """Report a bug of the broker's: to the operator in the log and the metrics, to the caller as ``internal``."""
        _log.exception("A request failed because of a bug in the broker.", exc_info=error)
        self.metrics.internal_errors += 1
        return InternalError(f"The broker failed to decide the request: {error!r:.200}.")

    def execute(
        self, command: Command[O] | Request[O], cycle: Cycle, given: Given = NOTHING_GIVEN
    ) -> O | FairlaneError:
        """Decide a request or command, apply its records, and return its outcome; see ``Executor``."""
        ledger, schedule, now_ms = self.ledger, self.schedule, cycle.now_ms
        decision: Decision[O] = DECIDERS[type(command)](ledger, command, now_ms, given)
        try:
            for record in decision.records:
                if type(record) is Redriven:
                    schedule.prepare(record)
                messages = apply(ledger, record, now_ms)
                schedule.follow(record, messages, now_ms)
                if self.consumers.holders or self.consumers.freed:
                    self.consumers.free(record)
        except Exception as error:
            raise _ApplyFailed from error
        cycle.records.extend(decision.records)
        if decision.bodies:
            cycle.bodies.extend(decision.bodies)
        if decision.pieces:
            cycle.pieces.extend(decision.pieces)
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
                bodies=[*cycle.bodies, *cycle.pieces] if cycle.pieces else cycle.bodies,
                dropped=cycle.dropped,
                base=ledger.base if ledger.base == ledger.baseline else ledger.settle_base(),
                trim=self._housekeeper.trim_to,
            )
        )
        self._housekeeper.segment_size += len(page)
        size = len(page)
        for _, data in (*cycle.bodies, *cycle.pieces):
            size += len(data)
        self.reserve.due_bytes -= size
        events = ledger.next_sequence - cycle.sequence - cycle.skipped
        self.metrics.written = (events, size, perf_counter() - begun)

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
        """Answer and deliver, now that the cycle is durable, and show it to the taps."""
        self.answer(cycle)
        self.show(cycle)

    def answer(self, cycle: Cycle) -> None:
        """Answer and deliver, now that the cycle is durable. Call ``show`` when the answers are on their way."""
        if cycle.records:
            self._confirm(cycle)
        for reply, outcome in cycle.answers:
            if not reply.done():
                if isinstance(outcome, FairlaneError):
                    reply.set_exception(outcome)
                else:
                    reply.set_result(outcome)
        for hand_out in cycle.hand_outs:
            self._deliver(hand_out)
        if self.consumers.revocations.revoked or cycle.ended:
            self._tell_consumers(cycle)
        if self.peeks.jobs and self.state in RUNNING:
            self.peeks.step(self)
        for read in cycle.reads:
            answer_read(self, read)
        if (cycle.watchers or self.watchers.waiting or self.watchers.searches.jobs) and self.state in RUNNING:
            # Not while the store can't be opened: memory may be ahead of it.
            guarded(self.watchers.tell, self, cycle)

    def show(self, cycle: Cycle) -> None:
        """Show to the taps what was handed out and committed, and do what no caller waits for."""
        for hand_out in cycle.hand_outs:
            for hand_out_tap in self.hand_out_taps:
                guarded(hand_out_tap, hand_out.taker.queue, hand_out.messages)
        if not cycle.records:
            return
        for tap in self.taps:
            try:
                tap(cycle.records, cycle.now_ms)
            except Exception:  # noqa: BLE001 - code of others, after the commit: it undoes nothing
                _log.exception("A tap failed after a commit; the commit stands.")
        if cycle.frees_space:
            self.reserve.reclaim()
        metrics = self.metrics
        metrics.commits.append(metrics.written)
        if len(metrics.commits) >= COMMITS_KEPT:
            metrics.fold()

    def _tell_consumers(self, cycle: Cycle) -> None:
        """Announce what consumers have lost, and to those that ended that nothing more will come."""
        guarded(self.consumers.revocations.announce, self.ledger.ids)
        for consumer in cycle.ended:
            guarded(consumer.deliver, [])

    def _deliver(self, hand_out: HandOut) -> None:
        try:
            deliver(self, hand_out)
        except Exception:  # noqa: BLE001 - it is the taker's code that fails; the lease stands until it expires
            _log.exception("A delivery failed after its lease was committed.")

    def _confirm(self, cycle: Cycle) -> None:
        """Note that a commit is durable."""
        if self.state is State.RECOVERED:
            self.state = after(self.state, Event.CONFIRM)
        self._failures = 0
        self.consumers.freed.clear()  # the records that freed the credit are durable
        if self._intake.pace.is_kept:
            note_pace(self._intake.pace, cycle)
        if cycle.bodies:
            self.bodies.keep(cycle.bodies)
        if cycle.dropped:
            self.bodies.forget(cycle.dropped)
            if self.fetches.pieces:
                self.inbox.extend(self.fetches.forget(cycle.dropped))
