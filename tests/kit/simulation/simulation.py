"""The deterministic simulation of the whole broker: real engine, fake clock, faulty disk, and an auditor next to it.

One seed decides everything: what clients ask, when the disk fails, where the process dies, how the clock jumps. So a
seed that finds something finds it again. Each step moves the clock, lets clients ask for a few things, lets something
go wrong now and then, runs turns until the broker has nothing to do, and lets the auditor look. In the end all is
healed, and everything must drain.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from fairlane.testing.faulty_store import Fault
from fairlane.verbs.config import SetConfig
from fairlane.verbs.methods.conversions import fields_of
from fairlane.verbs.queues import ResumeQueue, UpdateQueue
from fairlane.verbs.schedules import DeleteSchedule
from fairlane.verbs.verb import Request
from tests.kit.auditor.books import Violation, violated
from tests.kit.simulation.process import DEATH_POINTS, SimulatedProcess

STEPS = 250
_DRAIN_MAX = 3_000
_FAULTS: tuple[Fault, ...] = ("before_write", "after_write", "full", "sync", "read", "recover")


class SimulationFailed(AssertionError):
    """A broken promise, with the seed, the step and the trace."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary of one run."""

    seed: int
    steps: int
    operations: int
    answered: int
    deliveries: int
    crashes: Counter[str]
    faults: Counter[Fault]
    damaged: Counter[str]
    """How often a damaged copy of the disk was refused or opened, by kind of damage."""
    events: int
    claims: int
    published: int
    uploaded: int
    carried: int
    trimmed: int
    ticks: int
    """Ticks of schedules that have fired."""
    digest: str
    """A hash of all durable commits: two runs of a seed have the same."""


