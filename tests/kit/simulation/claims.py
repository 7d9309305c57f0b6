"""The simulation's registered consumers: drivers that claim, read, die, return, and fence each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fairlane.broker.waiting.claims import read_claim
from fairlane.errors import FairlaneError
from fairlane.model.claims import Claim, Claimed, ConsumerView
from fairlane.verbs.batches import MakeClaim, ReadClaim, RegisterConsumer, ReleaseConsumer
from tests.kit.auditor.books import violated
from tests.kit.auditor.claims import told_claim, told_claimed
from tests.kit.simulation.answers import Holding
from tests.kit.simulation.holders import Holders

_DRIVERS_MAX = 12


@dataclass(slots=True, eq=False)
class Driver:
    """A driver that registered as a consumer, and its knowledge."""

    queue: str
    name: str
    epoch: int
    claimed: int
    done: int


@dataclass
class Claimants(Holders):
    """Clients that claim."""

    drivers: list[Driver] = field(default_factory=list)

    def register(self) -> None:
        """Register a consumer: a new one, after a crash, or while another works under the same name."""
        draw, world = self.world.workload, self.world
        queue, name = self._any_queue(), draw.one_of("spark", "etl")
        idle_ms = draw.one_of(None, None, draw.span_ms())

        def judge(outcome: Any) -> None:
            world.auditor.told_missing(queue, outcome)
            if isinstance(outcome, ConsumerView):
                if any(outcome.epoch <= driver.epoch for driver in self.drivers):
                    violated(f"an epoch comes again: {outcome}")
                self.drivers.append(Driver(queue, name, outcome.epoch, outcome.claimed, outcome.done))
                del self.drivers[:-_DRIVERS_MAX]

        command = RegisterConsumer(queue=queue, consumer=name, idle_ms=idle_ms)
        self.do(f"register {name} at {queue}, idle {idle_ms}", command, judge)

    def claim(self) -> None:
        """Claim the next batch as a driver, the current one or an old one."""
        if not self.drivers:
            self.register()
            return
        draw, world = self.world.workload, self.world
        driver = draw.chance.choice(self.drivers)
        done = draw.one_of(driver.claimed, driver.claimed, driver.done)
        count, size_bytes = draw.one_of(1, 3, 8, 100), draw.one_of(None, None, 100)

        def judge(outcome: Any) -> None:
            world.auditor.heard[driver.queue, driver.name] = world.now_ms()
            told_claim(world.auditor.books, (driver.queue, driver.name, driver.epoch, done), outcome)
            if isinstance(outcome, FairlaneError) and outcome.code == "invalid_argument":
                violated(f"a claim of {driver} was refused: {outcome!r}")
            if isinstance(outcome, Claim):
                driver.claimed, driver.done = max(outcome.number, driver.claimed), max(done, driver.done)

        command = MakeClaim(
            queue=driver.queue,
            consumer=driver.name,
            epoch=driver.epoch,
            done=done,
            count=count,
            size_bytes=size_bytes,
        )
        self.do(f"claim {count} of {driver.queue} for {driver.name}/{driver.epoch}, done {done}", command, judge)

    def read_claim(self) -> None:
        """Read a part of a claim, and sometimes settle one of its messages."""
        if not self.drivers:
            return
        draw, world = self.world.workload, self.world
        driver = draw.chance.choice(self.drivers)
        queue, name, number = driver.queue, driver.name, driver.claimed
        start, count = draw.one_of(0, 0, 2), draw.one_of(1, 3, 100)
        engine = world.engine

        def ask() -> Claimed:
            engine.schedule.presence.hear(queue, name, engine.now_ms())
            request = ReadClaim(queue=queue, consumer=name, claim=number, start=start, count=count)
            return read_claim(engine.ledger, engine.bodies, request)

        def judge(outcome: Any) -> None:
            world.auditor.heard[queue, name] = world.now_ms()
            told_claimed(world.auditor.books.queues.get(queue), (name, number, start, count), outcome)
            for delivery in outcome.deliveries if isinstance(outcome, Claimed) else ():
                world.auditor.delivered(delivery, with_state=False)
                self.deliveries += 1
                is_held = any(each.delivery.token == delivery.token for each in self.held)  # it was read before
                if draw.happens(0.1) and not is_held:
                    self.held.append(Holding(delivery, delivery.state_etag))

        self.read(f"read claim {number} of {name} of {queue} from {start}, {count}", ask, judge)

    def release_consumer(self) -> None:
        """Remove a consumer as an operator."""
        if self.drivers:
            driver = self.world.workload.chance.choice(self.drivers)
            self.release(driver.queue, driver.name)

    def release(self, queue: str, name: str) -> None:
        """Remove a consumer."""
        label = f"release {name} of {queue}"
        self.do(label, ReleaseConsumer(queue=queue, consumer=name), lambda _outcome: None)
