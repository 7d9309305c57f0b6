"""A year of schedules on nodes that die, hang and take over from each other, on virtual time.

Nodes share one log, as in ``tests.kit.cluster.store``. One of them runs the real engine. At a chosen point of a cycle
it is killed, or it hangs: then it goes on after another node has taken over, tries to commit what it had decided, and
must be fenced. The nodes' clocks are up to a minute apart, and a node may be gone for days.

What fired is read from the commits that the log took: the record of each tick, and the headers of the message that is
in the same commit. What should have fired is what ``naive_cron`` finds minute by minute.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal

from fairlane.adapters.shared.ownership import Ownership
from fairlane.broker.cycle import Cycle
from fairlane.broker.engine.engine import Engine
from fairlane.broker.handlers import submission_of
from fairlane.errors import FairlaneError, StoreFenced
from fairlane.journal.bodies import Chunk
from fairlane.journal.codec import decode
from fairlane.journal.records import Enqueued, ScheduleFired, ScheduleMissed
from fairlane.model.schedules import ScheduleSpec
from fairlane.ports.store import Commit
from fairlane.testing.clock import FakeClock, SeededEntropy
from fairlane.testing.stepped import Pending
from fairlane.verbs.queues import CreateQueue, PurgeQueue
from fairlane.verbs.schedules import SetSchedule
from fairlane.verbs.verb import Request
from tests.kit.cluster.links import Link
from tests.kit.cluster.store import SharedLog, SharedStore
from tests.kit.naive_cron import ticks
from tests.kit.simulation.hooks import SimulatedHooks

DAY_MS: Final = 86_400_000
START_MS: Final = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 1000
ZONES: Final = (
    "UTC",
    "Europe/Berlin",
    "Europe/London",
    "America/New_York",
    "America/Los_Angeles",
    "Asia/Kolkata",
    "Asia/Tokyo",
    "Australia/Lord_Howe",
)
_TIMEOUT_MS: Final = 10_000
_APART_MS: Final = 60_000
Point = Literal["before_write", "before_sync", "after_sync"]
POINTS: Final[tuple[Point, ...]] = ("before_write", "before_sync", "after_sync")


class _Killed(Exception):
    """The node is gone in the middle of a cycle."""


@dataclass(slots=True)
class YearReport:
    """What happened.

    Attributes:
        expected: how many ticks there should have been.
        fired: how many there were.
        wrong: schedules and ticks that fired another number of times than they should have, with that number.
        mislabelled: ticks whose message has other headers.
        missed: ticks that the broker says it missed.
        kills: how often a node was killed at each point of a cycle.
        fenced: how many nodes that hung were fenced when they went on.
    """

    expected: int = 0
    fired: int = 0
    wrong: dict[tuple[str, int], int] = field(default_factory=dict)
    mislabelled: int = 0
    missed: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    fenced: int = 0


class ScheduleYear:
    """Many schedules, nodes that fail, and the books about what fired."""

    def __init__(self, seed: int, *, schedules: int, days: int, failures: int) -> None:
        self.chance = random.Random(seed)
        self.end_ms = START_MS + days * DAY_MS
        self.now_ms = START_MS
        self._seed = seed
        self._failures = sorted(self.chance.uniform(START_MS, self.end_ms) for _ in range(failures))
        self.specs = {f"s{number}": self._spec() for number in range(schedules)}
        self.report = YearReport()
        self._fired: Counter[tuple[str, int]] = Counter()
        self.log = SharedLog(lambda: self.now_ms)
        self.log.on_durable = self._note
        self._nodes = 0
        self._hanging: list[tuple[Engine, Cycle]] = []
        self._open()

    def _spec(self) -> ScheduleSpec:
        draw = self.chance
        minute, hour, zone = draw.randrange(60), draw.randrange(24), draw.choice(ZONES)
        if draw.random() < 0.05:
            every_ms = draw.choice((1, 2, 3, 6, 12, 24, 36)) * 3_600_000
            return self._caught_up(every_ms=every_ms, anchor_ms=draw.randrange(START_MS))
        kinds = {
            f"{minute} {hour} * * *": 62,
            f"{minute} {hour} * * MON-FRI": 14,
            f"{minute} {hour} * * {draw.randrange(7)}": 9,
            f"{minute} {hour} {draw.randrange(1, 32)} * *": 7,
            f"{minute % 30},{minute % 30 + 30} {draw.randrange(1, 4)} * * *": 3,  # where clocks are changed
            f"{minute} * * * *": 2,
            "*/30 1-3 * * *": 1,
            f"{minute} {hour} 1 */2 SUN": 1,
            "*/20 9-17 * * 1-5": 1,
        }
        [cron] = draw.choices(list(kinds), list(kinds.values()))
        return self._caught_up(cron=cron, timezone=zone)

    def _caught_up(self, **when: object) -> ScheduleSpec:
        return ScheduleSpec(catch_up="all", catch_up_max=1_000, until_ms=self.end_ms, **when)  # type: ignore[arg-type] # fields of a spec

    # ----------------------------------------------------------------------------------------------------------- nodes

    def _open(self) -> None:
        """Start another node, which has a clock of its own, on the log."""
        self._nodes += 1
        name = f"node-{self._nodes}"
        apart_ms = self.chance.randint(-_APART_MS, _APART_MS)
        self._clock = FakeClock(self.now_ms + apart_ms)
        store = SharedStore(
            self.log,
            Link(self.chance),
            ownership=Ownership(owner=name, heartbeat_timeout_ms=_TIMEOUT_MS, sends_heartbeats=False),
            name=name,
            monotonic=lambda clock=self._clock: clock.monotonic_ms() / 1_000,  # type: ignore[misc] # the clock of this one
        )
        self.engine = Engine(
            store, hooks=SimulatedHooks(), clock=self._clock, entropy=SeededEntropy(self._seed), carry_floor=2_000
        )
        self.engine.open()

    def _pass(self, ms: int) -> None:
        self.now_ms += ms
        self._clock.advance(ms)

    def _cycle(self, fails_at: Point | None = None, *, hangs: bool = False) -> None:
        cycle = self.engine.begin()
        self._fail(cycle, "before_write", fails_at, hangs=hangs)
        if cycle.records:
            self.engine.write(cycle)
            self._fail(cycle, "before_sync", fails_at, hangs=hangs)
            self.engine.sync()
        self._fail(cycle, "after_sync", fails_at, hangs=hangs)
        self.engine.finish(cycle)

    def _fail(self, cycle: Cycle, point: Point, fails_at: Point | None, *, hangs: bool) -> None:
        if fails_at == point:
            self.report.kills[f"{point}{' hung' if hangs else ''}"] += 1
            if hangs and cycle.records and point != "after_sync":
                if point == "before_write":
                    self.engine.write(cycle)
                self._hanging.append((self.engine, cycle))
            raise _Killed

    def _go_on(self) -> None:
        """Continue the nodes that hung while another took over: what they had decided must not be committed."""
        for engine, cycle in self._hanging:
            try:
                engine.sync()
            except StoreFenced as error:
                engine.fail(cycle, error)
                self.report.fenced += 1
        self._hanging.clear()

    # ----------------------------------------------------------------------------------------------------------- a run

    def run(self) -> YearReport:
        """Run to the end, and compare."""
        self._ask(CreateQueue(queue="q"))
        for name, spec in self.specs.items():
            self._ask(SetSchedule(queue="q", name=name, spec=spec))
        purge_ms = self.now_ms + DAY_MS
        # The clocks are apart, and time is slewed by at most a tenth: an hour more is enough for the last tick.
        while self.now_ms < self.end_ms + 3_600_000:
            at_ms = self.engine.next_event_at()
            wait_ms = DAY_MS if at_ms is None else max(0, at_ms - self.engine.now_ms())
            self._pass(min(wait_ms, max(0, self.end_ms + 3_600_000 - self.now_ms)))
            if self._failures and self.now_ms >= self._failures[0]:
                del self._failures[0]
                self._fail_over()
            elif self.now_ms >= purge_ms:
                purge_ms = self.now_ms + DAY_MS
                self._ask(PurgeQueue(queue="q"))
            else:
                self._cycle()
        return self._judged()

    def _fail_over(self) -> None:
        draw = self.chance
        try:
            self._cycle(draw.choice(POINTS), hangs=draw.random() < 0.5)
        except _Killed:
            self._pass(_TIMEOUT_MS + round(draw.choice((1_000, 60_000, 3_600_000, 30_000_000)) * draw.random()))
            self._open()
            self._cycle()
            self._go_on()

    def _ask(self, request: Request[object]) -> None:
        pending: Pending[object] = Pending()
        self.engine.submit(submission_of(self.engine, request, pending))
        while not pending.done():
            self._cycle()
        if isinstance(pending._error, FairlaneError):
            raise pending._error

    # ----------------------------------------------------------------------------------------------------------- books

    def _note(self, commit: Commit) -> None:
        records = decode(commit.page).records
        bodies = dict(commit.bodies)
        enqueued = {record.sequence: record for record in records if isinstance(record, Enqueued)}
        for record in records:
            if isinstance(record, ScheduleFired):
                self._fired[record.name, record.tick_ms] += 1
                headers = Chunk(bodies[enqueued[record.number].sequence]).body(0)[0]
                tick = datetime.fromtimestamp(record.tick_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
                said = (headers["fairlane-schedule"], headers["fairlane-scheduled-at"])
                if said != (record.name, tick) and record.tick_ms % 1_000 == 0:
                    self.report.mislabelled += 1
            elif isinstance(record, ScheduleMissed):
                self.report.missed += record.missed

    def _judged(self) -> YearReport:
        expected = Counter((name, at_ms) for name, spec in self.specs.items() for at_ms in self._ticks(spec))
        self.report.expected = len(expected)
        self.report.fired = self._fired.total()
        every = expected.keys() | self._fired.keys()
        self.report.wrong = {each: self._fired[each] for each in every if self._fired[each] != expected[each]}
        return self.report

    def _ticks(self, spec: ScheduleSpec) -> list[int]:
        if spec.cron is not None:
            return ticks(spec.cron, spec.timezone, self._first_ms, self.end_ms)
        every_ms = spec.every_ms or 0
        first = self._first_ms + 1
        while (first - spec.anchor_ms) % every_ms:
            first += every_ms - (first - spec.anchor_ms) % every_ms
        return list(range(first, self.end_ms + 1, every_ms))

    @property
    def _first_ms(self) -> int:
        """When the schedules were set, by the clock of the node that did."""
        return min(schedule.created_ms for schedule in self.engine.ledger.queues["q"].schedules.values())
