"""Throttles that span groups: the parts never add up to more than the whole, whoever stops wherever."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fairlane.cluster.budgets import (
    NOTHING,
    aim,
    config_of,
    owner_step,
    share_in,
    split,
    steward_step,
    totals,
    turn_at,
)
from fairlane.cluster.entries import Budget, Share
from fairlane.scheduler import Throttles
from tests.property.scheduler.oracle import Demand, max_min

GROUPS = ("ink", "jam", "kit")
shares = st.builds(Share, rate=st.integers(0, 40), burst=st.integers(0, 8))


@dataclass
class Journal:
    """What is durable of a group, and which of its owners may still write to it."""

    share: Share = NOTHING
    opening: int = 0
    epoch: int = 0


@dataclass
class Owner:
    """A process that has, or believes to have, a group open, and what it has read of the board."""

    group: str
    epoch: int
    opening: int
    applied: Share
    read: tuple[Budget | None, int] | None = None


@dataclass
class Sent:
    """A change of the board that is on its way."""

    budget: Budget
    version: int


@dataclass
class World:
    total: Share = field(default_factory=lambda: Share(30, 6))
    budget: Budget | None = None
    version: int = 0
    journals: dict[str, Journal] = field(default_factory=lambda: {group: Journal() for group in GROUPS})

    def put(self, sent: Sent) -> bool:
        if sent.version != self.version:
            return False
        self.budget, self.version = sent.budget, self.version + 1
        return True

    def granted(self) -> Share:
        return added([] if self.budget is None else list(self.budget.granted.values()))


def added(parts: list[Share]) -> Share:
    return Share(sum(part.rate for part in parts), sum(part.burst for part in parts))


def larger(one: Share, other: Share) -> Share:
    return Share(max(one.rate, other.rate), max(one.burst, other.burst))


def is_within(one: Share, other: Share) -> bool:
    return one.rate <= other.rate and one.burst <= other.burst


class Interleaving:
    """Owners and stewards that take their steps in any order, stop, are taken over from, and wake up again.

    A step on the board and a step in an engine are never one, what is sent to the board may arrive late or not at all,
    and who was taken over from learns it only when it writes to its journal.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.world = World()
        self.owners: list[Owner] = []
        self.on_the_way: list[Sent] = []
        self.stewards_read: tuple[Budget | None, int] | None = None
        self.allowed = self.world.total
        self.demand: dict[str, int] = {}

    def step(self) -> None:
        steps = {
            self.open_group: 0.5,
            self.owner_reads: 8,
            self.owner_steps: 8,
            self.something_arrives_late: 2,
            self.steward_reads: 5,
            self.steward_steps: 5,
            self.demand_changes: 3,
            self.somebody_changes_the_throttle: 0.05,
        }
        self.chance.choices(list(steps), list(steps.values()))[0]()
        self.check()

    # --------------------------------------------------------------------------------------------------------- owners

    def open_group(self) -> None:
        """Another process takes a group over; its number is one more than the journal has."""
        group = self.chance.choice(GROUPS)
        journal = self.world.journals[group]
        journal.epoch += 1
        journal.opening += 1
        self.owners.append(Owner(group, journal.epoch, journal.opening, journal.share))

    def owner_reads(self) -> None:
        if self.owners:
            self.chance.choice(self.owners[-4:]).read = (self.world.budget, self.world.version)

    def owner_steps(self) -> None:
        """An owner does what it has to, by what it read, however long ago that was."""
        ready = [owner for owner in self.owners[-4:] if owner.read is not None]
        if not ready:
            return
        owner = self.chance.choice(ready)
        budget, version = owner.read or (None, 0)
        step = owner_step(budget, owner.group, opening=owner.opening, applied=owner.applied)
        if step.apply is not None:
            self._apply(owner, step.apply)
        elif step.put is not None:
            owner.read = None
            self._send(Sent(step.put, version))

    def _apply(self, owner: Owner, share: Share) -> None:
        journal = self.world.journals[owner.group]
        if journal.epoch != owner.epoch:
            self.owners.remove(owner)  # it is fenced, and knows it now
            return
        journal.share = owner.applied = share

    def _send(self, sent: Sent) -> None:
        luck = self.chance.random()
        if luck < 0.2:
            self.on_the_way.append(sent)
        elif luck < 0.9:
            self.world.put(sent)

    def something_arrives_late(self) -> None:
        if self.on_the_way:
            self.world.put(self.on_the_way.pop(self.chance.randrange(len(self.on_the_way))))

    # ------------------------------------------------------------------------------------------------------- stewards

    def steward_reads(self) -> None:
        self.stewards_read = (self.world.budget, self.world.version)

    def steward_steps(self) -> None:
        if self.stewards_read is None:
            return
        (budget, version), self.stewards_read = self.stewards_read, None
        turn = self.chance.randrange(4)
        fresh = steward_step(budget, self.world.total, groups=GROUPS, demand=self.demand, turn=turn)
        if fresh is not None:
            assert fresh != budget
            self._send(Sent(fresh, version))

    def demand_changes(self) -> None:
        self.demand = {group: self.chance.choice((0, 0, 0, 1, 9)) for group in GROUPS}

    def somebody_changes_the_throttle(self) -> None:
        """What stewards do who knew the old one still counts; those that come know the new one."""
        total = Share(self.chance.randrange(40), self.chance.randrange(8))
        self.allowed = larger(larger(total, self.world.total), self.world.granted())
        self.world.total = total
        self.on_the_way.clear()
        self.stewards_read = None

    # ---------------------------------------------------------------------------------------------------------- truth

    def check(self) -> None:
        """What engines may use is within what was granted, and that within what the throttle has, or had by then."""
        used = added([journal.share for journal in self.world.journals.values()])
        assert is_within(used, self.allowed), (used, self.allowed)
        assert is_within(self.world.granted(), self.allowed)
        self.allowed = larger(self.world.total, self.world.granted())
        granted = {} if self.world.budget is None else self.world.budget.granted
        for group, journal in self.world.journals.items():
            assert is_within(journal.share, granted.get(group, NOTHING)), (group, journal.share, granted)


