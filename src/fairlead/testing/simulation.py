"""The deterministic simulation of the whole broker: real engine, fake clock, faulty disk, and an auditor beside it.

One seed decides everything: what clients ask, when the disk fails, where the process dies, how the clock jumps. So a
seed that finds something finds it again. Each step moves the clock, lets clients ask for a few things, lets something
go wrong now and then, runs turns until the broker has nothing to do, and lets the auditor look. In the end all is
healed, and everything must drain.
"""

from __future__ import annotations

import logging
import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from fairlead.broker.engine import Engine
from fairlead.core import commands
from fairlead.errors import FairleadError
from fairlead.testing.auditor import Auditor
from fairlead.testing.auditor_books import Violation, violated
from fairlead.testing.clock import FakeClock, SeededEntropy
from fairlead.testing.faulty_store import Fault
from fairlead.testing.simulation_hooks import SimulatedHooks
from fairlead.testing.simulation_operations import Everybody
from fairlead.testing.simulation_store import ProcessDied, SimulatedDisk
from fairlead.testing.workload import Workload

STEPS = 250
_TRACE = 120
_TURNS_MAX = 500
_DRAIN_MAX = 3_000
DeathPoint = Literal["before_write", "before_sync", "after_sync", "while_answering"]
DEATH_POINTS: tuple[DeathPoint, ...] = ("before_write", "before_sync", "after_sync", "while_answering")
_FAULTS: tuple[Fault, ...] = ("before_write", "after_write", "full", "sync", "read", "recover")


class SimulationFailed(AssertionError):
    """A promise was broken: under which seed, at which step, and what led to it."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What happened in one run."""

    seed: int
    steps: int
    operations: int
    answered: int
    deliveries: int
    crashes: Counter[str]
    faults: Counter[Fault]
    events: int
    carried: int
    trimmed: int
    digest: str
    """Of everything that became durable: two runs of one seed have the same."""


class _Alarm(logging.Handler):
    """Hears what the broker would only log: an unexpected error in a turn, which it survives by recovering."""

    def __init__(self) -> None:
        super().__init__()
        self.error: BaseException | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Remember an error that is not the disk's."""
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, FairleadError):
            self.error = error


