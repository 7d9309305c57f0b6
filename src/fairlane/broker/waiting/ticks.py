"""Schedules that wait for their next tick, and what happens when it comes.

Theory of operation
-------------------
A heap has the instant at which each schedule is to be looked at next, so a cycle in which none is due costs one
comparison, however many there are. What has to be settled is not in the heap but in the ledger: all ticks after
``settled_ms`` and up to now. So a schedule may be looked at too often, and a tick that was computed twice is settled
once, since the decision compares again.

*Firing.* The message of a tick is an enqueue like any other: it may wait for a script or for capacity, and drop others
where the queue's policy says so. It is decided together with the tick, in one commit. While it waits the schedule is
not in the heap; the reply puts it back.

*A full queue.* A tick that finds no capacity stays due, and is tried again. If later ticks come meanwhile, the
catch-up policy decides what becomes of all of them. Any other refusal settles the tick as missed, with the error: it
would not go away by itself.

*Recovery* builds the heap again from the ledger. Enqueues that wait from before find their tick settled, or settle it.
"""

from __future__ import annotations

from typing import Final, cast

from msgspec.structs import replace

from fairlane.broker.calendar import due_ticks, instant_text, next_tick
from fairlane.broker.cycle import Cycle, Executor
from fairlane.broker.requests import Call
from fairlane.core.commands import EnqueueTick, MissTicks, Tick
from fairlane.core.decide.schedules import known_schedule
from fairlane.core.ledger import Ledger
from fairlane.core.schedule import Schedule
from fairlane.core.states.schedules import ScheduleState
from fairlane.core.ticks import jitter_of, overlaps, settle_due
from fairlane.errors import FairlaneError
from fairlane.model.limits import CATCH_UP_MAX
from fairlane.model.message import NEVER_MS, NewMessage
from fairlane.model.schedules import SCHEDULE_HEADER, SCHEDULED_AT_HEADER
from fairlane.scheduler.timers import Timers
from fairlane.verbs.errors import error_of
from fairlane.verbs.messages import EnqueueResults
from fairlane.verbs.schedules import RunSchedule, ScheduleRun
from fairlane.verbs.verb import Reply

CYCLE_TICKS_MAX: Final = 1_000
"""How many ticks one cycle looks at, about; the others are for the next, after the requests that have come."""
_RETRY_MS, _RETRY_MS_MAX = 1_000, 60_000
_UNKNOWN_MS: Final = 60_000  # an operator has to install a time zone, or a bug to be fixed
_WAIT_MS: Final = 30_000


