"""Scripts are set, checked, tried and counted; a breaker bypasses those that fail; queues are isolated."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.adapters.lua.hooks import LuaHooks
from fairlane.model.answers import EnqueueAnswer, FailureAnswer
from fairlane.ports.hooks import Hooks
from tests.unit.hooks.scripts import (
    GOOD,
    GOOD_ANSWER,
    SEED_ON_ENQUEUE,
    SEED_ON_FAILURE,
    failure,
    hooks_with,
    no_config,
    question,
)

FRAGILE = """
function on_enqueue(msg)
  if msg.headers.bad then error("bad") end
  return { fairness_key = "good" }
end"""
FRAGILE_ON_FAILURE = """
function on_failure(msg)
  if msg.headers.bad then error("bad") end
  return { action = "retry" }
end"""
BAD = question(bad="1")
FINE = question()


def test_lua_hooks_satisfy_the_port() -> None:
    """They can be used wherever ``Hooks`` are expected."""
    hooks: Hooks = LuaHooks(no_config)
    assert hooks.on_enqueue("q", [FINE], 0) is None


@pytest.mark.parametrize(
    "settings",
    [
        {"timeout_ms": 0},
        {"timeout_ms": 1.5},
        {"timeout_ms": True},
        {"memory_bytes_max": 65_535},
        {"breaker_threshold": 0},
        {"breaker_cooldown_ms": -1},
        {"breaker_share_percent": 0},
        {"breaker_window_ms": 0},
    ],
)
def test_a_setting_out_of_range_is_refused(settings: dict[str, Any]) -> None:
    """A limit that is no limit, or that no script could meet, is an error that names the setting."""
    with pytest.raises(ValueError, match=next(iter(settings))):
        LuaHooks(no_config, **settings)


def test_a_queue_may_have_either_script_or_none() -> None:
    """A hook that is not set does not run, and is no fault."""
    hooks = hooks_with(on_enqueue=SEED_ON_ENQUEUE)
    assert hooks.on_enqueue("q", [], 0) == []
    assert hooks.on_enqueue("q", [FINE], 0) is not None
    assert hooks.on_failure("q", failure(), 0) is None
    hooks.set("q", on_enqueue=None, on_failure=SEED_ON_FAILURE)
    assert hooks.on_enqueue("q", [FINE], 0) is None
    assert hooks.on_failure("q", failure(), 0) is not None
    hooks.set("q", on_enqueue=None, on_failure=None)
    assert hooks.on_enqueue("q", [FINE], 0) is None
    assert hooks.on_failure("q", failure(), 0) is None
    assert hooks.statistics("q", 0).faults == 0


def test_check_names_the_script_that_is_wrong() -> None:
    """Both scripts are checked, and neither is set."""
    hooks = LuaHooks(no_config)
    assert hooks.check(on_enqueue=None, on_failure=None) is None
    assert hooks.check(on_enqueue=SEED_ON_ENQUEUE, on_failure=SEED_ON_FAILURE) is None
    assert hooks.check(on_enqueue=SEED_ON_ENQUEUE, on_failure="x =") == (
        "on_failure: line 1: unexpected symbol near <eof>"
    )
    swapped = hooks.check(on_enqueue=SEED_ON_FAILURE, on_failure=None)
    assert swapped == "on_enqueue: the script defines no function on_enqueue"
    assert hooks.on_enqueue("q", [FINE], 0) is None


def test_a_new_script_replaces_the_old_one() -> None:
    """From the next message on the new script answers; the counts continue."""
    hooks = hooks_with(GOOD)
    hooks.on_enqueue("q", [FINE], 0)
    hooks.set("q", on_enqueue='function on_enqueue() return { fairness_key = "new" } end', on_failure=None)
    assert hooks.on_enqueue("q", [FINE], 0) == [EnqueueAnswer(fairness_key="new")]
    assert hooks.statistics("q", 0).calls == 2


def test_a_removed_queue_is_forgotten() -> None:
    """Its scripts and its counts are gone; removing it again does nothing."""
    hooks = hooks_with(GOOD)
    hooks.on_enqueue("q", [FINE], 0)
    hooks.remove("q")
    hooks.remove("q")
    assert hooks.on_enqueue("q", [FINE], 0) is None
    assert hooks.statistics("q", 0).calls == 0


def test_a_fault_costs_one_message_its_answer() -> None:
    """The messages before and after it in the batch are answered."""
    hooks = hooks_with(FRAGILE)
    assert hooks.on_enqueue("q", [FINE, BAD, FINE, BAD, FINE], 0) == [
        GOOD_ANSWER,
        None,
        GOOD_ANSWER,
        None,
        GOOD_ANSWER,
    ]
    counts = hooks.statistics("q", 0)
    assert (counts.calls, counts.faults, counts.bypassed, counts.is_open) == (5, 2, 0, False)
    assert counts.last_fault == "line 3: bad"


def test_three_faults_in_a_row_open_the_breaker() -> None:
    """The rest of the batch and later messages are bypassed until the cooldown is over."""
    hooks = hooks_with(FRAGILE)
    assert hooks.on_enqueue("q", [BAD, BAD, BAD, FINE, FINE], 1_000) == [None] * 5
    counts = hooks.statistics("q", 0)
    assert (counts.calls, counts.faults, counts.bypassed, counts.is_open) == (3, 3, 2, True)
    assert hooks.on_enqueue("q", [FINE], 10_999) == [None]
    assert hooks.statistics("q", 0).bypassed == 3
    assert hooks.on_enqueue("q", [FINE], 11_000) == [GOOD_ANSWER]
    assert not hooks.statistics("q", 0).is_open


def test_an_answer_between_faults_keeps_the_breaker_closed() -> None:
    """Only faults in a row count, across batches."""
    hooks = hooks_with(FRAGILE)
    for _ in range(5):
        hooks.on_enqueue("q", [BAD, BAD], 0)
        assert hooks.on_enqueue("q", [FINE], 0) == [GOOD_ANSWER]
    hooks.on_enqueue("q", [BAD, BAD], 0)
    hooks.on_enqueue("q", [BAD], 0)
    assert hooks.statistics("q", 0).is_open


def test_after_the_cooldown_faults_count_from_zero() -> None:
    """One fault after the cooldown does not open the breaker again; three do."""
    hooks = hooks_with(FRAGILE)
    hooks.on_enqueue("q", [BAD] * 3, 0)
    assert hooks.on_enqueue("q", [BAD, BAD, FINE], 10_000) == [None, None, GOOD_ANSWER]
    hooks.on_enqueue("q", [BAD] * 3, 10_000)
    assert hooks.on_enqueue("q", [FINE], 19_999) == [None]
    assert hooks.on_enqueue("q", [FINE], 20_000) == [GOOD_ANSWER]


def test_both_hooks_of_a_queue_share_its_breaker() -> None:
    """Faults of one and of the other add up, and both are bypassed; another queue's are not."""
    hooks = hooks_with(FRAGILE, FRAGILE_ON_FAILURE)
    hooks.set("other", on_enqueue=FRAGILE, on_failure=None)
    hooks.on_enqueue("q", [BAD, BAD], 0)
    assert hooks.on_failure("q", failure(bad="1"), 0) is None
    assert hooks.on_failure("q", failure(), 0) is None
    assert hooks.on_enqueue("q", [FINE], 0) == [None]
    assert hooks.on_enqueue("other", [FINE], 0) == [GOOD_ANSWER]
    assert hooks.on_failure("q", failure(), 10_000) == FailureAnswer(is_dead=False)


