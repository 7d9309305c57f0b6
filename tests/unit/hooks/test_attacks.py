"""No script hangs, floods, crashes or escapes its sandbox, and none harms another queue."""

from __future__ import annotations

from time import process_time

import pytest

from fairlane.adapters.lua.hooks import LuaHooks
from fairlane.model.answers import EnqueueAnswer
from fairlane.model.limits import SCRIPT_LENGTH_MAX
from fairlane.ports.hooks import EnqueueQuestion
from tests.unit.hooks.attacks import HARMLESS, MUST_STOP, TOP_LEVELS
from tests.unit.hooks.scripts import GOOD, GOOD_ANSWER, SEED_ON_FAILURE, STOPPED_CLOCK, failure, no_config, question

CALL_S_MAX = 2.0
"""What a call with a limit of 10 ms may take on a slow machine whose cores are shared. It takes about 15 ms.

A script that is not stopped runs for ever, so this needs no more precision.
"""

ODD_HEADERS = {"odd": "a\ud800b", "": "", "n\0l": "\0", "tenant": "ä€𐍈"}


def stopped() -> int:
    """Return the time of a timer that stands still: on a busy machine, no breaker opens because of real time."""
    return 0


def attacked(body: str) -> LuaHooks:
    """Return hooks with a script that attacks only messages with the header ``attack``, and a neighbour."""
    script = f"""
    local function attack(msg) {body} end
    function on_enqueue(msg)
      if msg.headers.attack then return attack(msg) end
      return {{ fairness_key = "good" }}
    end"""
    hooks = LuaHooks(no_config, timer_ns=stopped)
    assert hooks.check(on_enqueue=script, on_failure=None) is None
    hooks.set("attacked", on_enqueue=script, on_failure=SEED_ON_FAILURE)
    hooks.set("neighbour", on_enqueue=GOOD, on_failure=None)
    return hooks


ATTACK = EnqueueQuestion({"attack": "yes", **ODD_HEADERS}, 10)


@pytest.mark.parametrize("body", MUST_STOP.values(), ids=MUST_STOP.keys())
def test_an_attack_is_stopped_in_time_and_harms_no_other_message(body: str) -> None:
    """The attack gets no answer and a readable fault; messages beside it, later ones and a neighbour get theirs."""
    hooks = attacked(body)
    begun_s = process_time()
    answers = hooks.on_enqueue("attacked", [question(), ATTACK, question()], 0)
    assert process_time() - begun_s < CALL_S_MAX
    assert answers == [GOOD_ANSWER, None, GOOD_ANSWER]
    counts = hooks.statistics("attacked", 0)
    assert (counts.calls, counts.faults, counts.is_open) == (3, 1, False)
    assert counts.last_fault is not None
    assert 0 < len(counts.last_fault) <= 500
    assert counts.last_fault.isprintable()
    assert "Traceback" not in counts.last_fault
    assert "<python>" not in counts.last_fault
    assert hooks.on_enqueue("attacked", [question()], 0) == [GOOD_ANSWER]
    assert hooks.on_failure("attacked", failure(), 0) is not None
    assert hooks.on_enqueue("neighbour", [question()], 0) == [GOOD_ANSWER]
    assert hooks.statistics("neighbour", 0).faults == 0


@pytest.mark.parametrize("body", HARMLESS.values(), ids=HARMLESS.keys())
def test_an_odd_script_gets_an_answer_and_leaves_nothing_behind(body: str) -> None:
    """Anything a script does within its limits ends in an answer, and the next message is answered as usual."""
    hooks = attacked(body)
    begun_s = process_time()
    answers = hooks.on_enqueue("attacked", [ATTACK, question(), ATTACK, question()], 0)
    assert process_time() - begun_s < CALL_S_MAX
    assert answers is not None
    assert hooks.statistics("attacked", 0).last_fault is None
    assert answers[1] == answers[3] == GOOD_ANSWER
    assert answers[0] == answers[2] is not None
    assert "0x" not in repr(answers)


@pytest.mark.parametrize("top_level", TOP_LEVELS.values(), ids=TOP_LEVELS.keys())
def test_a_top_level_that_attacks_is_not_accepted(top_level: str) -> None:
    """``check`` runs the top level within the limits and returns the fault; ``set`` without it does no harm."""
    hooks = LuaHooks(no_config)
    script = f"{top_level}\n{GOOD}"
    begun_s = process_time()
    problem = hooks.check(on_enqueue=script, on_failure=None)
    assert process_time() - begun_s < CALL_S_MAX
    assert problem is not None
    assert problem.startswith("on_enqueue: ")
    hooks.set("q", on_enqueue=script, on_failure=None)
    assert hooks.on_enqueue("q", [question()] * 5, 0) == [None] * 5
    assert hooks.statistics("q", 0).faults == 3


@pytest.mark.parametrize(
    "script",
    [
        "\x1bLua\x54\x00",
        "function on_enqueue(msg",
        "return " + "(" * 500 + "1" + ")" * 500,
        "x = " + "{" * 500 + "}" * 500,
        "local " + ",".join(f"v{n}" for n in range(300)),
        "x = " + "..".join(["'a'"] * 9000),
        "goto nowhere",
        "\0",
        "\ud800",
        "#!",
        "x = '" + "a" * SCRIPT_LENGTH_MAX + "'",
    ],
    ids=lambda script: repr(script[:16]),
)
def test_an_invalid_script_is_not_accepted(script: str) -> None:
    """Bytecode, syntax errors, deep nesting and overlong scripts are detected without harm."""
    problem = LuaHooks(no_config).check(on_enqueue=script, on_failure=None)
    assert problem is not None
    assert len(problem) < 600
    assert problem.isprintable()