@pytest.mark.parametrize("seed", range(40))
def test_the_parts_fit_into_the_whole_whatever_happens(seed: int) -> None:
    """In no order of steps, with owners dying and waking up anywhere, may engines use more than the throttle has."""
    interleaving = Interleaving(seed)
    for _ in range(2500):
        interleaving.step()
    assert interleaving.world.version > 20  # something has happened


def settle(world: World, demand: dict[str, int], *, turn: int = 0) -> int:
    """Run every node until none has a step left, and return the number of rounds."""
    for count in range(1, 50):
        before = (world.version, [journal.share for journal in world.journals.values()])
        fresh = steward_step(world.budget, world.total, groups=list(world.journals), demand=demand, turn=turn)
        if fresh is not None:
            assert world.put(Sent(fresh, world.version))
        for group, journal in world.journals.items():
            step = owner_step(world.budget, group, opening=journal.opening, applied=journal.share)
            if step.apply is not None:
                journal.share = step.apply
            elif step.put is not None:
                assert world.put(Sent(step.put, world.version))
        if before == (world.version, [journal.share for journal in world.journals.values()]):
            return count
    raise AssertionError("they never settle")


def opened(count: int, total: Share) -> World:
    names = [f"g{at:02}" for at in range(count)]
    return World(total=total, journals={name: Journal(opening=1, epoch=1) for name in names})


@given(st.integers(1, 12), shares, st.lists(st.integers(0, 50), min_size=12, max_size=12), st.integers(0, 20))
def test_with_steady_demand_all_of_it_is_used_and_everybody_has_what_is_aimed_at(
    count: int, total: Share, wants: list[int], turn: int
) -> None:
    """Soon nothing changes any more; engines have exactly their aims, and those are all there is."""
    world = opened(count, total)
    demand = dict(zip(world.journals, wants, strict=False))
    assert settle(world, demand, turn=turn) <= 8
    has = {group: journal.share for group, journal in world.journals.items()}
    assert has == aim(total, list(world.journals), demand, turn=turn)
    if total.burst > 0:
        assert added(list(has.values())) == total


placements = st.lists(st.lists(st.integers(1, 1000), min_size=1, max_size=4), min_size=1, max_size=6)
"""The weights of the queues that a throttle holds up, by group."""