class Simulation:
    """One run under one seed.

    Attributes:
        disk_type: the disk, to be replaced where a test plants a bug in it.
    """

    disk_type: type[SimulatedDisk] = SimulatedDisk

    def __init__(self, seed: int, *, steps: int = STEPS) -> None:
        self.seed = seed
        self._steps = steps
        self._chance = random.Random(seed)  # noqa: S311 - to be repeatable is the point
        self.workload = Workload(self._chance)
        self.clock = FakeClock()
        self._entropy = SeededEntropy(seed)
        self.disk = self.disk_type(self._chance)
        self.auditor = Auditor(self.disk, self.now_ms)
        self.settings = self.workload.settings()
        self._carry_floor = self.workload.one_of(20, 50, 200, 100_000)
        self.auditor.journal.settings = self.settings
        self._trouble = self.workload.one_of(0.0, 0.05, 0.15, 0.3)
        self._step = 0
        self._trace: deque[str] = deque(maxlen=_TRACE)
        self._death: DeathPoint | None = None
        self._answers_left: int | None = None
        self._full_until = 0
        self._operations = 0
        self._answered = 0
        self.crashes: Counter[str] = Counter()
        self._alarm = _Alarm()
        self.engine = self._new_engine()
        self.clients = Everybody(self)

    def _new_engine(self) -> Engine:
        return Engine(
            self.disk,
            hooks=SimulatedHooks(),
            clock=self.clock,
            entropy=self._entropy,
            settings=self.settings,
            carry_floor=self._carry_floor,
        )

    # ---------------------------------------------------------------------------------------------- what clients see

    def now_ms(self) -> int:
        """Return the broker's time."""
        return self.engine.now_ms()

    def note(self, text: str) -> None:
        """Write into the trace."""
        self._trace.append(text)

    def answering(self) -> None:
        """Come by before each answer: the process may die between one answer and the next."""
        self._answered += 1
        if self._answers_left is not None:
            self._answers_left -= 1
            if self._answers_left < 0:
                self._answers_left = None
                raise ProcessDied

    # ---------------------------------------------------------------------------------------------------------- running

    def run(self) -> Summary:
        """Run all steps, heal, and drain.

        Raises:
            SimulationFailed: a promise was broken.
        """
        logger = logging.getLogger("fairlead.broker")
        was = logger.propagate
        logger.addHandler(self._alarm)
        logger.propagate = False
        try:
            self._boot()
            while self._step < self._steps:
                self._step += 1
                self.step()
            self._heal()
            self._drain()
        except Violation as violation:
            raise SimulationFailed(self._report(str(violation))) from violation
        except Exception as error:
            raise SimulationFailed(self._report(f"unexpected {error!r}")) from error
        finally:
            logger.removeHandler(self._alarm)
            logger.propagate = was
        books = self.auditor.books
        return Summary(
            seed=self.seed,
            steps=self._steps,
            operations=self._operations,
            answered=self._answered,
            deliveries=self.clients.deliveries,
            crashes=self.crashes,
            faults=self.disk.faults.struck,
            events=books.next_sequence - 1,
            carried=books.counts["Carried"],
            trimmed=books.trimmed - 1,
            digest=self.auditor.journal.digest.hexdigest()[:16],
        )

    def trace(self) -> str:
        """Return what happened last, line by line."""
        return "\n".join(self._trace)

    def _report(self, what: str) -> str:
        return f"seed {self.seed}, step {self._step} of {self._steps}: {what}\nWhat led to it:\n{self.trace()}"

    def step(self) -> None:
        """Let a little happen."""
        self.note(f"[{self._step}] {self.now_ms()}")
        self._move_clock()
        operations = self.clients.operations()
        weights = [weight for weight, _ in operations]
        for _ in range(self.workload.one_of(1, 2, 4, 8)):
            self._chance.choices(operations, weights)[0][1]()
            self._operations += 1
        if self.workload.happens(self._trouble):
            self._make_trouble()
        if self._full_until and self._step >= self._full_until:
            self._full_until = 0
            self.note("room on the disk again")
            self.disk.free()
        self._run_turns()
        self._check()

    def _move_clock(self) -> None:
        draw = self.workload
        at_ms = self.engine.next_event_at()
        if at_ms is not None and draw.happens(0.4):
            self.clock.advance(max(0, at_ms - self.now_ms()))
        elif draw.happens(0.7):
            self.clock.advance(draw.span_ms(3_000))
        if draw.happens(0.02):
            jump_ms = draw.one_of(-3_600_000, -10_000, -50, 60_000, 3_600_000)
            self.note(f"the clock jumps by {jump_ms}")
            self.clock.advance(jump_ms)

    def _make_trouble(self) -> None:
        draw = self.workload
        if draw.happens(0.5):
            self._death = draw.one_of(*DEATH_POINTS)
            self.note(f"to die: {self._death}")
            return
        fault: Fault = draw.one_of(*_FAULTS)
        self.note(f"to fail: {fault}")
        self.disk.faults.arm(fault, times=draw.one_of(1, 1, 2))
        if fault == "full":
            self._full_until = self._step + draw.chance.randint(1, 6)

    def _run_turns(self) -> None:
        for _ in range(_TURNS_MAX):
            try:
                self._turn()
            except ProcessDied:
                self._reboot()
                continue
            if self._alarm.error is not None:
                raise Violation(f"a turn went wrong: {self._alarm.error!r}") from self._alarm.error
            at_ms = self.engine.next_event_at()
            if not self.engine.has_requests() and (at_ms is None or at_ms > self.now_ms()):
                return
        violated(f"the broker is still busy after {_TURNS_MAX} turns")

    def _turn(self) -> None:
        engine, death = self.engine, self._death
        turn = engine.begin()
        self._dies_at("before_write", death)
        try:
            if turn.records:
                engine.write(turn)
                self._dies_at("before_sync", death)
                engine.sync()
                self._dies_at("after_sync", death)
        except FairleadError as error:
            self.note(f"  the disk: {error!r:.80}")
            engine.fail(turn, error)
            return
        if death == "while_answering":
            self._death, self._answers_left = None, self._chance.randint(0, 4)
            self.crashes[death] += 1
        engine.finish(turn)

    def _dies_at(self, point: DeathPoint, death: DeathPoint | None) -> None:
        if death == point:
            self._death = None
            self.crashes[point] += 1
            raise ProcessDied

    def _reboot(self) -> None:
        self.note("  the process dies")
        self.clients.forget_process()
        self._answers_left = None
        if self.workload.happens(0.3):
            self.disk.dies_at_page = self._chance.randint(0, 20)
        if self.workload.happens(0.3):
            self._move_clock()
        self._boot()

    def _boot(self) -> None:
        while True:
            self.engine = self._new_engine()
            try:
                self.engine.open()
            except ProcessDied:
                self.crashes["in_recovery"] += 1
                self.note("  and again while it recovers")
            except FairleadError as error:
                self.note(f"  it can't open: {error!r:.80}")
            else:
                self.disk.dies_at_page = None
                return

    # --------------------------------------------------------------------------------------------------------- checking

    @property
    def _is_well(self) -> bool:
        return not self.engine._is_down and not self.engine._setbacks

    def _check(self) -> None:
        self.clients.waiters = [pair for pair in self.clients.waiters if not pair[1].done()]
        self.clients.answers = [answer for answer in self.clients.answers if not answer.done()]
        if not self._is_well:
            return
        now_ms, auditor = self.now_ms(), self.auditor
        for answer in self.clients.answers:
            if answer.until_ms <= now_ms:
                violated(f"never answered: {answer.label}, until {answer.until_ms}, now {now_ms}")
        for waiter, answer in self.clients.waiters:
            auditor.check_served(waiter.queue, now_ms, answer.label)
        for consumer in self.clients.consumers:
            got = self.clients.given[id(consumer)]
            if sum(1 for delivery in got if auditor.holds(delivery, now_ms)) < consumer.credit:
                auditor.check_served(consumer.queue, now_ms, f"a consumer with credit {consumer.credit}")
        auditor.check_timely(now_ms)
        auditor.check_ledger(self.engine.ledger, now_ms)
        auditor.check_store()
        auditor.check_counts()
        if self._step % 10 == 0:
            auditor.check_fold(now_ms)

    # --------------------------------------------------------------------------------------------------------- draining

    def _do(self, command: commands.Command, judge: Callable[[object], None] = lambda _outcome: None) -> None:
        self.clients.do(f"{command!r:.100}", command, judge)

    def _heal(self) -> None:
        """Let nothing fail, and lift everything that holds messages back."""
        self.note("all is healed")
        self.disk.faults.disarm()
        self.disk.free()
        self._death = self._answers_left = None
        self.clock.advance(5_000)
        self._run_turns()
        books = self.auditor.books
        for key in sorted(books.config):
            if key.startswith(("throttle:", "cap:")):
                self._do(commands.SetConfig(values={key: None}))
        for book in books.queues.values():
            self._do(commands.Pause(queue=book.name, is_paused=False))
            for path in sorted(book.paused):
                self._do(commands.Pause(queue=book.name, is_paused=False, key=path))
            if not book.is_dlq:
                policy = self.workload.policy(before=book.policy)
                while policy.caps or policy.deadline_ms is not None:
                    policy = self.workload.policy(before=book.policy)
                self._do(commands.UpdateQueue(queue=book.name, policy=policy))
        for _ in range(len(self.clients.consumers)):
            self.clients.detach()
        self._run_turns()
        self._check()

    def _drain(self) -> None:
        """Take and ack all there is, until nothing is left."""
        books = self.auditor.books
        for _ in range(_DRAIN_MAX):
            if not any(True for _ in books.alive()):
                break
            self.clients.held.clear()
            for queue in sorted(books.queues):
                self.clients.take(queue)
                self._run_turns()
            for holding in list(self.clients.held):
                self.clients.finish(holding)
            self._run_turns()
            self._check()
            at_ms = self.engine.next_event_at()
            if at_ms is not None:
                self.clock.advance(max(0, at_ms - self.now_ms()))
        left = [entry.number for entry in books.alive()]
        if left or self.disk.kept_bodies():
            violated(f"not drained: messages {left}, bodies {sorted(self.disk.kept_bodies())}")
        self.auditor.check_fold(self.now_ms())