def test_setting_a_script_closes_the_breaker() -> None:
    """An operator who fixes a script need not wait for the cooldown."""
    hooks = hooks_with(FRAGILE)
    hooks.on_enqueue("q", [BAD] * 3, 0)
    hooks.set("q", on_enqueue=GOOD, on_failure=None)
    counts = hooks.statistics("q", 0)
    assert (counts.faults, counts.is_open) == (3, False)
    assert hooks.on_enqueue("q", [BAD], 0) == [GOOD_ANSWER]


def test_an_answer_that_is_not_utf_8_counts_as_a_fault() -> None:
    """Three such answers in a row open the breaker, and the messages after them are bypassed."""
    hooks = hooks_with(r'function on_enqueue(msg) return { fairness_key = msg.headers.ok or "\xff" } end')
    good, bad = question(ok="good"), question()
    assert hooks.on_enqueue("q", [good, bad, good, bad, bad, bad, good], 0) == (
        [GOOD_ANSWER, None, GOOD_ANSWER, None, None, None, None]
    )
    counts = hooks.statistics("q", 0)
    assert (counts.calls, counts.faults, counts.bypassed) == (6, 4, 1)


def test_the_breaker_is_configurable() -> None:
    """Threshold and cooldown are settings."""
    hooks = LuaHooks(no_config, breaker_threshold=1, breaker_cooldown_ms=5)
    hooks.set("q", on_enqueue=FRAGILE, on_failure=None)
    assert hooks.on_enqueue("q", [BAD, FINE], 0) == [None, None]
    assert hooks.on_enqueue("q", [FINE], 5) == [GOOD_ANSWER]


