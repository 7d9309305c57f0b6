"""The simulated process: the real engine on a fake clock and a faulty disk, which may die at any point of a cycle."""

from __future__ import annotations

import logging
import random
from collections import Counter, deque
from typing import Literal

from fairlane.broker.engine.engine import Engine
from fairlane.errors import FairlaneError, StoreCorrupt
from fairlane.ports.store import Store
from fairlane.testing.clock import FakeClock, SeededEntropy
from tests.kit.auditor.auditor import Auditor
from tests.kit.auditor.books import Violation, violated
from tests.kit.auditor.clock import ClockRules
from tests.kit.simulation.damage import DAMAGES, DamagedStore, try_damaged
from tests.kit.simulation.hooks import SimulatedHooks
from tests.kit.simulation.operators import Everybody
from tests.kit.simulation.store import ProcessDied, SimulatedDisk
from tests.kit.simulation.workload import Workload

_TRACE = 120
_DAMAGED = 0.5
_TURNS_MAX = 500
DeathPoint = Literal["before_write", "before_sync", "after_sync", "while_answering"]
DEATH_POINTS: tuple[DeathPoint, ...] = ("before_write", "before_sync", "after_sync", "while_answering")


class Alarm(logging.Handler):
    """Collects what the broker only logs: unexpected errors in a cycle, which it survives by recovering."""

    def __init__(self) -> None:
        super().__init__()
        self.error: BaseException | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Remember an error that is not the disk's."""
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, FairlaneError):
            self.error = error


class SimulatedProcess:
    """A broker that runs cycle by cycle, dies at a chosen point, and is started again.

    Attributes:
        disk_type: the disk, to be replaced where a test plants a bug in it.
        death: where the process is to die next, None for nowhere.
        rows_from: from how many messages on its broker keeps plain ones as rows; None for never.
    """

    disk_type: type[SimulatedDisk] = SimulatedDisk

    def __init__(self, seed: int, *, rows_from: int | None = 0) -> None:
        self.seed = seed
        self.rows_from = rows_from
        self.chance = random.Random(seed)
        self.workload = Workload(self.chance)
        self.clock = FakeClock()
        self._entropy = SeededEntropy(seed)
        self.disk = self.disk_type(self.chance)
        self.auditor = Auditor(self.disk, self.now_ms)
        self.clock_rules = ClockRules(self.clock)
        self.settings = self.workload.settings()
        self.auditor.journal.settings = self.settings
        self._carry_floor = self.workload.one_of(5, 20, 100, 100_000)
        self._trace: deque[str] = deque(maxlen=_TRACE)
        self.death: DeathPoint | None = None
        self.answers_left: int | None = None
        """The number of answers until the process dies; None for never."""
        self.answered = 0
        self.crashes: Counter[str] = Counter()
        self.damaged: Counter[str] = Counter()
        self._damage_chance = random.Random(f"damage {seed}")
        self.alarm = Alarm()
        self.engine = self._new_engine()
        self.clients = Everybody(self)

    def _new_engine(self, store: Store | None = None) -> Engine:
        return Engine(
            store if store is not None else self.disk,
            hooks=SimulatedHooks(),
            clock=self.clock,
            entropy=self._entropy if store is None else SeededEntropy(self.seed),
            settings=self.settings,
            carry_floor=self._carry_floor,
            rows_from=self.rows_from,
        )

    # ---------------------------------------------------------------------------------------------- what clients see

    def now_ms(self) -> int:
        """Return the broker's time."""
        return self.engine.now_ms()

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        self._trace.append(text)

    def answering(self) -> None:
        """Run before each answer, because the process may die between two answers."""
        self.answered += 1
        if self.answers_left is not None:
            self.answers_left -= 1
            if self.answers_left < 0:
                self.answers_left = None
                raise ProcessDied

    def trace(self) -> str:
        """Return the last lines of the trace."""
        return "\n".join(self._trace)

    # ---------------------------------------------------------------------------------------------------------- turns

    @property
    def is_well(self) -> bool:
        """Whether the last cycle succeeded."""
        return self.engine.is_well

    def run_turns(self) -> None:
        """Run cycles until the broker has nothing to do."""
        for _ in range(_TURNS_MAX):
            try:
                self._turn()
            except ProcessDied:
                self._reboot()
                continue
            if self.alarm.error is not None:
                raise Violation(f"a turn went wrong: {self.alarm.error!r}") from self.alarm.error
            look_at_ms, at_ms = self.engine.next_look_at(), self.engine.next_event_at()
            if at_ms is not None and (look_at_ms is None or look_at_ms > at_ms):
                violated(f"something is due at {at_ms}, and a front end would look at {look_at_ms}")
            if not self.engine.has_requests() and (at_ms is None or at_ms > self.now_ms()):
                return
        violated(f"the broker is still busy after {_TURNS_MAX} turns")

    def _turn(self) -> None:
        engine, death = self.engine, self.death
        turn = engine.begin()
        self.clock_rules.check_turn(turn.now_ms)
        self._dies_at("before_write", death)
        try:
            if turn.records:
                engine.write(turn)
                self._dies_at("before_sync", death)
                engine.sync()
                self._dies_at("after_sync", death)
        except FairlaneError as error:
            self.note(f"  the disk: {error!r:.80}")
            engine.fail(turn, error)
            return
        if death == "while_answering":
            self.death, self.answers_left = None, self.chance.randint(0, 4)
            self.crashes[death] += 1
        engine.finish(turn)

    def _dies_at(self, point: DeathPoint, death: DeathPoint | None) -> None:
        if death == point:
            self.death = None
            self.crashes[point] += 1
            raise ProcessDied

    def _reboot(self) -> None:
        self.note("  the process dies")
        self.clients.forget_process()
        self.answers_left = None
        if self.workload.happens(0.3):
            self.disk.dies_at_page = self.chance.randint(0, 20)
        if self.workload.happens(0.3):
            self.move_clock()
        self.boot()

    def boot(self) -> None:
        """Start the process, repeatedly until it is up."""
        while True:
            self.engine = self._new_engine()
            try:
                self.engine.open()
            except ProcessDied:
                self.crashes["in_recovery"] += 1
                self.note("  and again while it recovers")
            except StoreCorrupt as error:
                violated(f"the broker refuses an intact store: {error.cause}")
            except FairlaneError as error:
                self.note(f"  it can't open: {error!r:.80}")
            else:
                self.disk.dies_at_page = None
                self.clock_rules.note_start(self.auditor.books.at_ms)
                self._try_damaged()
                return

    def _try_damaged(self) -> None:
        """Try to start on a damaged copy of the disk now and then."""
        chance = self._damage_chance
        if chance.random() < _DAMAGED:
            store = DamagedStore(self.disk.durable(), chance.choice(DAMAGES), chance)
            try_damaged(store, self._new_engine, self.auditor, self.damaged)

    def move_clock(self) -> None:
        """Move the clock, to the next event or elsewhere, and sometimes jump."""
        draw = self.workload
        at_ms = self.engine.next_event_at()
        if at_ms is not None and draw.happens(0.4):
            self.clock.advance(max(0, at_ms - self.now_ms()))
        elif draw.happens(0.7):
            self.clock.advance(draw.span_ms(3_000))
        if draw.happens(0.02):
            jump_ms = draw.one_of(-3_600_000, -10_000, -50, 60_000, 3_600_000)
            self.note(f"the clock jumps by {jump_ms}")
            self.clock.jump(jump_ms)