@given(placements, st.integers(0, 3), st.integers(1, 10**12))
def test_a_queue_gets_its_part_by_weight_wherever_it_is(placed: list[list[int]], idle: int, rate: int) -> None:
    """Each queue has what an oracle gives it that knows no groups, but for rounding and what is kept for idle ones."""
    groups = {f"g{at}": weights for at, weights in enumerate(placed)}
    oracle = max_min(
        Fraction(rate),
        {f"{group} {at}": Demand(each) for group, all_ in groups.items() for at, each in enumerate(all_)},
    )
    idle_groups = [f"idle{at}" for at in range(idle)]
    shares = aim(Share(rate, 100), [*groups, *idle_groups], {group: sum(all_) for group, all_ in groups.items()})
    kept = sum(shares[group].rate for group in idle_groups)
    for group, weights in groups.items():
        for at, weight in enumerate(weights):
            part = Fraction(shares[group].rate * weight, sum(weights))
            assert abs(part - oracle[f"{group} {at}"] * (rate - kept) / rate) <= 1
    assert kept <= rate / 20


weights = st.lists(st.integers(1, 1000), min_size=2, max_size=8)


@given(weights, weights)
def test_parts_follow_weights_that_change(before: list[int], after: list[int]) -> None:
    """Each part is within a tenth of what the weights are now, however small it is."""
    count = min(len(before), len(after))
    total = Share(1_000_000_000, 100_000)
    world = opened(count, total)
    settle(world, dict(zip(world.journals, before, strict=False)))
    settle(world, dict(zip(world.journals, after, strict=False)))
    whole = sum(after[:count])
    for journal, weight in zip(world.journals.values(), after, strict=False):
        expected = total.rate * weight / whole
        assert abs(journal.share.rate - expected) <= expected / 10 + 1


def test_a_group_that_begins_to_ask_has_its_part_at_once() -> None:
    """Of twenty groups of which ten ask, an eleventh gets as much as they do, though they change by little."""
    world = opened(20, Share(1_000_000, 1_000))
    names = list(world.journals)
    settle(world, dict.fromkeys(names[:10], 1))
    settle(world, dict.fromkeys(names[:11], 1))
    assert world.journals[names[10]].share.rate >= 86_363  # 95 % of it all, by eleven


@given(st.integers(1, 4), st.integers(2, 9))
def test_where_there_are_fewer_tokens_than_groups_they_take_turns(burst: int, count: int) -> None:
    """Of groups with equal weights each is served within as many turns as there are groups; one alone has all."""
    assume(burst < count)
    total = Share(3, burst)
    world = opened(count, total)
    demand = dict.fromkeys(world.journals, 5)
    served: dict[str, int] = dict.fromkeys(world.journals, 0)
    for turn in range(count):
        settle(world, demand, turn=turn)
        for group, journal in world.journals.items():
            served[group] += journal.share.burst
    assert set(served.values()) == {burst}
    last = max(world.journals)
    settle(world, {last: 5})
    assert world.journals[last].share == total


@given(st.integers(1, 4), st.lists(st.integers(1, 9), min_size=2, max_size=6))
def test_turns_are_by_weight(burst: int, weights: list[int]) -> None:
    """In as many turns as the weights add up to, each group has as many tokens and as much rate as its weight."""
    assume(burst < len(weights))
    total = Share(burst * 1_000, burst)
    demand = {f"g{at}": weight for at, weight in enumerate(weights)}
    turns = [aim(total, list(demand), demand, turn=turn) for turn in range(7, 7 + sum(weights))]
    for group, weight in demand.items():
        assert sum(shares[group].burst for shares in turns) == burst * weight
        assert sum(shares[group].rate for shares in turns) == total.rate * weight


@given(
    st.integers(1, 3),
    st.lists(st.integers(1, 4), min_size=2, max_size=5),
    st.sampled_from([10_000, 100_000, 400_000, 3_000_000]),
)
def test_slow_throttles_are_used_in_turns(burst: int, weights: list[int], rate: int) -> None:
    """Turns are long enough to save up tokens: no group gets less than 0.7 of its part, and all no more than there is.

    The buckets are a naive model. Each has what its group is granted, and loses what is above its burst.
    """
    assume(burst < len(weights))
    total = Share(rate, burst)
    demand = {f"g{at}": weight for at, weight in enumerate(weights)}
    turn_s = max(2.0, 5 * burst * 1_000_000 / rate)
    tokens: dict[str, Fraction] = dict.fromkeys(demand, Fraction(0))
    passed = dict.fromkeys(demand, 0)
    turns = 2 * sum(weights)
    for at in range(turns * 100):
        passed_s = Fraction(turn_s) / 100
        shares = aim(total, list(demand), demand, turn=turn_at(total, turn_s * (at + 0.5) / 100))
        for group, share in shares.items():
            tokens[group] = min(Fraction(share.burst), tokens[group] + Fraction(share.rate, 1_000_000) * passed_s)
            passed[group] += int(tokens[group])
            tokens[group] %= 1
    earned = Fraction(rate, 1_000_000) * Fraction(turn_s) * turns
    oracle = max_min(earned, {group: Demand(weight) for group, weight in demand.items()})
    assert sum(passed.values()) <= earned + burst
    assert all(passed[group] >= float(oracle[group]) * 0.7 for group in demand)


