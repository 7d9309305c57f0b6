"""Who is noisy: the definition on plain numbers, its three classic mistakes, and an oracle over random mixes."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import pytest

from fairlane.model.noise import KeyLoad, demand, noisy_keys, victims
from fairlane.model.shares import entitlements


def loads(wanted: Mapping[str, float], capacity: float, weights: Mapping[str, int] | None = None) -> dict[str, KeyLoad]:
    """Return the loads of keys that a fair scheduler serves: each gets exactly what it is entitled to."""
    weight = (weights or {}).get
    total = min(capacity, sum(wanted.values()))
    entitled = entitlements(total, dict(wanted.items()), lambda key: weight(str(key), 1))
    parts = entitlements(total, dict.fromkeys(wanted, float("inf")), lambda key: weight(str(key), 1))
    return {
        key: KeyLoad(wanted=amount, served=entitled[key], entitled=entitled[key], part=parts[key])
        for key, amount in wanted.items()
    }


def test_a_tenant_whose_messages_are_refused_is_noisy() -> None:
    """Acme sends 300 of 375 messages a second and nine tenths of them are refused: its demand counts, not its queue."""
    found = loads({"acme": 300, "bakery": 25, "clinic": 25, "museum": 25}, capacity=94)
    assert noisy_keys(found) == ["acme"]


def test_many_small_tenants_are_never_noisy() -> None:
    """Of 2,044 tenants with two messages each nobody is accused, and nobody is a victim."""
    found = loads({f"t{number}": 2 for number in range(2_044)}, capacity=100)
    assert noisy_keys(found) == []
    assert victims(found) == []


def test_the_tenant_that_waits_longest_on_its_own_backlog_is_no_victim() -> None:
    """Acme brings a third of all work of twelve tenants and waits longest: it is noisy, and bakery is not."""
    found = loads({"acme": 500} | {f"t{number}": 91 for number in range(11)}, capacity=1_000)
    assert noisy_keys(found) == ["acme"]
    assert victims(found) == []


def test_refusals_are_not_added_to_a_backlog_from_before_them() -> None:
    """A throttled key with a full queue wants what it brings now, 45; its backlog came at twice the pace of 10."""
    assert demand(arrived=11, served=11, refused=34, waiting=137, waited_ms=68_000, window_ms=10_000) == 45
    assert demand(arrived=0, served=11, refused=0, waiting=137, waited_ms=68_000, window_ms=10_000) > 20


@pytest.mark.parametrize("count", [2, 3, 10, 100])
def test_equal_tenants_are_never_named(count: int) -> None:
    """If all want the same and far too much, there are too few consumers, and nobody is to blame."""
    assert noisy_keys(loads({f"t{number}": 1_000 for number in range(count)}, capacity=100)) == []


def test_weights_entitle() -> None:
    """A tenant with ten times the weight that wants ten times as much as others is not noisy; with weight 1 it is."""
    wanted: dict[str, float] = {"big": 1_000, "a": 100, "b": 100}
    assert noisy_keys(loads(wanted, capacity=300, weights={"big": 10})) == []
    assert noisy_keys(loads(wanted, capacity=300)) == ["big"]


def test_a_key_that_wants_less_than_its_part_is_never_noisy() -> None:
    """A capped key may want twice what it got; as long as that is less than its part, it bothers nobody."""
    found = {
        "capped": KeyLoad(wanted=40, served=10, entitled=10, part=50),
        "free": KeyLoad(wanted=90, served=90, entitled=90, part=50),
    }
    assert noisy_keys(found) == []


def test_nobody_is_noisy_where_nothing_is_served_or_alone() -> None:
    """Without consumers there is no share to exceed, and without others nobody to disturb."""
    nothing = {key: KeyLoad(wanted=wanted, served=0, entitled=0, part=0) for key, wanted in (("a", 900.0), ("b", 1.0))}
    assert noisy_keys(nothing) == []
    assert noisy_keys(loads({"a": 900}, capacity=10)) == []


def test_a_victim_got_less_while_another_got_more() -> None:
    """Only where one key took what another was entitled to is there a victim."""
    unfair = {
        "greedy": KeyLoad(wanted=100, served=80, entitled=50, part=50),
        "poor": KeyLoad(wanted=100, served=20, entitled=50, part=50),
    }
    assert victims(unfair) == ["poor"]
    assert victims({"poor": unfair["poor"]}) == []


def test_200_random_mixes_have_no_false_accusation_and_no_missed_flood() -> None:
    """Quiet tenants want at most their part; flooders want two and a half times what the quiet ones leave, or more."""
    for seed in range(200):
        random = Random(seed)
        capacity, tenants, flooders = random.randint(100, 10_000), random.randint(4, 60), random.randint(0, 3)
        part = capacity / tenants
        quiet = {f"quiet{number}": part * random.uniform(0.1, 1.0) for number in range(tenants - flooders)}
        left = (capacity - sum(quiet.values())) / max(1, flooders)
        floods = {f"flood{number}": left * random.uniform(2.5, 20) for number in range(flooders)}
        assert set(noisy_keys(loads({**quiet, **floods}, capacity))) == set(floods), seed
