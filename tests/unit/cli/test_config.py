"""Tests of the commands ``config`` and ``hook``."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane.broker.requests import Call
from fairlane.verbs.config import SetConfig
from tests.unit.cli.shell import Shell

HOOK = """
function on_enqueue(msg)
  return { fairness_key = msg.headers["tenant"], weight = tonumber(fairlane.get("weight") or "1"), delay_ms = 1500 }
end
function on_failure(msg)
  return { action = "retry", delay_ms = 2000 * msg.attempts }
end
"""


def test_values_are_set_got_and_listed(shell: Shell) -> None:
    """A value takes effect at once, and can be read and listed by prefix."""
    assert shell.ok("config", "set", "throttle:api:rate", "5").out == "Set throttle:api:rate to 5.\n"
    shell.ok("config", "set", "other", "x y")
    assert [throttle.name for throttle in shell.broker.throttles()] == ["api"]
    assert shell.ok("config", "get", "other").out == "x y\n"
    assert shell.ok("-o", "json", "config", "list").json == {"other": "x y", "throttle:api:rate": "5"}
    assert shell.ok("config", "list", "--prefix", "oth").out == "KEY    VALUE\nother  x y\n"


def test_a_value_is_removed(shell: Shell) -> None:
    """A missing value has exit code 4."""
    shell.ok("config", "set", "other", "x")
    assert shell.ok("-o", "json", "config", "set", "other", "--unset").json == {"key": "other", "value": None}
    assert shell.run("config", "get", "other").code == 4
    assert shell.run("config", "set", "other").code == 2
    assert shell.run("config", "set", "other", "x", "--unset").code == 2


def test_a_value_can_be_set_for_a_while(shell: Shell) -> None:
    """A temporary value is shown with its owner, its reason and the value before."""
    shell.ok("config", "set", "weight:jobs:a", "2")
    command = ("config", "set", "weight:jobs:a", "8", "--expires", "1h", "--owner", "ann", "--reason", "launch day")
    assert shell.ok(*command).out == "Set weight:jobs:a to 8 for 1h.\n"
    (temporary,) = shell.broker.list_temporary_config()
    assert (temporary.before, temporary.owner, temporary.reason) == ("2", "ann", "launch day")
    shown = shell.ok("config", "list").out
    assert "Temporary values" in shown
    assert shown.splitlines()[-1].split()[-4:] == ["2", "ann", "launch", "day"]


def test_a_bad_value_is_refused(shell: Shell) -> None:
    """The broker refuses an invalid value."""
    assert shell.run("-o", "json", "config", "set", "throttle:api:rate", "fast").error["code"] == "invalid_argument"


def test_api_keys_are_not_shown(shell: Shell) -> None:
    """Config keys that store API keys are neither listed nor readable."""
    shell.broker._engine.submit(Call(SetConfig(values={"auth:key:1": "hash"})))  # as a server stores them
    assert shell.ok("-o", "json", "config", "list").json == {}
    assert shell.run("config", "get", "auth:key:1").code == 2
    assert shell.run("config", "set", "auth:key:1", "x").code == 2


@pytest.fixture
def script(tmp_path: Path) -> str:
    """Return the path of a script with both hooks."""
    (tmp_path / "hook.lua").write_text(HOOK)
    return str(tmp_path / "hook.lua")


def test_a_hook_is_tried(shell: Shell, script: str) -> None:
    """The hook's answer is shown, and no message is enqueued."""
    shell.broker.set_config("public:weight", "7")
    out = shell.ok("hook", "test", script, "--header", "tenant=acme", "--payload-size", "10").out
    rows = [line.split() for line in out.splitlines()]
    assert rows[:3] == [["fairness_key", "acme"], ["weight", "7"], ["delay_ms", "1.5s"]]
    assert shell.broker.queue("jobs").waiting == 0


def test_a_hook_is_tried_on_a_failure(shell: Shell, script: str) -> None:
    """The attempt and the error are part of the sample."""
    said = shell.ok(
        "-o", "json", "hook", "test", script, "--hook", "on_failure", "--attempts", "3", "--error", "x"
    ).json
    assert (said["answer"]["is_dead"], said["answer"]["delay_ms"]) == (False, 6_000)


def test_a_hook_is_tried_without_a_server(shell: Shell, script: str) -> None:
    """With --local no broker is called, and options set the config values."""
    said = shell.ok("-o", "json", "hook", "test", script, "--local", "--config", "weight=3").json
    assert (said["answer"]["weight"], shell.endpoints) == (3, [])
    assert shell.run("hook", "test", script, "--config", "weight=3").code == 2


def test_a_hook_that_fails(shell: Shell, tmp_path: Path) -> None:
    """The error of the script is shown, with exit code 1."""
    (tmp_path / "bad.lua").write_text("function on_enqueue(msg) return msg.nothing.there end")
    outcome = shell.run("hook", "test", str(tmp_path / "bad.lua"))
    assert outcome.code == 1
    assert outcome.err.startswith("error[hook_invalid]: ")
    assert shell.run("-o", "json", "hook", "test", str(tmp_path / "bad.lua")).error["code"] == "hook_invalid"
    assert shell.run("hook", "test", str(tmp_path / "none.lua")).code == 2
