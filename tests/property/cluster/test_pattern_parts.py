"""Patterns of throttles over groups: whatever moves between groups, no name gets more than the pattern says."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from fairlane.cluster.budgets import config_of
from fairlane.cluster.entries import Share
from fairlane.core.config_patterns import ConfigPatterns
from fairlane.core.throttling import ThrottleConfig, throttle_names
from fairlane.scheduler import Throttles
from fairlane.scheduler.compiled import Life

PATTERN, RATE, BURST = "tenant-*", 10, 8
TOTAL = Share(rate=RATE * 1_000_000, burst=BURST)


class Group:
    """The engine of a group, as far as throttles go. It forgets a name as soon as nothing waits for it."""

    def __init__(self) -> None:
        self.config: dict[str, str] = {}
        self.patterns = ConfigPatterns(self.config)
        self.limits = ThrottleConfig(self.config, self.patterns)
        self.throttles = Throttles()
        self.life = Life()
        self.limits.begin(self.throttles, now_ms=0, tokens=0)

    def apply(self, share: Share, now_ms: int) -> None:
        """Give the group another part, one config value after the other."""
        for key, value in config_of(PATTERN, share).items():
            self.config[key] = value
            self.patterns.follow(key, value)
            for name in throttle_names((key,)):
                self.limits.follow(self.throttles, name, now_ms=now_ms)

    def take(self, name: str, now_ms: int) -> int:
        """Take all tokens of a name, and return how many there were."""
        portion = self.throttles.join(name, "q", self.life, now_ms)
        count = 0
        while portion.has_token(now_ms):
            portion.take(1)
            count += 1
        self.throttles.leave(portion, now_ms)
        return count


steps = st.lists(
    st.tuples(
        st.integers(0, 2_000),  # milliseconds that pass
        st.sampled_from(["tenant-a", "tenant-a", "tenant-b", ""]),  # whose tokens are taken; or else parts move
        st.integers(0, 1),
        st.integers(0, RATE),
        st.integers(0, BURST),
    ),
    max_size=40,
)


@example([(0, "", 0, 10, 8), (1_000, "tenant-a", 0, 0, 0), (0, "", 1, 10, 8), (0, "tenant-a", 1, 0, 0)])
@given(steps)
def test_no_name_gets_more_than_rate_and_burst_over_all_groups(
    steps: list[tuple[int, str, int, int, int]],
) -> None:
    """Two groups whose parts move to and fro, one lowered before the other is raised, keep within the whole."""
    groups, parts, now_ms = (Group(), Group()), [Share(0, 0), Share(0, 0)], 0
    for group in groups:
        group.apply(Share(0, 0), 0)
    taken: list[tuple[int, int]] = []
    for passed_ms, name, at, rate, burst in steps:
        now_ms += passed_ms
        if name:
            count = groups[at].take(name, now_ms)
            taken += [(now_ms, count)] if name == "tenant-a" else []
            continue
        wanted = [Share(0, 0), Share(0, 0)]
        wanted[at] = Share(rate * 1_000_000, burst)
        wanted[1 - at] = Share(TOTAL.rate - rate * 1_000_000, BURST - burst)
        lowered = [Share(min(a.rate, b.rate), min(a.burst, b.burst)) for a, b in zip(parts, wanted, strict=True)]
        for targets in (lowered, wanted):
            for group, share in zip(groups, targets, strict=True):
                group.apply(share, now_ms)
        parts = wanted
    for first, (begin_ms, _) in enumerate(taken):
        count = 0
        for end_ms, more in taken[first:]:
            count += more
            assert count * 1_000 <= RATE * (end_ms - begin_ms) + BURST * 1_000