class Simulation(SimulatedProcess):
    """One run of one seed."""

    def __init__(self, seed: int, *, steps: int = STEPS, rows_from: int | None = 0) -> None:
        super().__init__(seed, rows_from=rows_from)
        self._steps = steps
        self._step = 0
        self._trouble = self.workload.one_of(0.0, 0.05, 0.15, 0.3)
        self._full_until = 0
        self._operations = 0

    # ---------------------------------------------------------------------------------------------------------- running

    def run(self) -> Summary:
        """Run all steps, repair everything, and drain.

        Raises:
            SimulationFailed: a promise was broken.
        """
        logger = logging.getLogger("fairlane.broker")
        was = logger.propagate
        logger.addHandler(self.alarm)
        logger.propagate = False
        try:
            self.boot()
            for _ in range(2):
                self.clients.create()
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
            logger.removeHandler(self.alarm)
            logger.propagate = was
        books = self.auditor.books
        return Summary(
            seed=self.seed,
            steps=self._steps,
            operations=self._operations,
            answered=self.answered,
            deliveries=self.clients.deliveries,
            crashes=self.crashes,
            faults=self.disk.faults.struck,
            damaged=self.damaged,
            events=books.next_sequence - 1,
            claims=len(books.claims),
            published=books.counts["Published"],
            uploaded=books.counts["PieceStored"],
            carried=books.counts["Carried"],
            trimmed=books.trimmed - 1,
            ticks=books.counts["ScheduleFired"],
            digest=self.auditor.journal.digest.hexdigest()[:16],
        )

    def _report(self, what: str) -> str:
        return f"seed {self.seed}, step {self._step} of {self._steps}: {what}\nWhat led to it:\n{self.trace()}"

    def step(self) -> None:
        """Run one step."""
        self.note(f"[{self._step}] {self.now_ms()}")
        self.move_clock()
        operations = self.clients.operations()
        weights = [weight for weight, _ in operations]
        for _ in range(self.workload.one_of(1, 2, 4, 8)):
            self.chance.choices(operations, weights)[0][1]()
            self._operations += 1
        if self.workload.happens(self._trouble):
            self._make_trouble()
        if self.disk.is_full and self._step >= self._full_until:
            self.note("room on the disk again")
            self.disk.free()
        self.run_turns()
        self._check()

    def _make_trouble(self) -> None:
        draw = self.workload
        if draw.happens(0.5):
            self.death = draw.one_of(*DEATH_POINTS)
            self.note(f"to die: {self.death}")
            return
        fault: Fault = draw.one_of(*_FAULTS)
        self.note(f"to fail: {fault}")
        self.disk.faults.arm(fault, times=draw.one_of(1, 1, 2))
        if fault == "full":
            self._full_until = self._step + draw.chance.randint(1, 6)

    # --------------------------------------------------------------------------------------------------------- checking

    def _check(self) -> None:
        self.clients.waiters = [pair for pair in self.clients.waiters if not pair[1].done()]
        self.clients.answers = [answer for answer in self.clients.answers if not answer.done()]
        if not self.is_well:
            return
        now_ms, auditor = self.now_ms(), self.auditor
        for answer in self.clients.answers:
            if answer.until_ms <= now_ms:
                violated(f"never answered: {answer.label}, until {answer.until_ms}, now {now_ms}")
        for waiter, answer in self.clients.waiters:
            auditor.check_served(waiter.queue, now_ms, answer.label)
        for consumer in self.clients.consumers:
            got = self.clients.given[id(consumer)]
            in_flight = sum(1 for delivery in got if auditor.holds(delivery, now_ms))
            is_busy = consumer.handlers is not None and in_flight >= consumer.handlers
            if in_flight < consumer.credit and not (is_busy and auditor.has_prompt(consumer.queue)):
                auditor.check_served(consumer.queue, now_ms, f"a consumer with credit {consumer.credit}")
        auditor.check_timely(now_ms)
        auditor.check_ledger(self.engine.ledger, now_ms)
        auditor.check_store()
        auditor.check_counts()
        if self._step % 10 == 0:
            auditor.check_fold(now_ms)

    # --------------------------------------------------------------------------------------------------------- draining

    def _do(self, command: Request[Any], judge: Callable[[object], None] = lambda _outcome: None) -> None:
        self.clients.do(f"{command!r:.100}", command, judge)

    def _heal(self) -> None:
        """Disarm all faults, and remove everything that holds messages back."""
        self.note("all is healed")
        self.disk.faults.disarm()
        self.disk.free()
        self.death = self.answers_left = None
        self.clock.advance(5_000)
        self.run_turns()
        books = self.auditor.books
        for key in sorted({*books.config, *books.temporary}):  # what is covered for a while would come back
            if key.startswith(("throttle:", "cap:")):
                self._do(SetConfig(values={key: None}))
        for book in books.queues.values():
            self._do(ResumeQueue(queue=book.name))
            for path in sorted(book.paused):
                self._do(ResumeQueue(queue=book.name, key=path))
            if not book.is_dlq:
                policy = self.workload.policy(before=book.policy)
                while policy.caps or policy.deadline_ms is not None or policy.dead_letter_queue is not None:
                    policy = self.workload.policy(before=book.policy)
                unlimited = {
                    "key_cap": None,
                    "key_rate": None,
                    "key_burst": None,
                    "key_charge": "message",
                    "in_flight_max": None,
                    "key_floor": 0,
                }
                policy = msgspec.structs.replace(policy, **unlimited)
                self._do(UpdateQueue(queue=book.name, policy=fields_of(policy)))
        for _ in range(len(self.clients.consumers)):
            self.clients.detach()
        for book in books.queues.values():
            for name in list(book.consumers):
                self.clients.release(book.name, name)
            for name in list(book.sinks):
                self.clients.drop(book.name, name)
            for name in book.schedules:
                self._do(DeleteSchedule(queue=book.name, name=name))
        self.clients.drop_all_uploads()
        self.run_turns()
        self._check()

    def _drain(self) -> None:
        """Lease and acknowledge everything until the queues are empty."""
        books = self.auditor.books
        for _ in range(_DRAIN_MAX):
            if not any(True for _ in books.alive()):
                break
            self.clients.held.clear()
            for queue in sorted(books.queues):
                self.clients.take(queue)
                self.run_turns()
            for holding in list(self.clients.held):
                self.clients.finish(holding)
            self.run_turns()
            self._check()
            at_ms = self.engine.next_event_at()
            if at_ms is not None:
                self.clock.advance(max(0, at_ms - self.now_ms()))
        left = [entry.number for entry in books.alive()]
        bodies = set(self.disk.kept_bodies()) - {note.body for note in books.finished.values()}
        if left or bodies:
            violated(f"not drained: messages {left}, bodies {sorted(bodies)}")
        self.clock.advance(1_000)
        self.run_turns()
        running = [number for number, book in books.redrives.items() if book.end is None]
        if running:
            violated(f"no dead letter is left, and redrives {running} still run")
        self.auditor.check_fold(self.now_ms())
        self._set_clock_right()

    def _set_clock_right(self) -> None:
        """Set the wall clock right, and check that no jump of the run has left a trace once time was slewed back."""
        self.clock_rules.set_right()
        for wait_ms in (1_000, 60_000):
            self.clock.advance(wait_ms)
            self.run_turns()
        self.clock.advance(11 * abs(self.clock.now_ms() - self.now_ms()))
        self.run_turns()
        self.clock_rules.check_right(self.now_ms())