ALLOWED = {
    "_G": "_G _VERSION assert error fairlane fila ipairs math next on_enqueue pairs pcall select string table tonumber "
    "tostring type utf8",
    "string": "byte char find format gmatch gsub len lower match rep reverse sub upper",
    "table": "concat insert pack remove unpack",
    "math": "abs ceil exp floor fmod huge log max maxinteger min mininteger modf pi random sqrt tointeger type ult",
    "utf8": "char len",
    "fairlane": "get",
    "fila": "get",
}
LUA_NAMES = """
_G _VERSION assert collectgarbage coroutine debug dofile error getmetatable io ipairs load loadfile loadstring math
module newproxy next os package pairs pcall print python rawequal rawget rawlen rawset require select setfenv getfenv
setmetatable string table tonumber tostring type unpack utf8 warn xpcall fairlane fila on_enqueue on_failure arg bit32
byte char dump find format gmatch gsub len lower match pack packsize rep reverse sub unpack upper
concat insert move remove sort abs acos asin atan ceil cos deg exp floor fmod huge log max maxinteger min mininteger
modf pi rad random randomseed sin sqrt tan tointeger ult charpattern codepoint codes offset get set
eval builtins as_attrgetter as_function args iter iterex enumerate none as_itemgetter
"""


@pytest.mark.parametrize("library", ALLOWED)
def test_only_allowed_names_exist(library: str) -> None:
    """Of all names of Lua, its libraries and lupa only those on the allow-list exist, and none is a Python object."""
    script = f"""
    function on_enqueue(msg)
      local found = {{}}
      for name in msg.headers.names:gmatch("[%w_]+") do
        local kind = type({library}[name])
        if kind == "userdata" or kind == "thread" then error(name) end
        if kind ~= "nil" then found[#found + 1] = name end
      end
      return {{ fairness_key = table.concat(found, " ") }}
    end"""
    names = " ".join(sorted(set(LUA_NAMES.split())))
    trial = LuaHooks(no_config, timeout_ms=1_000).try_on_enqueue("q", script, question(names=names))
    assert trial.fault is None
    assert trial.answer == EnqueueAnswer(fairness_key=ALLOWED[library])


def test_a_script_that_accumulates_memory_over_many_calls_is_replaced() -> None:
    """A table that grows from call to call hits the limit from time to time, and never ends the process."""
    hooks = LuaHooks(no_config, clock=STOPPED_CLOCK, timer_ns=stopped)
    script = """
    local hoard = {}
    function on_enqueue(msg) hoard[#hoard + 1] = ("x"):rep(1000) .. #hoard return { fairness_key = "good" } end"""
    hooks.set("q", on_enqueue=script, on_failure=None)
    big = {"h": "y" * 60_000}
    for _ in range(40):
        answers = hooks.on_enqueue("q", [EnqueueQuestion(big, 1)] * 100, 0)
        assert answers is not None
        assert answers.count(GOOD_ANSWER) >= 99
    counts = hooks.statistics("q", 0)
    assert 2 <= counts.faults <= 10
    assert counts.last_fault == "used more than 1 MiB"


def test_full_memory_does_not_break_the_reading_of_config() -> None:
    """A long value arrives even if the script has filled its memory."""
    hooks = LuaHooks(lambda _queue, _key: "v" * 60_000)
    script = """
    local hoard, size = {}, 0
    function on_enqueue(msg)
      while size < 980 do size = size + 1 hoard[size] = ("x"):rep(1000) .. size end
      return { weight = #fairlane.get("a") + #fairlane.get("b") }
    end"""
    hooks.set("q", on_enqueue=script, on_failure=None)
    for _ in range(20):
        answers = hooks.on_enqueue("q", [question()] * 3, 0)
        assert answers is not None
    assert hooks.statistics("q", 0).calls > 0


def test_very_many_headers_are_passed_and_answered() -> None:
    """Messages with far more headers than the broker allows are passed in smaller batches."""
    hooks = LuaHooks(no_config, clock=STOPPED_CLOCK)
    script = """
    function on_enqueue(msg)
      local n = 0
      for k, v in pairs(msg.headers) do n = n + 1 if v ~= "v" .. k then error("mixed up") end end
      return { cost = n }
    end"""
    hooks.set("q", on_enqueue=script, on_failure=None)
    counts = [0, 1, 2, 3, 4, 5, 6, 7, 9, 50, 1500, 3, 3000, 0, 1] * 3
    questions = [EnqueueQuestion({f"h{i}": f"vh{i}" for i in range(count)}, 0) for count in counts]
    answers = hooks.on_enqueue("q", questions, 0)
    assert answers is not None
    assert hooks.statistics("q", 0).last_fault is None
    assert [answer.cost if answer else None for answer in answers] == [count or None for count in counts]


def test_every_message_has_a_time_limit_of_its_own() -> None:
    """Messages that each take long, but less than the limit, are all answered, however many there are."""
    hooks = LuaHooks(no_config, timeout_ms=100)
    script = 'function on_enqueue(msg) for i = 1, 200000 do end return { fairness_key = "good" } end'
    hooks.set("q", on_enqueue=script, on_failure=None)
    answers = hooks.on_enqueue("q", [question()] * 60, 0)
    assert answers == [GOOD_ANSWER] * 60


def test_the_time_limit_of_a_message_continues_while_it_waits_for_config() -> None:
    """A script can't gain time by reading one key after the other."""
    hooks = LuaHooks(no_config, timeout_ms=50)
    script = """
    function on_enqueue(msg)
      for key = 1, 30 do
        fairlane.get("k" .. key)
        for i = 1, 300000 do end
      end
    end"""
    begun_s = process_time()
    trial = hooks.try_on_enqueue("q", script, question())
    assert process_time() - begun_s < CALL_S_MAX + 0.05
    assert trial.fault == "timed out after 50 ms"
