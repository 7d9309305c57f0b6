"""Patterns in config against a naive reading of them, and rates of very many tenants."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane.core.config_patterns import ConfigPatterns
from fairlane.core.key_policies import KeyPolicies
from fairlane.core.ledger import Queue
from fairlane.core.throttling import ThrottleConfig
from fairlane.model.message import Key, NewMessage
from fairlane.model.policy import QueuePolicy
from fairlane.testing.stepped import SteppedBroker

pytestmark = pytest.mark.no_cover

names = st.text("ab", min_size=1, max_size=4)
stars = st.builds(lambda prefix: prefix + "*", st.text("ab", max_size=3))
paths = st.one_of(names, st.lists(names, min_size=2, max_size=3).map(tuple))
path_patterns = st.builds(
    lambda above, last: "/".join((*above, last)), st.lists(names, max_size=2), st.one_of(names, stars)
)
numbers = st.integers(0, 99).map(str)


def naive_throttle(config: dict[str, str], name: str, setting: str) -> str | None:
    """Scan all config keys for the one that says most about a throttle."""
    found = []
    for key, value in config.items():
        _, pattern, what = key.split(":")
        if what == setting and pattern == name:
            found.append((1_000, value))
        elif what == setting and pattern.endswith("*") and name.startswith(pattern[:-1]):
            found.append((len(pattern), value))
    return max(found)[1] if found else None


@settings(max_examples=300, deadline=None)
@given(
    config=st.dictionaries(
        st.builds("throttle:{}:{}".format, st.one_of(names, stars), st.sampled_from(["rate", "burst"])),
        st.integers(1, 99).map(str),
        max_size=12,
    ),
    changes=st.lists(st.tuples(st.one_of(names, stars), st.none() | st.integers(1, 99).map(str)), max_size=5),
    name=names,
)
def test_a_throttle_has_the_limit_that_a_scan_finds(
    config: dict[str, str], changes: list[tuple[str, str | None]], name: str
) -> None:
    """For any settings, set at once or one after the other, the index answers like a scan over all config keys."""
    patterns = ConfigPatterns(config)
    known = ThrottleConfig(config, patterns)
    for changed, value in changes:
        key = f"throttle:{changed}:rate"
        config.pop(key, None)
        if value is not None:
            config[key] = value
        patterns.follow(key, value)
    limit = known.limit(name)
    rate, burst = naive_throttle(config, name, "rate"), naive_throttle(config, name, "burst")
    if rate is None:
        assert limit is None
    else:
        assert limit is not None
        assert (limit.rate, limit.burst) == (float(rate), None if burst is None else float(burst))


def naive_cap(config: dict[str, str], caps: dict[str, int], key_cap: int | None, key: Key) -> int | None:
    """Rank everything that is said about the cap of a key, and return the best."""
    path = (key,) if isinstance(key, str) else key
    text = "/".join(path)
    found = [(9, 0, 0, caps[text])] if text in caps else []
    for setting, value in config.items():
        _, queue, pattern = setting.split(":")
        if queue not in ("q", "*"):
            continue
        if pattern == text:
            found.append((10 if queue == "q" else 8, 0, 0, int(value)))
        elif pattern.endswith("*"):
            *above, last = [pattern] if isinstance(key, str) else pattern.split("/")
            if tuple(above) == path[:-1] and path[-1].startswith(last[:-1]):
                found.append((7, len(pattern), queue == "q", int(value)))
    if found:
        return max(found)[3]
    return key_cap if isinstance(key, str) else None


@settings(max_examples=300, deadline=None)
@given(
    config=st.dictionaries(
        st.builds("cap:{}:{}".format, st.sampled_from(["q", "*", "other"]), path_patterns), numbers, max_size=12
    ),
    caps=st.dictionaries(names, st.integers(0, 99), max_size=3),
    key_cap=st.none() | st.integers(0, 99),
    key=paths,
)
def test_a_key_has_the_cap_that_a_scan_finds(
    config: dict[str, str], caps: dict[str, int], key_cap: int | None, key: Key
) -> None:
    """For any settings, a key has the cap that ranking all of them gives."""
    queue = Queue("q", QueuePolicy(caps=caps, key_cap=key_cap), 0)
    policy = KeyPolicies(queue, config, ConfigPatterns(config)).of(key)
    assert (None if policy is None else policy.cap) == naive_cap(config, caps, key_cap, key)


COST = 4
WAYS: dict[str, dict[str, object]] = {
    "pattern": {"throttles_from": ["tenant-{tenant}"]},
    "field": {"key_rate": 10, "key_burst": 3},
    "charge": {"key_rate": 10 * COST, "key_burst": 3 * COST, "key_charge": "cost", "cost_from": "header:cost"},
}


@pytest.mark.parametrize("tenants", [200, pytest.param(5_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("how", WAYS)
def test_every_tenant_reaches_its_rate_and_never_exceeds_it(tenants: int, how: str) -> None:
    """With one setting for all, each of very many tenants gets 95 to 100 % of ten a second, and never more."""
    broker = SteppedBroker()
    rate, burst, seconds = 10, 3, 4
    broker.create_queue("q", WAYS[how] | {"fairness_key_from": "header:tenant"})
    if how == "pattern":
        broker.set_throttle("tenant-*", rate=rate, burst=burst)
    messages = [NewMessage(payload=b"", headers={"tenant": str(at), "cost": str(COST)}) for at in range(tenants)]
    for _ in range(rate * seconds + burst + 5):
        for first in range(0, tenants, 5_000):
            broker.enqueue_many("q", messages[first : first + 5_000])
    served: dict[Key, list[int]] = defaultdict(list)
    begin_ms = broker.clock.now_ms()
    while broker.clock.now_ms() < begin_ms + seconds * 1_000:
        while deliveries := broker.lease("q", 10_000):
            for delivery in deliveries:
                served[delivery.fairness_key].append(broker.clock.now_ms() - begin_ms)
        broker.clock.advance(50)
    counts = Counter(len(instants) for instants in served.values())
    assert len(served) == tenants
    assert min(counts) - burst >= 0.95 * rate * seconds
    for instants in served.values():
        least = 0  # the window that begins at the message with the least difference has the most to spare
        for at, instant_ms in enumerate(instants):
            least = min(least, 1_000 * at - rate * instant_ms)
            assert 1_000 * (at + 1) - rate * instant_ms - least <= 1_000 * burst
