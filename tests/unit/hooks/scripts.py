"""Scripts and questions that several tests use."""

from __future__ import annotations

from fairlane.adapters.lua.hooks import LuaHooks
from fairlane.model.answers import EnqueueAnswer
from fairlane.ports.hooks import EnqueueQuestion, FailureQuestion

SEED_ON_ENQUEUE = """
function on_enqueue(msg)
  -- msg.headers       — table of string key-value pairs
  -- msg.payload_size  — byte count of the payload
  -- msg.queue         — queue name

  return {
    fairness_key = msg.headers["tenant"] or "default",
    weight = tonumber(msg.headers["priority"]) or 1,
    throttle_keys = { msg.headers["endpoint"] }
  }
end
"""

SEED_ON_FAILURE = """
function on_failure(msg)
  -- msg.headers   — table of string key-value pairs
  -- msg.id        — message UUID
  -- msg.attempts  — current attempt count
  -- msg.queue     — queue name
  -- msg.error     — error description from the nack

  if msg.attempts >= 3 then
    return { action = "dlq" }
  end
  return { action = "retry", delay_ms = 1000 * msg.attempts }
end
"""

STOPPED_CLOCK = "return function() return 0 end"
"""A clock on which no script is ever late, for tests of anything but time."""

GOOD = 'function on_enqueue(msg) return { fairness_key = "good" } end'
GOOD_ANSWER = EnqueueAnswer(fairness_key="good")


def question(payload_size: int = 10, **headers: str) -> EnqueueQuestion:
    return EnqueueQuestion(headers, payload_size)


def failure(attempts: int = 1, error: str = "boom", **headers: str) -> FailureQuestion:
    return FailureQuestion(headers, "id-1", attempts, error)


def no_config(_queue: str, _key: str) -> str | None:
    return None


def hooks_with(on_enqueue: str | None = None, on_failure: str | None = None) -> LuaHooks:
    """Return hooks with these scripts set for the queue ``q``, after ``check`` has accepted them."""
    hooks = LuaHooks(no_config)
    assert hooks.check(on_enqueue=on_enqueue, on_failure=on_failure) is None
    hooks.set("q", on_enqueue=on_enqueue, on_failure=on_failure)
    return hooks


def answer_of(script: str, asked: EnqueueQuestion | None = None) -> EnqueueAnswer | None:
    """Return what a whole ``on_enqueue`` script answers to one message."""
    answers = hooks_with(script).on_enqueue("q", [asked or question()], 0)
    assert answers is not None
    return answers[0]


def answer_to(returned: str) -> EnqueueAnswer | None:
    """Return the answer for a Lua expression that ``on_enqueue`` returns."""
    return answer_of(f"function on_enqueue(msg) return {returned} end")


def fault_of(script: str, asked: EnqueueQuestion | None = None) -> str | None:
    """Return the fault of a whole ``on_enqueue`` script for one message."""
    hooks = LuaHooks(no_config)
    return hooks.try_on_enqueue("q", script, asked or question()).fault
