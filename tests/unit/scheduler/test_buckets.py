"""Token buckets are exact to the millisecond."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from fairlane.scheduler import Throttles
from fairlane.scheduler.compiled import Life
from fairlane.scheduler.token_bucket import Limit


def test_a_new_throttle_starts_full_and_refills_at_its_rate() -> None:
    """A burst of 3 gives 3 tokens at once, then one every 100 ms at 10 per second."""
    throttles = Throttles()
    throttles.set("t", rate=10, burst=3, now_ms=0)
    bucket = throttles.get("t")
    assert bucket is not None
    assert bucket.tokens(0) == 3
    bucket.take(3)
    assert not bucket.has_token(99)
    assert bucket.token_at(99) == 100
    assert bucket.has_token(100)


def test_a_bucket_never_holds_more_than_its_burst() -> None:
    """A long idle period earns no more than the burst."""
    throttles = Throttles()
    throttles.set("t", rate=1000, burst=2, tokens=0, now_ms=0)
    bucket = throttles.get("t")
    assert bucket is not None
    assert bucket.tokens(10**12) == 2


def test_a_rate_of_zero_gives_no_token_ever() -> None:
    """Only the tokens already in the bucket can be spent."""
    throttles = Throttles()
    throttles.set("t", rate=0, burst=1, now_ms=0)
    bucket = throttles.get("t")
    assert bucket is not None
    bucket.take()
    assert bucket.token_at(10**9) is None


def test_a_burst_of_zero_closes_a_throttle_and_leaves_no_token_behind() -> None:
    """Nothing passes while the burst is 0, at any rate; a bucket that is opened again starts without a token."""
    throttles = Throttles()
    throttles.set("t", rate=10, burst=5, now_ms=0)
    throttles.set("t", rate=10, burst=0, now_ms=0)
    bucket = throttles.get("t")
    assert bucket is not None
    assert bucket.token_at(10**9) is None
    throttles.set("t", rate=10, burst=5, now_ms=10**9)
    assert bucket.token_at(10**9) == 10**9 + 100
    throttles.set("new", rate=0, burst=0, now_ms=0)
    new = throttles.get("new")
    assert new is not None
    assert new.tokens(0) == 0


@pytest.mark.parametrize(
    ("limits", "tokens"),
    [
        ([(10, 2), (10, 8)], [2, 7, 8]),  # a higher burst is earned
        ([(10, 2), (0, 0), (10, 8)], [0, 5, 8]),  # a limit that was closed for a while begins empty
        ([(10, 8), (10, 2)], [2, 2, 2]),
        ([(1, 2), (1, 8), (10, 8)], [2, 7, 8]),
    ],
)
def test_a_bucket_that_is_made_after_a_change_has_what_it_would_have_kept(
    limits: list[tuple[float, float]], tokens: list[int]
) -> None:
    """A name that nothing uses is forgotten, and gets no tokens by that when the limit of its family changes."""
    throttles, family = Throttles(), "t*"
    given = [Limit(rate, burst, family=family) for rate, burst in limits]
    for before, after in pairwise(given):
        throttles.change_family(family, before, after, now_ms=1_000)
    throttles.set_provider(lambda _name: given[-1], now_ms=1_000)
    owner = Life()
    portion = throttles.join("t1", "q", owner, 1_000)
    assert [portion.bucket.tokens(1_000 + ms) for ms in (0, 500, 1_000)] == tokens


def test_changing_a_rate_keeps_the_tokens_up_to_the_new_burst() -> None:
    """Tokens earned at the old rate stay, up to the new burst."""
    throttles = Throttles()
    throttles.set("t", rate=10, burst=10, tokens=4, now_ms=0)
    throttles.set("t", rate=20, burst=5, now_ms=50)
    bucket = throttles.get("t")
    assert bucket is not None
    assert bucket.tokens(50) == 4
    assert bucket.tokens(75) == 5


def test_without_a_burst_a_second_of_tokens_is_held() -> None:
    """The default burst is the tokens of one second, and at least one token."""
    throttles = Throttles()
    throttles.set("fast", rate=50, now_ms=0)
    throttles.set("slow", rate=0.1, now_ms=0)
    fast, slow = throttles.get("fast"), throttles.get("slow")
    assert fast is not None
    assert slow is not None
    assert (fast.tokens(0), slow.tokens(0)) == (50, 1)
    slow.take()
    assert slow.token_at(0) == 10_000


@pytest.mark.parametrize("numbers", [{"rate": -1}, {"rate": math.inf}, {"rate": 1, "burst": 0.5}, {"rate": math.nan}])
def test_invalid_numbers_are_refused(numbers: dict[str, float]) -> None:
    """Rates must be finite and not negative, and a burst below one token would let nothing pass."""
    with pytest.raises(ValueError, match="throttle 't'"):
        Throttles().set("t", now_ms=0, **numbers)  # type: ignore[arg-type] # numbers only


def test_a_rounded_rate_is_never_faster_than_configured() -> None:
    """A rate finer than the bucket's steps is rounded down: 1.5 tokens in 10**6 s let at most one item through."""
    throttles = Throttles()
    throttles.set("t", rate=1.5e-6, burst=5, tokens=0, now_ms=0)
    bucket = throttles.get("t")
    assert bucket is not None
    assert bucket.tokens(1_000_000_000) <= 1
