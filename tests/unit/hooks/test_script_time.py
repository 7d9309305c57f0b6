"""Script time is bounded: by message, by call, and by a queue's share of the time. Clocks are injected."""

from __future__ import annotations

import logging

import pytest

from fairlane.adapters.lua.breaker import TRANSITIONS, Breaker, BreakerEvent, BreakerState
from fairlane.adapters.lua.compiled import CompiledScripts
from fairlane.adapters.lua.hooks import LuaHooks
from fairlane.model.limits import SCRIPT_LENGTH_MAX
from fairlane.ports.hooks import EnqueueQuestion
from tests.unit.hooks.scripts import GOOD, GOOD_ANSWER, failure, no_config, question

BUSY = 'function on_enqueue(msg) for i = 1, 20000 do end return { fairness_key = "good" } end'
BY_READINGS = "local now = 0 return function() now = now + 0.00001 return now end"
"""A clock that advances 10 µs each time it is read, which a busy script does every 100 instructions."""
MS = 1_000_000


class Cpu:
    """CPU time that a test sets."""

    def __init__(self, step_ns: int = 0) -> None:
        self.now_ns = 0
        self.step_ns = step_ns

    def __call__(self) -> int:
        self.now_ns += self.step_ns
        return self.now_ns


def busy_hooks(**settings: int) -> LuaHooks:
    """Return hooks whose messages take about 2.5 ms each by the injected clock."""
    hooks = LuaHooks(no_config, clock=BY_READINGS, timer_ns=Cpu(), **settings)
    hooks.set("q", on_enqueue=BUSY, on_failure=None)
    return hooks


def test_a_call_ends_when_its_time_is_used_up() -> None:
    """About 5 ms allow for two of these messages out of 60, and the rest is left to a later call."""
    hooks = busy_hooks()
    answers = hooks.on_enqueue("q", [question()] * 60, 0, most_ns=5 * MS)
    assert answers == [GOOD_ANSWER] * 2
    assert hooks.spent_ns >= 5 * MS


def test_a_call_makes_progress_however_little_time_it_has() -> None:
    """One message at least is answered, so a request is decided sooner or later."""
    hooks = busy_hooks()
    assert hooks.on_enqueue("q", [question()] * 60, 0, most_ns=1) == [GOOD_ANSWER]


def test_the_time_of_a_message_starts_with_its_script() -> None:
    """With a clock that advances 6 ms at each reading, the start and two looks make 12 ms: the second look stops it.

    The first four checks are free, one every 100 instructions, so 620 instructions have two looks.
    """
    hooks = LuaHooks(no_config, clock="local now = 0 return function() now = now + 0.006 return now end")
    trial = hooks.try_on_enqueue("q", "function on_enqueue() for i = 1, 620 do end return {} end", question())
    assert trial.fault == "timed out after 10 ms"


def test_quick_messages_read_the_clock_seldom() -> None:
    """Reading the clock is a system call, so only every eighth of the messages that are quick has its start read."""
    hooks = LuaHooks(no_config, clock="local now = 0 return function() now = now + 0.001 return now end")
    hooks.set("q", on_enqueue=GOOD, on_failure=None)
    assert hooks.on_enqueue("q", [question()] * 64, 0, most_ns=12 * MS) == [GOOD_ANSWER] * 64
    assert hooks.on_enqueue("q", [question()] * 64, 0, most_ns=4 * MS) == [GOOD_ANSWER] * 32


def test_a_queue_that_uses_more_than_its_share_is_bypassed(caplog: pytest.LogCaptureFixture) -> None:
    """After 20 % of 10 s of script time the breaker opens without a single fault, and says why."""
    cpu = Cpu()
    hooks = LuaHooks(no_config, timer_ns=cpu)
    hooks.set("q", on_enqueue=GOOD, on_failure='function on_failure() return { action = "retry" } end')
    cpu.step_ns = 100 * MS
    with caplog.at_level(logging.WARNING, "fairlane.hooks"):
        asked = 0
        while hooks.on_enqueue("q", [question()], 0) == [GOOD_ANSWER]:
            asked += 1
            assert asked < 100
    counts = hooks.statistics("q", 0)
    assert (counts.faults, counts.is_open, counts.open_by, counts.trips) == (0, True, "time", 1)
    assert 2_000_000 < counts.elapsed_us <= 2_200_000
    assert hooks.on_failure("q", failure(), 9_999) is None
    assert [record.getMessage() for record in caplog.records] == [
        "The scripts of queue 'q' used more than their share of the time; its circuit breaker has opened."
    ]
    assert hooks.on_enqueue("q", [question()], 10_000) == [GOOD_ANSWER]


def test_a_queue_within_its_share_is_never_bypassed() -> None:
    """Scripts that use 15 % of the time, for an hour, are all answered."""
    breaker = Breaker(threshold=3, cooldown_ms=10_000, share_percent=20, window_ms=10_000)
    for now_ms in range(0, 3_600_000, 100):
        assert breaker.lets_through(now_ms)
        breaker.note_time(15 * MS, now_ms)


def test_an_update_closes_the_breaker_and_gives_no_time() -> None:
    """The account of script time survives: the next use opens it again, so updates don't buy time."""
    breaker = Breaker(threshold=3, cooldown_ms=10_000, share_percent=20, window_ms=10_000)
    breaker.note_time(3_000 * MS, 0)
    assert breaker.cause(0) == "time"
    breaker.close()
    assert breaker.lets_through(1)
    breaker.note_time(1, 1)
    assert (breaker.cause(1), breaker.trips) == ("time", 2)