def test_config_is_read_live() -> None:
    """``fairlane.get`` and ``fila.get`` return the current value as text, or nil."""
    values = {"limit": "5", "empty": "", "ä": "€"}
    hooks = LuaHooks(lambda _queue, key: values.get(key))
    script = """
    function on_enqueue(msg)
      local value = fairlane.get(msg.headers.key)
      assert(value == fila.get(msg.headers.key))
      return { fairness_key = value == nil and "nil" or type(value) .. ":" .. value }
    end"""
    hooks.set("q", on_enqueue=script, on_failure=None)

    def read(*keys: str) -> list[object]:
        answers = hooks.on_enqueue("q", [question(key=key) for key in keys], 0)
        return [answer and answer.fairness_key for answer in answers or ()]

    assert read("limit", "none", "empty", "ä", "limit") == ["string:5", "nil", "string:", "string:€", "string:5"]
    values["limit"] = "6"
    values["none"] = "now"
    assert read("limit", "none") == ["string:6", "string:now"]
    del values["limit"]
    assert read("limit") == ["nil"]
    assert hooks.statistics("q", 0).faults == 0


def test_a_key_is_read_once_for_many_messages() -> None:
    """Messages of one batch share the values that were read."""
    reads: list[str] = []

    def config(_queue: str, key: str) -> str | None:
        reads.append(key)
        return "7"

    hooks = LuaHooks(config)
    script = 'function on_enqueue(msg) return { cost = tonumber(fairlane.get("cost")) } end'
    hooks.set("q", on_enqueue=script, on_failure=None)
    assert hooks.on_enqueue("q", [FINE] * 50, 0) == [EnqueueAnswer(cost=7)] * 50
    assert reads == ["cost"]


def test_an_invalid_config_key_is_not_looked_up() -> None:
    """A key that is too long or not UTF-8 has no value."""
    reads: list[str] = []

    def config(_queue: str, key: str) -> str | None:
        reads.append(key)
        return "x"

    hooks = LuaHooks(config)
    script = r"""
    function on_enqueue(msg)
      assert(fairlane.get("\xff") == nil and fairlane.get(("k"):rep(513)) == nil)
      assert(fairlane.get(("k"):rep(60000)) == nil and fairlane.get(("k"):rep(512)) == "x")
      return { fairness_key = "good" }
    end"""
    hooks.set("q", on_enqueue=script, on_failure=None)
    assert hooks.on_enqueue("q", [FINE], 0) == [GOOD_ANSWER]
    assert reads == ["k" * 512]


def test_a_long_batch_may_read_a_large_config() -> None:
    """Values that earlier messages have read do not count against the memory of later ones."""
    hooks = LuaHooks(lambda _queue, key: key * 10_000)
    script = (
        "function on_enqueue(msg) return { cost = #fairlane.get(msg.headers.a) + #fairlane.get(msg.headers.b) } end"
    )
    hooks.set("q", on_enqueue=script, on_failure=None)
    questions = [question(a=f"a{n:03}", b=f"b{n:03}") for n in range(150)]
    assert hooks.on_enqueue("q", questions, 0) == [EnqueueAnswer(cost=80_000)] * 150


def test_a_message_that_waited_for_a_key_starts_afresh() -> None:
    """Globals set before the key was read are dropped when the message is run again."""
    hooks = LuaHooks(lambda _queue, key: {"k": "v"}.get(key))
    script = """
    function on_enqueue(msg)
      if left then return { fairness_key = "left" } end
      left = fairlane.get("k")
      msg.headers.tenant = (msg.headers.tenant or "") .. "t"
      return { fairness_key = msg.headers.tenant .. left .. fairlane.get("k") }
    end"""
    hooks.set("q", on_enqueue=script, on_failure=None)
    assert hooks.on_enqueue("q", [FINE, FINE], 0) == [EnqueueAnswer(fairness_key="tvv")] * 2


