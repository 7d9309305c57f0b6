"""The simulated cluster with a schedule in each queue, and books of which tick fired how often.

The run ends only when every schedule has settled its last tick. Clocks of nodes are up to a minute apart and jump, so a
node that takes over may come to ticks early or late. All late ticks are caught up with, so each must fire once.
"""

from __future__ import annotations

import random
from collections import Counter

from fairlane.broker.handlers import submission_of
from fairlane.journal.codec import decode
from fairlane.journal.records import ScheduleFired, ScheduleMissed
from fairlane.model.message import NewMessage
from fairlane.model.schedules import ScheduleSpec
from fairlane.ports.store import Commit
from fairlane.testing.clock import FakeClock
from fairlane.verbs.schedules import EnsureSchedule, SetSchedule
from tests.kit.auditor.books import violated
from tests.kit.auditor.schedules import ticks
from tests.kit.cluster.clients import QUEUES, Judged
from tests.kit.cluster.simulation import STEPS, ClusterSimulation

NAME = "tick"
_LASTS_MS = 60_000
_EVERY_MS = (1_000, 1_700, 5_000)


class ScheduleClusterSimulation(ClusterSimulation):
    """One run under one seed, with schedules.

    Attributes:
        fired: how often each tick of each queue's schedule fired.
        owners: how many openings of its group enqueued ticks of each queue.
    """

    def __init__(self, seed: int, *, steps: int = STEPS) -> None:
        super().__init__(seed, steps=steps)
        self.fired: Counter[tuple[str, int]] = Counter()
        self.owners: dict[str, set[int]] = {queue: set() for queue in QUEUES}
        draw = random.Random(seed)
        until_ms = FakeClock().now_ms() + _LASTS_MS
        self.specs = {
            queue: ScheduleSpec(
                every_ms=draw.choice(_EVERY_MS),
                anchor_ms=draw.randrange(1_000),
                until_ms=until_ms,
                catch_up="all",
                catch_up_max=1_000,
                message=NewMessage(payload=b"tick of %s" % queue.encode(), fairness_key=draw.choice("xyz")),
            )
            for queue in QUEUES
        }

    def _make_log(self, group: str) -> None:
        super()._make_log(group)
        log = self._logs[group]
        enter = log.on_durable

        def enter_and_count(commit: Commit) -> None:
            enter(commit)
            self._count(commit, log.epoch)

        log.on_durable = enter_and_count

    def _count(self, commit: Commit, epoch: int) -> None:
        for record in decode(commit.page).records:
            if isinstance(record, ScheduleFired):
                self.fired[record.queue, record.tick_ms] += 1
                self.owners[record.queue].add(epoch)
            elif isinstance(record, ScheduleMissed):
                violated(f"{record}, although all ticks are caught up with")

    def _ask_something(self) -> None:
        """Call as other clients do, or set the schedule of a queue, the first time or again."""
        super()._ask_something()
        queue = self.chance.choice(QUEUES)
        place = self._serving(queue)
        if place is not None and queue in self.auditors[place[1].name].books.queues and self._happens(0.1):
            kind = self.chance.choice((SetSchedule, EnsureSchedule))
            request = kind(queue=queue, name=NAME, spec=self.specs[queue])
            engine = place[1].engine
            engine.submit(submission_of(engine, request, Judged(self, lambda _outcome: None)))

    # ---------------------------------------------------------------------------------------------------------- the end

    def _is_done(self) -> bool:
        return super()._is_done() and all(self._due(queue) == [] for queue in QUEUES)

    def _due(self, queue: str) -> list[int]:
        """Return the ticks of a queue's schedule that are not settled."""
        book = self.auditors[self._group_of[queue]].books.queues.get(queue)
        if book is None or NAME not in book.schedules:
            return []
        return ticks(self.specs[queue], book.schedules[NAME].settled_ms, self.specs[queue].until_ms or 0)

    def expected(self) -> Counter[tuple[str, int]]:
        """Return every tick since each schedule was set, once."""
        found: Counter[tuple[str, int]] = Counter()
        for queue, spec in self.specs.items():
            book = self.auditors[self._group_of[queue]].books.queues.get(queue)
            if book is not None and NAME in book.schedules:
                found.update((queue, tick) for tick in ticks(spec, book.schedules[NAME].created_ms, spec.until_ms or 0))
        return found