def test_the_table_of_the_breaker_has_every_event_that_can_happen() -> None:
    """No script runs while it is open, so no fault is noted then; every other event is in the table."""
    impossible = {(BreakerState.OPEN_BY_FAULTS, BreakerEvent.FAULTS), (BreakerState.OPEN_BY_TIME, BreakerEvent.FAULTS)}
    impossible |= {(BreakerState.CLOSED, BreakerEvent.COOLED_DOWN)}
    assert set(TRANSITIONS) | impossible == {(state, event) for state in BreakerState for event in BreakerEvent}


class CountedScripts(CompiledScripts):
    """Counts what is compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[str] = []

    def keep(self, text: str, compiled: bytes) -> None:
        """Note the script, and keep it."""
        self.kept.append(text)
        super().keep(text, compiled)


def test_a_script_is_compiled_once() -> None:
    """Setting it in two queues, and loading it again after each fault, costs no further compilation."""
    hooks = LuaHooks(no_config, timeout_ms=1)
    hooks._compiled = counted = CountedScripts()
    script = "function on_enqueue() while true do end end"
    for queue in ("a", "b"):
        assert hooks.check(on_enqueue=script, on_failure=None) is None
        hooks.set(queue, on_enqueue=script, on_failure=None)
        assert hooks.on_enqueue(queue, [question()] * 3, 0) == [None] * 3
    assert counted.kept == [f"on_enqueue 1 1048576\n{script}"]


def test_a_compiled_script_names_the_lines_of_its_faults() -> None:
    """A fault in a script that was loaded from its compiled form reads as the first one did."""
    hooks = LuaHooks(no_config)
    script = "\n\nfunction on_enqueue() error('oops') end"
    for queue in ("a", "b"):
        hooks.set(queue, on_enqueue=script, on_failure=None)
        hooks.on_enqueue(queue, [question()], 0)
        assert hooks.statistics(queue, 0).last_fault == "line 3: oops"


def test_a_script_for_one_hook_is_no_script_for_the_other() -> None:
    """That it was compiled for ``on_enqueue`` does not make ``on_failure`` accept it."""
    hooks = LuaHooks(no_config)
    assert hooks.check(on_enqueue=GOOD, on_failure=None) is None
    assert hooks.check(on_enqueue=None, on_failure=GOOD) == "on_failure: the script defines no function on_failure"


def test_compiled_scripts_are_kept_up_to_a_size() -> None:
    """Those that were used longest ago go first."""
    compiled = CompiledScripts(bytes_max=30)
    for text in ("a", "b", "c"):
        compiled.keep(text, bytes(9))
    assert compiled.get("a") == bytes(9)
    compiled.keep("d", bytes(9))
    assert [compiled.get(text) is None for text in "abcd"] == [False, True, False, False]


def test_compiling_and_trials_count_as_script_time() -> None:
    """What a check or a trial takes is in ``spent_ns``, by which the engine bounds the work of a cycle."""
    hooks = LuaHooks(no_config, timer_ns=Cpu(step_ns=MS))
    hooks.check(on_enqueue=GOOD, on_failure=None)
    after_check = hooks.spent_ns
    assert after_check >= MS
    hooks.try_on_enqueue("q", GOOD, question())
    assert hooks.spent_ns >= after_check + MS


def test_a_script_that_takes_long_to_compile_is_too_long() -> None:
    """The 65 kB script that took 0.45 s to compile is refused unread."""
    script = "function on_enqueue() local x = a" + " or a" * 13_000 + " end"
    fault = LuaHooks(no_config).check(on_enqueue=script, on_failure=None)
    assert fault == f"on_enqueue: the script is longer than {SCRIPT_LENGTH_MAX} characters"


@pytest.mark.parametrize("source", [r"'\0'", r"'\000'", r"'\x00'", r"'\u{0}'", r"'\\\0a'", "'\0'", r"'\00a'"], ids=repr)
def test_a_script_has_no_zero_bytes(source: str) -> None:
    """Comparing two long strings of them takes milliseconds per instruction, so a script can't write one."""
    fault = LuaHooks(no_config).check(on_enqueue=f"local s = {source} {GOOD}", on_failure=None)
    assert fault == "on_enqueue: a script can't contain a zero byte"


@pytest.mark.parametrize("source", [r"'\\0'", r"'\001'", r"'\10'", r"'\x01'", "'%0'", r"'\u{10}'"])
def test_other_escapes_are_allowed(source: str) -> None:
    """An escaped backslash before a zero, and codes that only begin with zeros, are no zero bytes."""
    assert LuaHooks(no_config).check(on_enqueue=f"local s = {source} {GOOD}", on_failure=None) is None


@pytest.mark.parametrize("made", ["string.char(0)", "utf8.char(65, 0)", "string.format('%c', 0)"])
def test_a_script_can_not_make_zero_bytes(made: str) -> None:
    """The functions that could make one refuse."""
    trial = LuaHooks(no_config).try_on_enqueue("q", f"function on_enqueue() return {{ x = {made} }} end", question())
    assert trial.fault is not None
    assert "strings can't contain a zero byte" in trial.fault


def test_zero_bytes_of_headers_and_config_do_not_reach_a_script() -> None:
    """They are left out of the text that a script sees."""
    hooks = LuaHooks(lambda _queue, _key: "c\0d")
    script = 'function on_enqueue(msg) return { fairness_key = msg.headers.ab .. fairlane.get("k") } end'
    trial = hooks.try_on_enqueue("q", script, EnqueueQuestion({"a\0b": "x\0y"}, 1))
    assert trial.answer is not None
    assert getattr(trial.answer, "fairness_key", None) == "xycd"