def test_an_error_of_the_config_is_the_callers() -> None:
    """An exception of the config function propagates, and is no fault of the script, which still works."""
    values: dict[str, str] = {}
    hooks = LuaHooks(lambda _queue, key: values[key])
    hooks.set("q", on_enqueue='function on_enqueue() return { fairness_key = fairlane.get("k") } end', on_failure=None)
    with pytest.raises(KeyError):
        hooks.on_enqueue("q", [FINE, FINE], 0)
    values["k"] = "good"
    assert hooks.on_enqueue("q", [FINE, FINE], 0) == [GOOD_ANSWER] * 2
    assert hooks.statistics("q", 0).faults == 0


def test_queues_do_not_see_each_other() -> None:
    """State set by a script of one queue is invisible to other queues, and to the queue's other hook."""
    left = """
    secret, shared = "left", {}
    function on_enqueue(msg) shared[1] = "x" return { fairness_key = secret } end"""
    right = 'function on_enqueue(msg) return { fairness_key = secret or "none" } end'
    other = 'function on_failure(msg) return { action = secret and "dlq" or "retry" } end'
    hooks = LuaHooks(no_config)
    hooks.set("left", on_enqueue=left, on_failure=other)
    hooks.set("right", on_enqueue=right, on_failure=None)
    assert hooks.on_enqueue("left", [FINE], 0) == [EnqueueAnswer(fairness_key="left")]
    assert hooks.on_enqueue("right", [FINE], 0) == [EnqueueAnswer(fairness_key="none")]
    assert hooks.on_failure("left", failure(), 0) == FailureAnswer(is_dead=False)


def test_globals_set_in_a_call_are_forgotten_when_it_ends() -> None:
    """Those set at the top level exist in every call, with the value they had then."""
    script = """
    default = "top"
    function helper(s) return s:upper() end
    function on_enqueue(msg)
      local before = default .. (extra or "")
      default, extra, helper_was = "changed", "!", helper
      helper, on_enqueue = nil, nil
      return { fairness_key = { before, default, helper_was(_G.extra .. "a") } }
    end"""
    hooks = hooks_with(script)
    expected = EnqueueAnswer(fairness_key=("top", "changed", "!A"))
    assert hooks.on_enqueue("q", [FINE] * 3, 0) == [expected] * 3
    assert hooks.on_enqueue("q", [FINE], 0) == [expected]


def test_a_global_set_before_a_fault_is_forgotten_too() -> None:
    """The message after a fault starts as clean as any."""
    script = """
    function on_enqueue(msg)
      if left then return { fairness_key = "left" } end
      left = true
      if msg.headers.bad then error("bad") end
      return { fairness_key = "good" }
    end"""
    hooks = hooks_with(script)
    assert hooks.on_enqueue("q", [BAD, FINE, BAD, FINE], 0) == [None, GOOD_ANSWER, None, GOOD_ANSWER]


def test_the_allowed_libraries_work() -> None:
    """Strings, numbers, tables, errors and UTF-8 do what they do in Lua."""
    script = r"""
    function on_enqueue(msg)
      assert(("acme-eu-7"):match("^(%w+)%-(%w+)%-(%d+)$") == "acme")
      assert(select("#", ("a,b,c"):gsub(",", ";")) == 2 and ("a,b"):gsub(",", { [","] = "-" }) == "a-b")
      local words = {}
      for word in ("x y z"):gmatch("[^ ]+") do table.insert(words, word) end
      table.insert(words, 1, "w")
      assert(table.concat(words, "+") == "w+x+y+z" and table.remove(words) == "z" and #words == 3)
      assert(("a.b"):find(".", 1, true) == 2 and ("abc"):find("[%w-]+") == 1 and ("abc"):sub(2, 2) == "b")
      assert(("%d-%s-%5.1f-%%-%q"):format(5, nil, 2.25, "x") == '5-nil-  2.2-%-"x"')
      assert(("ab"):rep(3, "-") == "ab-ab-ab" and ("ab"):upper() == "AB" and ("ab"):reverse() == "ba")
      assert(math.floor(2.7) == 2 and math.max(1, 3) == 3 and math.type(1) == "integer" and math.floor("3.5") == 3)
      assert("10" + 5 == 15 and tonumber("ff", 16) == 255 and tonumber("z") == nil and -"2" == -2)
      assert(tostring(nil) == "nil" and tostring(1.5) == "1.5" and tostring({}) == "table")
      assert(utf8.len("ä€") == 2 and utf8.char(228) == "ä")
      local ok, problem = pcall(error, { code = 5 })
      assert(not ok and problem.code == 5 and select(2, pcall(error, "x", 0)) == "x")
      assert(select("#", pcall(table.unpack, { 1, 2, 3 })) == 4 and table.pack(1, nil).n == 2)
      assert(math.random(5) <= 5 and next({}) == nil and _VERSION == "Lua 5.4")
      for i, v in ipairs({ "a" }) do assert(i == 1 and v == "a") end
      return { fairness_key = "good" }
    end"""
    hooks = hooks_with(script)
    assert (hooks.on_enqueue("q", [FINE], 0), hooks.statistics("q", 0).last_fault) == ([GOOD_ANSWER], None)


