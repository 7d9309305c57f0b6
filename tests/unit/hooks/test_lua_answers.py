"""The input of a script, its valid answers, and the handling of invalid ones."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane.adapters.lua.hooks import LuaHooks
from fairlane.model import limits
from fairlane.model.answers import EnqueueAnswer, FailureAnswer
from fairlane.ports.hooks import EnqueueQuestion
from tests.unit.hooks.scripts import (
    SEED_ON_ENQUEUE,
    SEED_ON_FAILURE,
    answer_of,
    answer_to,
    failure,
    fault_of,
    hooks_with,
    no_config,
    question,
)


def test_the_seeds_on_enqueue_runs_unchanged() -> None:
    """It answers with the headers that exist, and with its own defaults for the others."""
    full = question(tenant="acme", priority="5", endpoint="/send")
    assert answer_of(SEED_ON_ENQUEUE, full) == EnqueueAnswer(fairness_key="acme", weight=5, throttles=("/send",))
    assert answer_of(SEED_ON_ENQUEUE) == EnqueueAnswer(fairness_key="default", weight=1, throttles=())


def test_the_seeds_on_failure_runs_unchanged() -> None:
    """It retries twice, later each time, and gives up at the third failure."""
    hooks = hooks_with(on_failure=SEED_ON_FAILURE)
    assert hooks.on_failure("q", failure(attempts=1), 0) == FailureAnswer(is_dead=False, delay_ms=1000)
    assert hooks.on_failure("q", failure(attempts=2), 0) == FailureAnswer(is_dead=False, delay_ms=2000)
    assert hooks.on_failure("q", failure(attempts=3), 0) == FailureAnswer(is_dead=True)


def test_on_enqueue_receives_headers_size_and_queue() -> None:
    """The message has these three fields and no other."""
    script = """
    function on_enqueue(msg)
      local names = 0
      for name in pairs(msg) do names = names + 1 end
      local key = { msg.queue, msg.headers.tenant, msg.headers["x-ä"] }
      return { fairness_key = key, cost = msg.payload_size, cap = names }
    end"""
    asked = EnqueueQuestion({"tenant": "acme", "x-ä": "€𐍈"}, 1234)
    assert answer_of(script, asked) == EnqueueAnswer(fairness_key=("q", "acme", "€𐍈"), cost=1234, cap=3)


def test_on_failure_receives_headers_id_attempts_queue_reason_and_error() -> None:
    """The message has these six fields and no other."""
    script = """
    function on_failure(msg)
      local names = 0
      for name in pairs(msg) do names = names + 1 end
      assert(names == 6 and msg.headers.tenant == "acme" and msg.id == "id-1" and msg.queue == "q")
      assert(msg.attempts == 7 and msg.error == "bad ä" and msg.reason == "failure")
      return { action = "retry" }
    end"""
    hooks = hooks_with(on_failure=script)
    assert hooks.on_failure("q", failure(attempts=7, error="bad ä", tenant="acme"), 0) == FailureAnswer(is_dead=False)


def test_many_messages_are_answered_in_order() -> None:
    """Each message of a long batch, with headers of its own, gets the answer that belongs to it."""
    hooks = hooks_with(SEED_ON_ENQUEUE)
    questions = [question(n, tenant=f"t{n}", **{f"h{i}": "x" for i in range(n % 7)}) for n in range(1000)]
    answers = hooks.on_enqueue("q", questions, 0)
    assert answers is not None
    assert [answer.fairness_key for answer in answers if answer] == [f"t{n}" for n in range(1000)]


def test_long_answers_come_in_several_rounds() -> None:
    """Answers near the limits do not count against the memory of the script."""
    script = """
    function on_enqueue(msg)
      local names = {}
      for i = 1, 16 do names[i] = i .. ("x"):rep(250) end
      return { fairness_key = msg.headers.n .. ("k"):rep(1000), throttle_keys = names }
    end"""
    hooks = hooks_with(script)
    answers = hooks.on_enqueue("q", [question(n=str(n)) for n in range(300)], 0)
    assert answers is not None
    assert hooks.statistics("q", 0).faults == 0
    assert [a.fairness_key for a in answers if a] == [str(n) + "k" * 1000 for n in range(300)]


@pytest.mark.parametrize(
    ("returned", "field", "value"),
    [
        ('{ fairness_key = "a" }', "fairness_key", "a"),
        ('{ fairness_key = { "a" } }', "fairness_key", "a"),
        ('{ fairness_key = { "a", "b" } }', "fairness_key", ("a", "b")),
        ('{ fairness_key = { "a", msg.headers.none } }', "fairness_key", "a"),
        ('{ fairness_key = { msg.headers.none, "b" } }', "fairness_key", None),
        ('{ fairness_key = { "a", msg.headers.none, "c" } }', "fairness_key", None),
        ('{ fairness_key = { "a", "" } }', "fairness_key", None),
        ('{ fairness_key = { "a", 5 } }', "fairness_key", None),
        ('{ fairness_key = { "a", b = "c" } }', "fairness_key", None),
        ('{ fairness_key = { "a", "a", "a", "a", "a", "a", "a", "a" } }', "fairness_key", ("a",) * 8),
        ('{ fairness_key = { "a", "a", "a", "a", "a", "a", "a", "a", "a" } }', "fairness_key", None),
        ('{ fairness_key = { ("a"):rep(1000), ("b"):rep(25) } }', "fairness_key", None),
        ("{ fairness_key = {} }", "fairness_key", None),
        ('{ fairness_key = "" }', "fairness_key", None),
        ('{ fairness_key = ("k"):rep(1024) }', "fairness_key", "k" * 1024),
        ('{ fairness_key = ("ä"):rep(1024) }', "fairness_key", "ä" * 1024),
        ('{ fairness_key = ("k"):rep(1025) }', "fairness_key", None),
        ('{ fairness_key = ("k"):rep(60000) }', "fairness_key", None),
        ("{ fairness_key = 5 }", "fairness_key", None),
        ("{ fairness_key = true }", "fairness_key", None),
        ("{ weight = 5 }", "weight", 5),
        ("{ weight = 2.9 }", "weight", 2),
        ("{ weight = 0 }", "weight", 1),
        ("{ weight = -5 }", "weight", 1),
        ("{ weight = 1000 }", "weight", 1000),
        ("{ weight = 1001 }", "weight", 1000),
        ("{ weight = 1e300 }", "weight", 1000),
        ("{ weight = math.maxinteger }", "weight", 1000),
        ("{ weight = math.mininteger }", "weight", 1),
        ("{ weight = 0/0 }", "weight", None),
        ("{ weight = 1/0 }", "weight", None),
        ("{ weight = -1/0 }", "weight", None),
        ('{ weight = "5" }', "weight", None),
        ("{ weight = true }", "weight", None),
        ("{ weight = {} }", "weight", None),
        ('{ throttle_keys = { "a", "b" } }', "throttles", ("a", "b")),
        ("{ throttle_keys = {} }", "throttles", ()),
        ("{ throttle_keys = { msg.headers.none } }", "throttles", ()),
        ('{ throttle_keys = { msg.headers.none, "b" } }', "throttles", ("b",)),
        ('{ throttle_keys = { nil, nil, nil, "d", nil, nil, nil } }', "throttles", ("d",)),
        ('{ throttle_keys = { "a", 5 } }', "throttles", None),
        ('{ throttle_keys = { "a", "" } }', "throttles", None),
        ('{ throttle_keys = { a = "b" } }', "throttles", None),
        ('{ throttle_keys = { ("a"):rep(256) } }', "throttles", ("a" * 256,)),
        ('{ throttle_keys = { ("a"):rep(257) } }', "throttles", None),
        ('{ throttle_keys = "a" }', "throttles", None),
        ("{ throttle_keys = 5 }", "throttles", None),
        ("{ cost = 7 }", "cost", 7),
        ("{ cost = 7.9 }", "cost", 7),
        ("{ cost = 0 }", "cost", None),
        ("{ cost = 0.5 }", "cost", None),
        ("{ cost = 1000000 }", "cost", 1_000_000),
        ("{ cost = 1000001 }", "cost", None),
        ("{ cost = 0/0 }", "cost", None),
        ('{ cost = "7" }', "cost", None),
        ('{ priority = "high" }', "priority", 0),
        ('{ priority = "normal" }', "priority", 1),
        ('{ priority = "low" }', "priority", 2),
        ("{ priority = 0 }", "priority", 0),
        ("{ priority = 2.0 }", "priority", 2),
        ("{ priority = 3 }", "priority", None),
        ("{ priority = -1 }", "priority", None),
        ('{ priority = "urgent" }', "priority", None),
        ('{ priority = ("high"):rep(1000) }', "priority", None),
        ("{ priority = {} }", "priority", None),
        ("{ cap = 3 }", "cap", 3),
        ("{ cap = 0 }", "cap", 0),
        ("{ cap = -1 }", "cap", None),
        ("{ cap = 1000001 }", "cap", None),
        ("{ delay_ms = 1500.7 }", "delay_ms", 1500),
        ("{ delay_ms = 0 }", "delay_ms", 0),
        ("{ delay_ms = -1 }", "delay_ms", None),
        ("{ delay_ms = 1/0 }", "delay_ms", None),
        (f"{{ delay_ms = {limits.TIMESPAN_MS_MAX} }}", "delay_ms", limits.TIMESPAN_MS_MAX),
        (f"{{ delay_ms = {limits.TIMESPAN_MS_MAX + 1} }}", "delay_ms", None),
        ("{ deadline_ms = 60000 }", "deadline_ms", 60_000),
        ("{ deadline_ms = 1e18 }", "deadline_ms", None),
        ("{ deadline_ms = false }", "deadline_ms", None),
    ],
)
def test_a_field_is_accepted_or_ignored(returned: str, field: str, value: object) -> None:
    """A valid value arrives, an invalid one leaves its field unset, and no other field is affected."""
    assert answer_to(returned) == EnqueueAnswer(**{field: value})  # type: ignore[arg-type]  # any field's type


def test_too_many_throttles_leave_the_field_unset() -> None:
    """Sixteen throttles are accepted, seventeen are not."""
    script = """
    function on_enqueue(msg)
      local names = {}
      for i = 1, msg.payload_size do names[i] = "t" .. i end
      return { throttle_keys = names }
    end"""
    assert answer_of(script, question(16)) == EnqueueAnswer(throttles=tuple(f"t{n}" for n in range(1, 17)))
    assert answer_of(script, question(17)) == EnqueueAnswer()


def test_all_fields_arrive_together() -> None:
    """A full answer is read completely, and the next message from its own start."""
    script = """
    function on_enqueue(msg)
      if msg.payload_size == 0 then return {} end
      return { fairness_key = { "a", "b" }, weight = 2, throttle_keys = { "t", "u" }, cost = 3, priority = "low",
        cap = 4, delay_ms = 5, deadline_ms = 6, unknown = 7 }
    end"""
    full = EnqueueAnswer(
        fairness_key=("a", "b"), weight=2, throttles=("t", "u"), cost=3, priority=2, cap=4, delay_ms=5, deadline_ms=6
    )
    answers = hooks_with(script).on_enqueue("q", [question(1), question(0), question(1)], 0)
    assert answers == [full, EnqueueAnswer(), full]


@pytest.mark.parametrize(
    ("returned", "answer"),
    [
        ('{ action = "retry" }', FailureAnswer(is_dead=False)),
        ('{ action = "retry", delay_ms = 5 }', FailureAnswer(is_dead=False, delay_ms=5)),
        ('{ action = "retry", delay_ms = 5.5 }', FailureAnswer(is_dead=False, delay_ms=5)),
        ('{ action = "retry", delay_ms = -5 }', FailureAnswer(is_dead=False)),
        ('{ action = "retry", delay_ms = 0/0 }', FailureAnswer(is_dead=False)),
        ('{ action = "retry", delay_ms = "5" }', FailureAnswer(is_dead=False)),
        ('{ action = "dlq", delay_ms = 5 }', FailureAnswer(is_dead=True)),
        ('{ action = "drop" }', None),
        ("{ action = 5 }", None),
        ("{ action = {} }", None),
        ("{}", None),
        ("nil", None),
        ('"retry"', None),
    ],
)
def test_a_failure_is_answered_or_not(returned: str, answer: FailureAnswer | None) -> None:
    """An unknown action is a fault; an invalid delay is left to the queue."""
    hooks = hooks_with(on_failure=f"function on_failure(msg) return {returned} end")
    assert hooks.on_failure("q", failure(), 0) == answer
    assert hooks.statistics("q", 0).faults == (answer is None)


@pytest.mark.parametrize(
    ("script", "fault"),
    [
        ("function on_enqueue(msg) while true do end end", "timed out after 10 ms"),
        ("function on_enqueue(msg) local s = 'x' while true do s = s .. s end end", "used more than 1 MiB"),
        ("function on_enqueue(msg)\n\nreturn msg.a.b end", "line 3: attempt to index a nil value (field 'a')"),
        ("function on_enqueue(msg) return nil end", "returned nothing instead of a table"),
        ("function on_enqueue(msg) return 5 end", "returned a number instead of a table"),
        ('function on_enqueue(msg) error("no tenant", 0) end', "no tenant"),
        ("function on_enqueue(msg) error({}) end", "an error without a text, but of type table"),
        ("function on_enqueue(msg)", "line 1: 'end' expected near <eof>"),
        ("function on_enqeue(msg) end", "the script defines no function on_enqueue"),
        ("on_enqueue = 5", "the script defines no function on_enqueue"),
    ],
)
def test_a_fault_is_readable_for_its_author(script: str, fault: str) -> None:
    """The text says what happened and at which line of the script."""
    assert fault_of(script) == fault


def test_bytecode_is_refused() -> None:
    """Compiled scripts are refused, since Lua does not verify them."""
    assert fault_of("\x1bLua") == "attempt to load a binary chunk (mode is 't')"


_LUA_NUMBERS = st.one_of(
    st.integers(min_value=-(2**63) + 1, max_value=2**63 - 1).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(float.hex).map(lambda text: f"({text})"),
    st.sampled_from(["0/0", "1/0", "-1/0", "math.huge", "math.mininteger"]),
)
_LUA_STRINGS = st.one_of(
    st.binary(max_size=40).map(lambda raw: '"' + "".join(f"\\{byte or 1:03}" for byte in raw) + '"'),
    st.sampled_from(['("x"):rep(1025)', '("x"):rep(65536)', '"high"', '"low"', '"retry"', '"dlq"']),
)
_LUA_VALUES = st.recursive(
    st.one_of(_LUA_NUMBERS, _LUA_STRINGS, st.sampled_from(["nil", "true", "false", "type", "_G", "string", "msg"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=20).map(lambda values: "{ " + ", ".join(values) + " }"),
        st.dictionaries(st.sampled_from(["a", "weight", "n"]), inner, max_size=3).map(
            lambda fields: "{ " + ", ".join(f"{name} = {value}" for name, value in fields.items()) + " }"
        ),
    ),
    max_leaves=25,
)
_FIELDS = ("fairness_key", "weight", "throttle_keys", "cost", "priority", "cap", "delay_ms", "deadline_ms")


def _assert_within_limits(answer: EnqueueAnswer) -> None:
    path = (answer.fairness_key,) if isinstance(answer.fairness_key, str) else answer.fairness_key
    if path is not None:
        assert 1 <= len(path) <= limits.KEY_DEPTH_MAX
        assert all(path)
        assert len("".join(path).encode()) > 0
        assert len("".join(path)) <= limits.KEY_LENGTH_MAX
    for name in answer.throttles or ():
        assert 1 <= len(name) <= limits.THROTTLE_NAME_LENGTH_MAX
    assert len(answer.throttles or ()) <= limits.THROTTLES_MAX
    for number, least, most in (
        (answer.weight, 1, limits.WEIGHT_MAX),
        (answer.cost, 1, limits.COST_MAX),
        (answer.priority, 0, 2),
        (answer.cap, 0, limits.CAP_MAX),
        (answer.delay_ms, 0, limits.TIMESPAN_MS_MAX),
        (answer.deadline_ms, 0, limits.TIMESPAN_MS_MAX),
    ):
        assert number is None or (type(number) is int and least <= number <= most and math.isfinite(number))


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(_FIELDS), _LUA_VALUES))
def test_any_returned_value_gives_an_answer_within_the_limits(fields: dict[str, str]) -> None:
    """Any value in any field ends in an answer that the core accepts, or in a fault, and the next message is safe."""
    returned = ", ".join(f"{name} = {value}" for name, value in fields.items())
    script = f"""
    function on_enqueue(msg)
      if msg.headers.plain then return {{ fairness_key = "plain" }} end
      return {{ {returned} }}
    end"""
    hooks = LuaHooks(no_config)
    hooks.set("q", on_enqueue=script, on_failure=None)
    answers = hooks.on_enqueue("q", [question(plain="1"), question(), question(plain="1")], 0)
    assert answers is not None
    plain = EnqueueAnswer(fairness_key="plain")
    assert answers[0] == answers[2] == plain
    if answers[1] is None:
        assert hooks.statistics("q", 0).last_fault
    else:
        _assert_within_limits(answers[1])
        decoded: Any = msgspec.msgpack.decode(msgspec.msgpack.encode(answers[1]), type=EnqueueAnswer)
        assert decoded == answers[1]
