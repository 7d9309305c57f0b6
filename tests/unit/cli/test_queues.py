"""Tests of the commands ``queue``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.shell import Shell

HOOK = 'function on_enqueue(msg) return { fairness_key = "x" } end'


def test_a_queue_is_made_with_fields_of_its_policy(shell: Shell) -> None:
    """Fields can be numbers, durations, tables, lists, text and none."""
    settings = [
        "max_attempts=3",
        "visibility_timeout=1m30s",
        "backoff_ms=250",
        "backoff_jitter=0.5",
        "deadline=none",
        "weights.acme=5",
        'caps={"acme": 2}',
        "throttles_from=header:a,header:b",
        "fairness_key_from=header:tenant,header:user",
        "weight_from=header:weight",
        "strict_priority=true",
        "backpressure=wait",
        f"on_enqueue={HOOK}",
    ]
    shell.ok("queue", "create", "mail", *(part for field in settings for part in ("--set", field)))
    policy = shell.broker.queue("mail").policy
    assert (policy.max_attempts, policy.visibility_timeout_ms, policy.backoff_ms) == (3, 90_000, 250)
    assert (policy.backoff_jitter, policy.deadline_ms, policy.weights, policy.caps) == (
        0.5,
        None,
        {"acme": 5},
        {"acme": 2},
    )
    assert policy.throttles_from == ("header:a", "header:b")
    assert policy.fairness_key_from == ("header:tenant", "header:user")
    assert (policy.weight_from, policy.strict_priority, policy.backpressure) == ("header:weight", True, "wait")
    assert policy.on_enqueue == HOOK


@pytest.mark.parametrize(("text", "expected_ms"), [("30000", 30_000), ("45s", 45_000), ("1m30s", 90_000)])
def test_the_visibility_timeout_has_an_option_of_its_own(shell: Shell, text: str, expected_ms: int) -> None:
    """It takes milliseconds, or a duration with units, for new queues and for existing ones."""
    shell.ok("queue", "create", "mail", "--visibility-timeout", text, "--set", "max_attempts=3")
    policy = shell.broker.queue("mail").policy
    assert (policy.visibility_timeout_ms, policy.max_attempts) == (expected_ms, 3)
    shell.ok("queue", "update", "mail", "--visibility-timeout", "1h")
    assert shell.broker.queue("mail").policy.visibility_timeout_ms == 3_600_000
    assert shell.run("queue", "create", "other", "--visibility-timeout", "soon").code == 2


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("policy.toml", 'max_attempts = 7\non_enqueue = "@hook.lua"\n[weights]\nacme = 4\n'),
        ("policy.json", '{"max_attempts": 7, "on_enqueue": "@hook.lua", "weights": {"acme": 4}}'),
    ],
)
def test_a_policy_comes_from_a_file(shell: Shell, tmp_path: Path, name: str, text: str) -> None:
    """TOML and JSON files work, can refer to script files, and --set overrides them."""
    (tmp_path / "hook.lua").write_text(HOOK)
    (tmp_path / name).write_text(text)
    shell.ok("queue", "create", "mail", "--policy", str(tmp_path / name), "--set", "max_attempts=8")
    policy = shell.broker.queue("mail").policy
    assert (policy.max_attempts, policy.on_enqueue, policy.weights) == (8, HOOK, {"acme": 4})


def test_a_script_comes_from_a_file(shell: Shell, tmp_path: Path) -> None:
    """An at sign refers to a script file."""
    (tmp_path / "hook.lua").write_text(HOOK)
    shell.ok("queue", "update", "jobs", "--set", f"on_enqueue=@{tmp_path / 'hook.lua'}")
    assert shell.broker.queue("jobs").policy.on_enqueue == HOOK


def test_an_update_changes_only_what_it_names(shell: Shell) -> None:
    """Other fields keep their values, and the answer lists the changed ones."""
    outcome = shell.ok("-o", "json", "queue", "update", "jobs", "--set", "quantum=3", "--set", "backoff=2s")
    assert outcome.json == {"queue": "jobs", "changed": ["backoff_ms", "quantum"]}
    policy = shell.broker.queue("jobs").policy
    assert (policy.max_attempts, policy.quantum, policy.backoff_ms) == (1, 3, 2_000)


def test_an_update_says_what_is_to_change(shell: Shell) -> None:
    """An update without changes is a usage error."""
    assert shell.run("queue", "update", "jobs").code == 2


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("nope=1", "Unknown policy field 'nope'"),
        ("max_attempts=many", "max_attempts"),
        ("visibility_timeout=soon", "500ms"),
        ("weights.acme=much", "weights.acme"),
        ("on_enqueue=@/nowhere/hook.lua", "hook.lua"),
        ("caps={", "caps"),
        ("max_attempts", "NAME=VALUE"),
    ],
)
def test_a_bad_setting_is_wrong_usage(shell: Shell, setting: str, said: str) -> None:
    """Invalid fields are found before a broker is called."""
    outcome = shell.run("queue", "create", "mail", "--set", setting)
    assert (outcome.code, shell.endpoints) == (2, [])
    assert said in outcome.err


@pytest.mark.parametrize(("name", "text"), [("p.toml", "max_attempts = "), ("p.json", "[1]"), ("p.json", "{")])
def test_a_bad_policy_file_is_wrong_usage(shell: Shell, tmp_path: Path, name: str, text: str) -> None:
    """A file that is not a table of fields is refused."""
    (tmp_path / name).write_text(text)
    outcome = shell.run("queue", "create", "mail", "--policy", str(tmp_path / name))
    assert outcome.code == 2
    assert name in outcome.err


def test_a_value_out_of_range_is_refused_by_the_broker(shell: Shell) -> None:
    """The broker refuses invalid values with a code and a remedy."""
    outcome = shell.run("queue", "create", "mail", "--set", "backoff_factor=1000")
    assert outcome.code == 1
    assert outcome.err.startswith("error[invalid_argument]: ")
    assert "\nremedy: Correct the value" in outcome.err


def test_queues_are_listed(shell: Shell) -> None:
    """The output is a table, or JSON with --output json."""
    shell.broker.enqueue("jobs", b"1")
    table = shell.ok("queue", "list").out.splitlines()
    assert [line.split()[0] for line in table] == ["QUEUE", "jobs", "jobs.dlq"]
    views = shell.ok("--output", "json", "queue", "list").json
    assert [(view["name"], view["waiting"]) for view in views] == [("jobs", 1), ("jobs.dlq", 0)]


def test_a_queue_is_inspected(shell: Shell) -> None:
    """The output has facts, the policy, keys with their shares, and throttles."""
    shell.broker.set_throttle("api", rate=5)
    shell.broker.enqueue("jobs", b"1", fairness_key="acme", weight=3, throttles=("api",))
    shell.broker.enqueue("jobs", b"2", fairness_key=("bakery", "shop"))
    shell.ok("queue", "pause", "jobs", "--key", "bakery/shop")
    lines = [line.split() for line in shell.ok("queue", "inspect", "jobs").out.splitlines()]
    assert ["max_attempts", "1"] in lines
    assert ["acme", "75.0%", "3", "1", "0", "-", "-", "-", "open"] in lines
    assert ["bakery/shop", "25.0%", "1", "1", "0", "-", "-", "-", "paused"] in lines
    assert ["api", "5/s", "5", "5", "open"] in lines
    view = shell.ok("-o", "json", "queue", "inspect", "jobs").json
    assert {key["weight"] for key in view["keys"]} == {1, 3}


def test_a_queue_is_paused_and_resumed(shell: Shell) -> None:
    """A pause holds for a queue or a key until it is resumed."""
    assert shell.ok("queue", "pause", "jobs").out == 'Paused queue "jobs".\n'
    assert shell.broker.queue("jobs").is_paused
    assert shell.ok("-o", "json", "queue", "resume", "jobs").json == {"queue": "jobs", "key": None, "paused": False}
    assert not shell.broker.queue("jobs").is_paused
    shell.ok("queue", "pause", "jobs", "--key", "a/b")
    assert shell.broker.queue("jobs").paused_keys == (("a", "b"),)
    assert shell.ok("queue", "resume", "jobs", "--key", "a/b").out == 'Resumed key "a/b" of queue "jobs".\n'


def test_a_purge_asks_first(shell: Shell) -> None:
    """An answer of no changes nothing; yes or --yes purges."""
    shell.broker.enqueue("jobs", b"1")
    refused = shell.run("queue", "purge", "jobs", feed="n\n")
    assert (refused.code, shell.broker.queue("jobs").waiting) == (1, 1)
    assert "Cancelled; nothing was changed." in refused.err
    assert shell.ok("queue", "purge", "jobs", feed="y\n").out == "Deleted 1 message.\n"
    assert shell.ok("-o", "json", "queue", "purge", "jobs", "--yes").json == {"queue": "jobs", "purged": 0}


@pytest.mark.parametrize("verb", ["purge", "delete"])
def test_a_missing_queue_is_refused_before_the_question(shell: Shell, verb: str) -> None:
    """Nobody is asked about a queue that does not exist."""
    outcome = shell.run("queue", verb, "no", feed="y\n")
    assert (outcome.code, outcome.err.startswith("error[queue_not_found]: ")) == (1, True)


@pytest.mark.parametrize("verb", ["purge", "delete"])
def test_without_a_terminal_nothing_is_deleted(shell: Shell, verb: str) -> None:
    """Without a terminal and without --yes, a deletion is a usage error."""
    outcome = shell.run("queue", verb, "jobs", feed="")
    assert (outcome.code, "--yes" in outcome.err) == (2, True)
    assert shell.broker.queue("jobs").name == "jobs"


def test_a_queue_is_deleted(shell: Shell) -> None:
    """A queue is deleted with its dead letters."""
    shell.ok("queue", "delete", "jobs", "-y")
    assert shell.broker.queues() == []


def test_a_missing_queue_is_refused(shell: Shell) -> None:
    """Every command about a missing queue reports it."""
    for arguments in (
        ["inspect", "no"],
        ["pause", "no"],
        ["resume", "no"],
        ["purge", "no", "-y"],
        ["delete", "no", "-y"],
    ):
        outcome = shell.run("-o", "json", "queue", *arguments)
        assert (outcome.code, outcome.error["code"], outcome.out) == (1, "queue_not_found", "")
    assert shell.run("queue", "create", "jobs").err.startswith("error[queue_exists]: ")


def test_a_queue_is_ensured(shell: Shell) -> None:
    """The first call creates the queue; a later one changes nothing and names what differs."""
    assert shell.ok("queue", "ensure", "mail", "--set", "max_attempts=3").out == 'Created queue "mail".\n'
    assert shell.ok("queue", "ensure", "mail").out == 'Queue "mail" exists.\n'
    text = shell.ok("queue", "ensure", "mail", "--set", "max_attempts=4", "--set", "quantum=2").out
    assert text == 'Queue "mail" exists. Its policy differs in max_attempts, quantum and was not changed.\n'
    answer = shell.ok("-o", "json", "queue", "ensure", "mail", "--set", "quantum=2").json
    assert answer == {"queue": "mail", "created": False, "differing": ["quantum"]}
    assert shell.broker.queue("mail").policy.max_attempts == 3


def test_templates_are_set_listed_and_removed(shell: Shell) -> None:
    """A template creates queues with its policy until it is removed."""
    assert shell.run("enqueue", "jobs.a", "hello").code != 0
    options = ("--auto-create", "--set", "max_attempts=2", "--queues-max", "7")
    assert shell.ok("queue", "template", "set", "jobs.*", *options).out == 'Set the template of queues "jobs.*".\n'
    shell.ok("enqueue", "jobs.a", "hello")
    assert shell.broker.queue("jobs.a").policy.max_attempts == 2
    listed = shell.ok("queue", "template", "list").out
    assert "jobs.*" in listed
    assert "up to 7 queues" in listed
    assert "max_attempts=2" in listed
    found = shell.ok("-o", "json", "queue", "template", "list").json
    assert found == {"jobs.*": {"policy": {"max_attempts": 2}, "auto_create": True, "queues_max": 7}}
    shell.ok("queue", "template", "remove", "jobs.*")
    assert shell.run("enqueue", "jobs.b", "hello").code != 0
