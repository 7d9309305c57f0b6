"""Who is noisy, live and in the report: an oracle over 200 random mixes, and the classic mistakes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from fairlane.model.message import Key
from fairlane.model.policy import QueuePolicy
from fairlane.model.views import KeyView, QueueView
from fairlane.report.noise import noisy
from fairlane.report.tables import Period, Tables
from fairlane.server.live.snapshot import sample_queue
from fairlane.server.live.windows import HeldBy, KeyWindows
from tests.unit.report.written_tables import share, usage, write

DAY = "2026-03-01"


@dataclass
class Tenant:
    """What one tenant sends each second, and what became of it so far."""

    name: str
    rate: float
    weight: int = 1
    throttle: float | None = None
    waiting_max: int = 10**9
    patience: int = 0
    """For how many seconds a producer waits for capacity before a message counts as refused."""
    is_flooder: bool = False
    at_limit: deque[int] = field(default_factory=deque)
    owed: float = 0.0
    tokens: float = 0.0
    backlog: deque[int] = field(default_factory=deque)
    waits: deque[tuple[int, int]] = field(default_factory=deque)
    arrived: int = 0
    refused: int = 0
    served: int = 0

    def send(self, second: int) -> tuple[int, int]:
        """Return how many messages are enqueued in this second, and how many refused."""
        self.owed += self.rate
        count, self.owed = int(self.owed), self.owed % 1
        self.at_limit.extend([second] * count)
        taken = min(len(self.at_limit), self.waiting_max - len(self.backlog))
        self.backlog.extend([second] * taken)
        self.at_limit = deque(list(self.at_limit)[taken:])
        refused = sum(second - came >= self.patience for came in self.at_limit)
        self.at_limit = deque(list(self.at_limit)[refused:])
        self.arrived += taken
        self.refused += refused
        self.tokens = min(self.tokens + (self.throttle or 0.0), max(1.0, self.throttle or 0.0))
        return taken, refused

    def may_go(self) -> bool:
        return bool(self.backlog) and not self.is_throttled()

    def is_throttled(self) -> bool:
        return self.throttle is not None and self.tokens < 1

    def go(self, second: int) -> None:
        """Hand out the oldest message."""
        self.tokens -= 0 if self.throttle is None else 1
        self.waits.append((second, (second - self.backlog.popleft()) * 1_000))
        self.served += 1

    def view(self, second: int) -> KeyView:
        """Return the tenant as an observer sees it, with the waits of the last minute."""
        while self.waits and self.waits[0][0] < second - 60:
            self.waits.popleft()
        return KeyView(
            key=self.name,
            messages=len(self.backlog),
            leased=0,
            weight=self.weight,
            cap=None,
            deficit=0,
            is_paused=False,
            wait_p99_ms=max((wait for _, wait in self.waits), default=None),
            throttle="slow" if self.backlog and self.is_throttled() else None,
            may_go=self.may_go(),
        )


def serve(tenants: list[Tenant], capacity: int, second: int, first: int) -> tuple[list[Key], int]:
    """Hand out as many messages of each tenant in turns as it has weight, and return whose they were."""
    names: list[Key] = []
    idle = 0
    turns = [tenant for tenant in tenants for _ in range(tenant.weight)]
    while len(names) < capacity and idle < len(turns):
        tenant = turns[first % len(turns)]
        first += 1
        if tenant.may_go():
            tenant.go(second)
            names.append(tenant.name)
            idle = 0
        else:
            idle += 1
    return names, first


def played(tenants: list[Tenant], capacity: int, *, seconds: int, watched_from: int) -> list[set[str]]:
    """Run tenants for some seconds, and return who the live view calls noisy at the end, by window.

    Everybody is served fairly, so nobody may be called a victim.
    """
    windows, first = KeyWindows(watched_from * 1_000, random=Random(0)), 0
    for second in range(seconds):
        sent = [(tenant, *tenant.send(second)) for tenant in tenants]
        names, first = serve(tenants, capacity, second, first)
        if second >= watched_from:
            windows.arrive([tenant.name for tenant, count, _ in sent for _ in range(count)], None)
            windows.refuse([(tenant.name, count) for tenant, _, count in sent if count])
            windows.serve(names, [1] * len(names))
            windows.roll(second * 1_000)
            throttled: list[Key] = [each.name for each in tenants if each.is_throttled()]
            windows.hold(dict.fromkeys(throttled, HeldBy("throttle", "slow")), second * 1_000)
            windows.note_ready([each.name for each in tenants if each.may_go()], second * 1_000)
    view = view_of([tenant.view(seconds) for tenant in tenants])
    weights: dict[Key, int] = {tenant.name: tenant.weight for tenant in tenants}
    sample = sample_queue(view, windows, weights.__getitem__, seconds * 1_000)
    assert [window.victims for window in sample.windows] == [[], [], []]
    return [{str(each.key) for each in window.noisy} for window in sample.windows]


def view_of(keys: list[KeyView]) -> QueueView:
    """Return a queue with these keys."""
    return QueueView(
        name="mail",
        policy=QueuePolicy(),
        created_ms=0,
        is_paused=False,
        paused_keys=(),
        waiting=sum(key.messages for key in keys),
        leased=0,
        size=0,
        dead=0,
        oldest_ms=None,
        active_keys=len(keys),
        waiters=0,
        consumers=1,
        keys=tuple(keys),
    )


def mix(random: Random) -> tuple[list[Tenant], int]:
    """Return tenants that send at most 1.3 times their part, some that send far more than is left, and the capacity.

    Their parts go by weight. Some of them are throttled below what they send. In half of the mixes limits refuse what
    is too much, from half of the tenants only after their producers have waited for capacity.
    """
    capacity, count, flooders = random.randint(20, 100), random.randint(4, 40), random.randint(0, 3)
    heaviest, waiting_max = random.choice([1, 5]), random.choice([10**9, random.randint(5, 200)])
    tenants = [
        Tenant(
            f"flood{at}" if at < flooders else f"quiet{at}", 0, random.randint(1, heaviest), is_flooder=at < flooders
        )
        for at in range(count)
    ]
    part = capacity / sum(tenant.weight for tenant in tenants)
    floods, quiet = tenants[:flooders], tenants[flooders:]
    for at, tenant in enumerate(quiet):
        tenant.rate = part * tenant.weight * random.uniform(0.1, 1.3)
        tenant.throttle = tenant.rate * random.uniform(0.3, 2) if at % 5 == 0 else None
    left = max(0.0, capacity - sum(tenant.rate for tenant in quiet)) / max(1, sum(each.weight for each in floods))
    for tenant in floods:
        own = left * tenant.weight
        least = max(2.6 * own, 3 * part * tenant.weight, own + 0.25 * capacity)
        tenant.rate = least * random.uniform(1, 5)
    for tenant in tenants:
        tenant.waiting_max = waiting_max
        tenant.patience = random.choice([0, random.randint(1, 20)])
    random.shuffle(tenants)
    return tenants, capacity


def test_200_random_mixes_have_no_false_accusation_and_no_missed_flood(tmp_path: Path) -> None:
    """Exactly the flooders are named: live in each window, whenever the page was opened, and in the report."""
    expected: dict[str, set[str]] = {}
    shares, usages = [], []
    for seed in range(200):
        random = Random(seed)
        tenants, capacity = mix(random)
        expected[queue := f"q{seed}"] = {tenant.name for tenant in tenants if tenant.is_flooder}
        found = played(tenants, capacity, seconds=90, watched_from=random.choice([0, 20, 60, 82]))
        assert found == [expected[queue]] * len(found), seed
        for each in tenants:
            # The simulation serves fairly, so what a tenant got is what it was entitled to.
            shares.append(share(queue, each.name, 0, each.served, float(each.served), weight=each.weight))
            costs = {"enqueued_cost": each.arrived, "refused_cost": each.refused, "refused": each.refused}
            usages.append(usage(queue, each.name, **costs))
    write(tmp_path, "fairness_keys", DAY, shares)
    write(tmp_path, "tenant_usage", DAY, usages)
    named: dict[str, set[str]] = {queue: set() for queue in expected}
    for row in noisy(Tables(tmp_path, Period())):
        named[str(row[0])].add(str(row[1]))
    assert named == expected


@pytest.mark.parametrize("watched_from", [0, 70])
def test_a_tenant_whose_messages_are_refused_is_noisy(watched_from: int) -> None:
    """Acme sends 300 of 375 messages a second and nine tenths of them are refused: its demand counts, not its queue."""
    tenants = [Tenant(name, 25) for name in ("bakery", "clinic", "museum")] + [Tenant("acme", 300, waiting_max=50)]
    assert played(tenants, 94, seconds=90, watched_from=watched_from) == [{"acme"}] * 3


def test_many_small_tenants_are_never_noisy() -> None:
    """Of 2,044 tenants with two messages each nobody is accused."""
    tenants = [Tenant(f"t{number}", 0, backlog=deque([0, 0])) for number in range(2_044)]
    assert played(tenants, 100, seconds=10, watched_from=0) == [set()] * 3


def test_the_tenant_that_waits_longest_on_its_own_backlog_is_the_noisy_one() -> None:
    """Acme brings a third of all work of twelve tenants and waits longest: it is named, and bakery is not."""
    tenants = [Tenant("acme", 50), *(Tenant(f"t{number}", 9) for number in range(11))]
    assert played(tenants, 100, seconds=90, watched_from=30) == [{"acme"}] * 3


def test_a_burst_from_before_the_page_was_opened_is_noisy() -> None:
    """Two thousand messages that came at once are the demand of the minute that they have waited."""
    tenants = [Tenant("acme", 0, backlog=deque([0] * 2_000)), *(Tenant(f"t{number}", 2) for number in range(4))]
    assert played(tenants, 10, seconds=60, watched_from=50) == [{"acme"}] * 3


def test_a_backlog_of_a_tenant_slightly_above_its_share_is_no_flood() -> None:
    """A quarter too much for ten minutes is a long queue, and still only a quarter too much."""
    tenants = [Tenant("bakery", 25), *(Tenant(f"t{number}", 20) for number in range(4))]
    assert played(tenants, 100, seconds=600, watched_from=585) == [set()] * 3
