"""A throttle that kernels share, against what each would get from a throttle of its own, worked out in fractions."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.scheduler.buckets import Throttles
from fairlane.scheduler.item import Item
from fairlane.scheduler.kernel import Kernel

_RATES = st.sampled_from([3, 20, 70, 250])
_WEIGHTS = st.lists(st.integers(1, 6), min_size=2, max_size=4)
_STEPS_MS = st.lists(st.integers(1, 60), min_size=10, max_size=40)


@dataclass
class OwnThrottle:
    """The throttle that a queue would have if nobody shared it: a part of the rate, and a part of the burst."""

    rate: Fraction
    burst: Fraction
    level: Fraction = Fraction(0)

    def pass_time(self, ms: int) -> None:
        """Earn tokens."""
        self.level = min(self.burst, self.level + self.rate * ms / 1000)

    def take(self, count: int) -> int:
        """Take up to ``count`` whole tokens."""
        taken = min(count, int(self.level))
        self.level -= taken
        return taken


class Sharing:
    """Kernels with endless work for one throttle, which begins empty."""

    def __init__(self, weights: list[int], rate: float, burst: float) -> None:
        self.throttles = Throttles()
        self.throttles.set("api", rate=rate, burst=burst, tokens=0, now_ms=0)
        self.kernels: list[Kernel[Item]] = []
        self.got = [0] * len(weights)
        self.now_ms = 0
        for at, weight in enumerate(weights):
            self.throttles.set_weight("api", str(at), weight, now_ms=0)
            self.kernels.append(Kernel(throttles=self.throttles, name=str(at)))
            self.fill(at)
            assert self.kernels[at].take(1, 0) == []

    def fill(self, at: int) -> None:
        """Give a kernel work for the time being."""
        kernel = self.kernels[at]
        kernel.offer_many([Item("key", throttles=["api"]) for _ in range(90 - len(kernel))], self.now_ms)

    def empty(self, at: int) -> None:
        """Take the work of a kernel away."""
        for item in self.kernels[at].waiting_items():
            self.kernels[at].cancel(item, self.now_ms)

    def serve(self, counts: dict[int, int]) -> None:
        """Take up to ``counts`` messages, first from the kernel that has had least."""
        for at in counts:
            self.kernels[at].reap(self.now_ms)
        order = sorted(counts, key=lambda at: self.kernels[at].standing() or 0)
        for at in order:
            self.got[at] += len(self.kernels[at].take(counts[at], self.now_ms))
            self.fill(at)


@given(_WEIGHTS, _RATES, st.sampled_from([1, 1.5, 2, 3, 10, 40]), _STEPS_MS, st.data())
def test_kernels_that_always_ask_share_with_the_precision_of_keys(
    weights: list[int], rate: float, burst: float, steps_ms: list[int], data: st.DataObject
) -> None:
    """Two kernels differ, by weight, by at most what two keys of one queue may, while a third comes and goes.

    They ask whenever a token is earned, as kernels that wait for one do; the next test is about those that ask rarely.
    """
    sharing = Sharing([*weights, 1], rate, burst)
    asking = range(len(weights))
    longest_ms = int(1000 / rate)
    for step_ms in steps_ms:
        sharing.now_ms += min(step_ms, longest_ms)
        if data.draw(st.booleans()):
            (sharing.fill if data.draw(st.booleans()) else sharing.empty)(len(weights))
        sharing.serve(dict.fromkeys([*asking, *([len(weights)] if data.draw(st.booleans()) else [])], 90))
        for one in asking:
            for other in asking:
                difference = Fraction(sharing.got[one], weights[one]) - Fraction(sharing.got[other], weights[other])
                assert abs(difference) <= 1 + Fraction(1, weights[one]) + Fraction(1, weights[other])


@pytest.mark.parametrize("is_idle", [False, True])
@pytest.mark.parametrize(
    ("weights", "burst"), [([1, 1, 1], 10), ([3, 2, 2], 10), ([2, 4, 4], 10), ([1, 1, 5], 3), ([1, 1], 10)]
)
def test_kernels_that_ask_rarely_share_what_the_bucket_holds(weights: list[int], burst: int, *, is_idle: bool) -> None:
    """What no part of the burst has room for is divided, too, whether or not another kernel has consumers."""
    sharing = Sharing([*weights, 1], 250, burst)
    asking = [*range(len(weights)), *([] if is_idle else [len(weights)])]
    for _ in range(300):
        sharing.now_ms += 50
        sharing.serve(dict.fromkeys(asking, 90))
    shares = [got / weight for got, weight in zip(sharing.got, weights, strict=False)]
    assert max(shares) <= 1.1 * min(shares)


@given(_WEIGHTS, _RATES, st.integers(1, 6), _STEPS_MS, st.data())
def test_a_kernel_gets_what_a_throttle_of_its_own_would_give_it(
    weights: list[int], rate: float, parts: int, steps_ms: list[int], data: st.DataObject
) -> None:
    """Whenever consumers come, and however few: nobody gets less than from its own part of rate and burst."""
    total = sum(weights)
    sharing = Sharing(weights, rate, parts * total + 1)
    own = [OwnThrottle(rate=Fraction(rate) * weight / total, burst=Fraction(parts * weight)) for weight in weights]
    entitled = [0] * len(weights)
    for step_ms in steps_ms:
        sharing.now_ms += step_ms
        counts = {at: data.draw(st.integers(0, 4)) for at in range(len(weights))}
        sharing.serve(counts)
        for at, throttle in enumerate(own):
            throttle.pass_time(step_ms)
            entitled[at] += throttle.take(counts[at])
            assert sharing.got[at] >= entitled[at] - 2


@given(_WEIGHTS, _RATES, st.sampled_from([1, 2, 3, 10, 40]), _STEPS_MS, st.data())
def test_whoever_asks_gets_the_whole_rate(
    weights: list[int], rate: int, burst: int, steps_ms: list[int], data: st.DataObject
) -> None:
    """One kernel always asks and the others hardly ever: it gets the whole rate, and leaves them parts of the burst."""
    sharing = Sharing(weights, rate, burst)
    kept = sum(max(1, burst * weight // sum(weights)) for weight in weights[1:])
    alone = OwnThrottle(rate=Fraction(rate), burst=Fraction(max(1, burst - kept)))
    earned = 0
    for step_ms in steps_ms:
        sharing.now_ms += step_ms
        others = {at: 1 for at in range(1, len(weights)) if data.draw(st.integers(0, 9)) == 0}
        sharing.serve({0: 90} | others)
        alone.pass_time(step_ms)
        earned += alone.take(90)
        assert earned - burst <= sum(sharing.got) <= Fraction(rate) * sharing.now_ms / 1000


@pytest.mark.parametrize(("before", "weight"), [(1, 100), (100, 1), (3, 7)])
def test_a_new_weight_counts_from_the_first_token_that_is_dealt_by_it(before: int, weight: int) -> None:
    """What a kernel held under its old weight, and gives back when the rate is set, neither costs nor gains a turn."""
    sharing = Sharing([before, 1], rate=20, burst=41)
    sharing.throttles.set("api", rate=20, burst=41, tokens=41, now_ms=0)
    sharing.throttles.set_weight("api", "0", weight, now_ms=0)
    sharing.throttles.set("api", rate=20, burst=41, tokens=0, now_ms=0)
    for _ in range(weight + 1):
        sharing.now_ms += 50
        sharing.serve({0: 90, 1: 90})
    assert abs(Fraction(sharing.got[0], weight) - sharing.got[1]) <= 1 + Fraction(1, weight)


@pytest.mark.parametrize("burst", [10, 40])
def test_what_a_kernel_gives_back_is_divided(burst: int) -> None:
    """Tokens that waited for a kernel whose items are gone go to the others in equal parts, not to the first to ask."""
    sharing = Sharing([1, 1, 1], 250, burst)
    sharing.now_ms = burst * 4
    sharing.empty(2)
    sharing.serve({0: 90, 1: 90})
    assert abs(sharing.got[0] - sharing.got[1]) <= 1
    assert sum(sharing.got) == burst