@given(st.integers(0, 10**15), st.dictionaries(st.text(max_size=3), st.integers(0, 1000), max_size=9))
def test_a_split_adds_up_and_is_off_by_less_than_one(amount: int, weights: dict[str, int]) -> None:
    """Whole parts that add up to the whole, none further than one from its exact part."""
    parts = split(amount, weights)
    whole = sum(weights.values())
    if whole == 0:
        assert set(parts.values()) <= {0}
        return
    assert sum(parts.values()) == amount
    for name, weight in weights.items():
        assert abs(parts[name] * whole - amount * weight) < whole


@given(st.integers(0, 10**15), st.integers(0, 10**9))
def test_a_share_survives_the_config_of_an_engine(rate: int, burst: int) -> None:
    """What is written to a group's config is read back the same, and its bucket is never faster than that."""
    config = config_of("api", Share(rate, burst))
    assert share_in(config, "api") == Share(rate, burst)
    throttles = Throttles()
    throttles.set("api", rate=float(config["throttle:api:rate"]), burst=float(config["throttle:api:burst"]), now_ms=0)
    bucket = throttles.get("api")
    assert bucket is not None
    assert bucket.rate_steps <= rate


def test_a_dead_owners_part_is_kept_and_its_heir_begins_with_it() -> None:
    """What a dead node was granted nobody else gets; who takes its group over goes on with it at once."""
    world = opened(2, Share(100, 10))
    settle(world, {"g00": 1})
    dead = world.journals["g00"].share
    assert dead.rate >= 95
    world.journals["g01"].share = NOTHING
    fresh = steward_step(world.budget, world.total, groups=list(world.journals), demand={"g01": 9})
    assert fresh is not None
    assert fresh.granted["g00"] == dead
    assert fresh.granted["g01"].rate <= 100 - dead.rate
    world.journals["g00"].opening += 1
    settle(world, {"g01": 9})
    assert world.journals["g01"].share.rate >= 95


def test_a_group_that_is_gone_gives_back_what_it_had() -> None:
    """Once no living node has it open, what a vanished group was granted goes to the others."""
    world = opened(2, Share(100, 10))
    settle(world, {"g00": 1})
    kept = steward_step(world.budget, world.total, groups=["g01"], demand={}, open_groups=["g00"])
    assert kept is not None
    assert kept.granted["g00"] == world.journals["g00"].share
    gone = steward_step(world.budget, world.total, groups=["g01"], demand={})
    assert gone is not None
    assert gone.granted == {"g01": Share(100, 10)}


def test_a_throttle_that_is_not_on_the_board_yet_is_closed() -> None:
    """A group does not let anything through before it was granted something, also where it never knew the throttle."""
    assert owner_step(None, "g", opening=1, applied=None).apply == NOTHING
    budget = Budget(rate=10, burst=10, granted={"g": Share(5, 5)}, wanted={"g": Share(5, 5)})
    assert owner_step(budget, "g", opening=1, applied=None).apply == NOTHING
    told = owner_step(budget, "g", opening=1, applied=NOTHING).put
    assert told is not None
    assert owner_step(told, "g", opening=1, applied=NOTHING).apply == Share(5, 5)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"throttle:api:rate": "2.5"}, {"api": Share(2_500_000, 2)}),
        ({"throttle:api:rate": "0.000001"}, {"api": Share(1, 1)}),
        ({"throttle:a:b:rate": "1e3", "throttle:a:b:burst": "7.9", "weight:q:k": "2"}, {"a:b": Share(10**9, 7)}),
        ({"throttle:api:burst": "5"}, {}),
        ({"throttle:api:rate": "0", "throttle:api:burst": "0"}, {"api": NOTHING}),
    ],
)
def test_throttles_are_read_from_the_config(config: dict[str, str], expected: dict[str, Share]) -> None:
    """Rates are counted in millionths and bursts in whole tokens, never above what is set; a throttle has a rate."""
    assert totals(config) == expected