class Ticks:
    """The schedules of all queues, by the instant at which each is looked at next.

    Attributes:
        timers: these instants.
        due_ms: the first of them; it may be too early, because of a schedule that has changed, but is never too late.
    """

    def __init__(self) -> None:
        self.timers = _new_timers()
        self.due_ms = NEVER_MS

    def rebuild(self, ledger: Ledger) -> None:
        """Begin again with the schedules of a ledger that was recovered."""
        self.timers, self.due_ms = _new_timers(), NEVER_MS
        for queue in ledger.queues.values():
            for schedule in queue.schedules.values():
                self._arm(schedule, ledger.at_ms)

    def arm(self, schedule: Schedule, now_ms: int) -> None:
        """Put schedules into the heap that have changed or fired."""
        changed, schedule.unarmed = schedule.unarmed, []
        for one in changed:
            self._arm(one, now_ms)

    def _arm(self, schedule: ScheduleState, now_ms: int) -> None:
        schedule.due_ms = schedule.delayed_by = None
        if schedule.is_paused:
            return
        try:
            due_ms = next_tick(schedule.spec, schedule.settled_ms)
        except FairlaneError as error:  # a zone that another node, or an earlier version, knew
            self._postpone(schedule, error, now_ms + _UNKNOWN_MS)
            return
        if due_ms is not None:
            self._push(schedule, due_ms)

    def _push(self, schedule: ScheduleState, due_ms: int) -> None:
        schedule.due_ms = due_ms
        self.timers.push(due_ms, schedule)
        self.due_ms = min(self.due_ms, due_ms)

    def _postpone(self, schedule: ScheduleState, error: FairlaneError, until_ms: int) -> None:
        schedule.delayed_by = f"{error.code}: {error.cause}"
        self._push(schedule, until_ms)

    # ---------------------------------------------------------------------------------------------------------- firing

    def fire(self, executor: Executor, cycle: Cycle, *, refusal: FairlaneError | None = None) -> None:
        """Settle the ticks that are due, as far as one cycle goes; with a refusal, postpone them all."""
        looked_at = 0
        while looked_at < CYCLE_TICKS_MAX and (schedule := self.timers.pop_one(cycle.now_ms)) is not None:
            looked_at += 1
            schedule.due_ms = None
            if known_schedule(executor.ledger, schedule.queue, schedule.name) is not schedule or schedule.is_paused:
                continue
            if refusal is not None:
                self._postpone(schedule, refusal, cycle.now_ms + _RETRY_MS)
                continue
            try:
                looked_at += self._settle(executor, schedule, cycle)
            except FairlaneError as error:
                self._postpone(schedule, error, cycle.now_ms + _UNKNOWN_MS)
            except Exception:
                self._push(schedule, cycle.now_ms + _UNKNOWN_MS)
                raise
            self.arm(executor.schedule, cycle.now_ms)
        self.due_ms = self.timers.entries[0][0] if self.timers.entries else NEVER_MS

    def _settle(self, executor: Executor, schedule: ScheduleState, cycle: Cycle) -> int:
        """Settle the ticks of a schedule that are due, and return how many these were."""
        ticks = due_ticks(schedule.spec, schedule.settled_ms, cycle.now_ms, most=CATCH_UP_MAX)
        if not ticks:
            self._arm(schedule, cycle.now_ms)
            return 0
        due = settle_due(schedule, ticks, cycle.now_ms)
        queue = executor.ledger.queues[schedule.queue]
        if due.missed:
            missed = _tick_of(schedule, due.missed[-1])
            executor.execute(MissTicks(queue=queue.name, tick=missed, missed=len(due.missed), reason=due.reason), cycle)
        for at, tick_ms in enumerate(due.fired):
            if overlaps(queue, schedule):
                rest = _tick_of(schedule, due.fired[-1])
                count = len(due.fired) - at
                executor.execute(MissTicks(queue=queue.name, tick=rest, missed=count, reason="overlap"), cycle)
                break
            self._enqueue(executor, schedule, _tick_of(schedule, tick_ms), cycle)
            if schedule.settled_ms < tick_ms:
                # It waits, or was refused: its reply goes on.
                schedule.delayed_by = "The message waits for capacity in the queue, or for the script of the queue."
                break
        return len(ticks)

    def _enqueue(self, executor: Executor, schedule: ScheduleState, tick: Tick, cycle: Cycle) -> None:
        message = message_of(schedule, tick.at_ms)
        request = EnqueueTick(queue=schedule.queue, messages=[message], wait_ms=_WAIT_MS, tick=tick)
        executor.producers.take(executor, Call(request, TickReply(self, schedule, tick.at_ms, executor)), cycle)

    def run(self, executor: Executor, call: Call, cycle: Cycle) -> None:
        """Enqueue the message of a schedule because a caller says so."""
        asked = cast("RunSchedule", call.request)
        schedule = known_schedule(executor.ledger, asked.queue, asked.name)
        if isinstance(schedule, FairlaneError):
            cycle.answer(call.reply, schedule)
            return
        request = EnqueueTick(
            queue=asked.queue,
            messages=[message_of(schedule, cycle.now_ms, is_manual=True)],
            wait_ms=asked.wait_ms,
            tick=Tick(
                schedule=schedule.name, revision=schedule.revision, at_ms=cycle.now_ms, is_manual=True, by=call.by
            ),
        )
        reply = None if call.reply is None else RunReply(call.reply)
        executor.producers.take(executor, Call(request, reply), cycle)

    def refused(self, schedule: ScheduleState, tick_ms: int, error: FairlaneError, now_ms: int) -> None:
        """Look at a schedule again whose tick was refused: soon, and less often the longer the tick is late."""
        if schedule.due_ms is None and not schedule.is_paused:
            pause_ms = min(max((now_ms - tick_ms) // 10, _RETRY_MS), _RETRY_MS_MAX)
            self._postpone(schedule, error, now_ms + pause_ms)


def _new_timers() -> Timers[ScheduleState]:
    return Timers(lambda at_ms, schedule: schedule.due_ms == at_ms)


def _tick_of(schedule: ScheduleState, tick_ms: int) -> Tick:
    return Tick(schedule=schedule.name, revision=schedule.revision, at_ms=tick_ms, after_ms=schedule.settled_ms)


def message_of(schedule: ScheduleState, tick_ms: int, *, is_manual: bool = False) -> NewMessage:
    """Return the message of a tick."""
    message = schedule.spec.message
    own = {SCHEDULE_HEADER: schedule.name, SCHEDULED_AT_HEADER: instant_text(tick_ms)}
    jitter_ms = 0 if is_manual else jitter_of(schedule, tick_ms)
    return replace(message, headers={**message.headers, **own}, delay_ms=message.delay_ms + jitter_ms)


class TickReply:
    """The reply to the enqueue of a tick: if it was refused, the schedule is looked at again."""

    __slots__ = ("_executor", "_schedule", "_tick_ms", "_ticks")

    def __init__(self, ticks: Ticks, schedule: ScheduleState, tick_ms: int, executor: Executor) -> None:
        self._ticks = ticks
        self._schedule = schedule
        self._tick_ms = tick_ms
        self._executor = executor

    def done(self) -> bool:
        """Return False: a tick does not give up."""
        return False

    def set_result(self, result: EnqueueResults, /) -> None:
        """Note what came of it."""
        body = result.results[0].error
        if body is not None:
            self.set_exception(error_of(body))

    def set_exception(self, exception: BaseException, /) -> None:
        """Note that it was refused."""
        if isinstance(exception, FairlaneError):
            self._ticks.refused(self._schedule, self._tick_ms, exception, self._executor.now_ms())


class RunReply:
    """The reply to a caller that fires a schedule: the result of the one message."""

    __slots__ = ("_reply",)

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    def done(self) -> bool:
        """Return whether the caller has its answer, or gave up."""
        return self._reply.done()

    def set_result(self, result: EnqueueResults, /) -> None:
        """Answer with the message, or its refusal."""
        one = result.results[0]
        if one.error is not None:
            self._reply.set_exception(error_of(one.error))
        else:
            self._reply.set_result(ScheduleRun(id=one.id or "", correlation_id=one.correlation_id))

    def set_exception(self, exception: BaseException, /) -> None:
        """Refuse."""
        self._reply.set_exception(exception)