def test_statistics_of_an_unknown_queue_are_zero() -> None:
    """Reading them does not create the queue."""
    counts = LuaHooks(no_config).statistics("nobody", 0)
    assert (counts.calls, counts.faults, counts.bypassed, counts.elapsed_us) == (0, 0, 0, 0)
    assert (counts.is_open, counts.last_fault) == (False, None)


def test_time_spent_is_counted() -> None:
    """A message that hits the time limit counts that time; a bypassed one counts almost none."""
    hooks = LuaHooks(no_config, breaker_threshold=1)
    hooks.set("q", on_enqueue="function on_enqueue() while true do end end", on_failure=None)
    hooks.on_enqueue("q", [FINE, FINE], 0)
    counts = hooks.statistics("q", 0)
    assert counts.elapsed_us >= 5_000
    assert (counts.calls, counts.bypassed, counts.last_fault) == (1, 1, "timed out after 10 ms")


def test_trying_a_script_returns_its_answer_and_changes_nothing() -> None:
    """The trial sees the queue's name and the config, and is not counted."""
    hooks = LuaHooks(lambda queue, key: {"qw": "9"}.get(queue + key))
    hooks.set("q", on_enqueue=GOOD, on_failure=None)
    script = 'function on_enqueue(msg) return { fairness_key = msg.queue, weight = tonumber(fairlane.get("w")) } end'
    trial = hooks.try_on_enqueue("q", script, FINE)
    assert trial.answer == EnqueueAnswer(fairness_key="q", weight=9)
    assert trial.fault is None
    assert trial.elapsed_us >= 0
    dead = hooks.try_on_failure("new", SEED_ON_FAILURE, failure(attempts=3))
    assert dead.answer == FailureAnswer(is_dead=True)
    assert hooks.on_enqueue("q", [FINE], 0) == [GOOD_ANSWER]
    assert hooks.statistics("q", 0).calls == 1
    assert hooks.statistics("new", 0).calls == 0


@pytest.mark.parametrize(
    ("script", "fault"),
    [
        ("x =", "line 1: unexpected symbol near <eof>"),
        ("while true do end", "timed out after 10 ms"),
        ("function on_enqueue() while true do end end", "timed out after 10 ms"),
        (r'function on_enqueue() return { fairness_key = "\xff" } end', "returned a string that is not UTF-8"),
        ("-" * 17_000, "the script is longer than 16384 characters"),
    ],
)
def test_trying_an_invalid_script_returns_its_fault(script: str, fault: str) -> None:
    """For any error, the trial has a fault and no answer."""
    trial = LuaHooks(no_config).try_on_enqueue("q", script, FINE)
    assert (trial.answer, trial.fault) == (None, fault)


def test_limits_are_named_in_the_fault() -> None:
    """The text gives the limits that were set, in the largest whole unit."""
    bomb = "function on_enqueue() local t = {} while true do t[#t + 1] = 1 end end"
    for size, name in ((2_097_152, "2 MiB"), (131_072, "128 KiB"), (100_001, "100001 bytes")):
        hooks = LuaHooks(no_config, memory_bytes_max=size, timeout_ms=1_000)
        assert hooks.try_on_enqueue("q", bomb, FINE).fault == f"used more than {name}"
    hooks = LuaHooks(no_config, timeout_ms=2)
    assert (
        hooks.try_on_enqueue("q", "function on_enqueue() while true do end end", FINE).fault == "timed out after 2 ms"
    )
