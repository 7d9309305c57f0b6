"""The limits of scripts: the broker's settings, and those of a queue's policy."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.adapters.lua.hooks import LuaHooks
from fairlane.broker.settings import Settings
from fairlane.model.hook_limits import HookLimits
from fairlane.model.policy import QueuePolicy, policy_from
from fairlane.testing.stepped import SteppedBroker
from tests.unit.hooks.scripts import GOOD, GOOD_ANSWER, STOPPED_CLOCK, no_config, question

LARGE = """
function on_enqueue(msg)
  local texts = {}
  for number = 1, 40 do texts[number] = ("x"):rep(60000) .. number end
  return { fairness_key = "good" }
end"""
LARGE_AT_THE_TOP = "local texts = {}\nfor n = 1, 40 do texts[n] = ('x'):rep(60000) .. n end\n" + GOOD
BUSY = 'function on_enqueue(msg) for _ = 1, 20000 do end return { fairness_key = "good" } end'
READ_BY_READ_MS = "local now = 0 return function() now = now + 0.001 return now end"
"""A clock that advances by a millisecond each time it is read, which a busy script does every 100 instructions."""
BROKEN = "function on_enqueue(msg) error('oops') end"


def test_a_queue_has_its_own_time() -> None:
    """The same script times out in a queue with the broker's limit, and answers in one with a longer limit."""
    hooks = LuaHooks(no_config, clock=READ_BY_READ_MS)
    hooks.set("short", on_enqueue=BUSY, on_failure=None)
    hooks.set("long", on_enqueue=BUSY, on_failure=None, limits=HookLimits(timeout_ms=5_000))
    assert hooks.on_enqueue("short", [question()], 0) == [None]
    assert hooks.statistics("short", 0).last_fault == "timed out after 10 ms"
    assert hooks.on_enqueue("long", [question()], 0) == [GOOD_ANSWER]


def test_a_queue_has_its_own_memory() -> None:
    """The same script runs out of memory under the broker's limit, and answers under a greater one; so do trials."""
    hooks = LuaHooks(no_config, clock=STOPPED_CLOCK)
    hooks.set("small", on_enqueue=LARGE, on_failure=None)
    hooks.set("large", on_enqueue=LARGE, on_failure=None, limits=HookLimits(memory_bytes_max=8 << 20))
    assert hooks.on_enqueue("small", [question()], 0) == [None]
    assert hooks.statistics("small", 0).last_fault == "used more than 1 MiB"
    assert hooks.on_enqueue("large", [question()], 0) == [GOOD_ANSWER]
    assert hooks.try_on_enqueue("small", LARGE, question()).fault == "used more than 1 MiB"
    assert hooks.try_on_enqueue("large", LARGE, question()).fault is None


def test_a_script_is_checked_under_the_limits_it_gets() -> None:
    """What is fine under the limits of one queue is still refused under those of another."""
    hooks = LuaHooks(no_config, clock=STOPPED_CLOCK)
    generous = HookLimits(memory_bytes_max=8 << 20)
    assert hooks.check(on_enqueue=LARGE_AT_THE_TOP, on_failure=None, limits=generous) is None
    assert hooks.check(on_enqueue=LARGE_AT_THE_TOP, on_failure=None) == "on_enqueue: used more than 1 MiB"


def test_a_queue_has_its_own_breaker() -> None:
    """The policy decides after how many faults scripts are bypassed and for how long, until it is changed back."""
    broker = SteppedBroker()
    broker.create_queue("q", {"on_enqueue": BROKEN, "hook_breaker_threshold": 2, "hook_breaker_cooldown_ms": 1_000})
    for _ in range(3):
        broker.enqueue("q", b"x")
    seen = broker.hook_statistics("q")
    assert (seen.faults, seen.bypassed, seen.is_open, seen.open_by) == (2, 1, True, "faults")
    broker.advance(1_000)
    broker.enqueue("q", b"x")
    assert broker.hook_statistics("q").faults == 3
    broker.update_queue("q", {"hook_breaker_threshold": None})
    for _ in range(2):
        broker.enqueue("q", b"x")
    assert not broker.hook_statistics("q").is_open
    broker.enqueue("q", b"x")
    assert broker.hook_statistics("q").is_open


def test_the_breaker_shows_closed_when_the_cooldown_ends() -> None:
    """An observer of an idle queue sees the breaker close on time, not with the next message."""
    broker = SteppedBroker(settings=Settings(hook_breaker_threshold=1, hook_breaker_cooldown_ms=5_000))
    broker.create_queue("q", {"on_enqueue": BROKEN})
    broker.enqueue("q", b"x")
    broker.advance(4_999)
    seen = broker.hook_statistics("q")
    assert (seen.is_open, seen.open_by, seen.trips) == (True, "faults", 1)
    broker.advance(1)
    seen = broker.hook_statistics("q")
    assert (seen.is_open, seen.open_by, seen.trips) == (False, None, 1)


@pytest.mark.parametrize(
    ("field", "least", "most"),
    [
        ("hook_timeout_ms", 1, 25),
        ("hook_memory_bytes_max", 65_536, 16_777_216),
        ("hook_breaker_threshold", 1, 10_000),
        ("hook_breaker_cooldown_ms", 1_000, 31_622_400_000),
    ],
)
def test_a_policy_bounds_what_scripts_may_use(field: str, least: int, most: int) -> None:
    """No queue may take the time or memory of all others; None means the broker's setting."""
    for fine in (least, most, None):
        assert getattr(policy_from({field: fine}), field) == fine
    for bad in (least - 1, most + 1):
        with pytest.raises(ValueError, match=field):
            policy_from({field: bad})
    assert getattr(QueuePolicy(), field) is None


def test_a_stored_policy_with_a_longer_timeout_is_held_to_the_maximum() -> None:
    """A policy is checked when it is set, not when it is loaded."""
    assert QueuePolicy(hook_timeout_ms=100).hook_limits.timeout_ms == 25


@pytest.mark.parametrize(
    "bad",
    [
        {"hook_timeout_ms": 0},
        {"hook_memory_bytes_max": 65_535},
        {"hook_breaker_threshold": 0},
        {"hook_breaker_share_percent": 101},
    ],
)
def test_a_setting_that_no_script_could_meet_is_refused(bad: dict[str, Any]) -> None:
    """The settings of a broker name the limit that is out of range."""
    with pytest.raises(ValueError, match=next(iter(bad))):
        Settings(**bad)
