"""Tests of the commands ``peek``, ``explain``, ``dlq``, ``stats`` and ``top``."""

from __future__ import annotations

import pytest

from fairlane.cli.tables import of_failures
from fairlane.model.message import FailedAttempt, FailureDetail
from tests.unit.cli.shell import Shell


def test_messages_are_peeked(shell: Shell) -> None:
    """Peek shows messages oldest first, can filter them, and leaves them in the queue."""
    ids = [shell.broker.enqueue("jobs", b"%d" % number, fairness_key=f"k{number % 2}") for number in range(4)]
    table = shell.ok("peek", "jobs", "--count", "2").out.splitlines()
    assert [line.split()[0] for line in table] == ["ID", ids[0], ids[1]]
    rest = shell.ok("-o", "json", "peek", "jobs", "--after", ids[1]).json
    assert [view["payload"] for view in rest] == ["2", "3"]
    assert [view["id"] for view in shell.ok("-o", "json", "peek", "jobs", "--key", "k1").json] == ids[1::2]
    shell.broker.lease("jobs")
    assert [view["id"] for view in shell.ok("-o", "json", "peek", "jobs", "--status", "leased").json] == ids[:1]
    assert shell.broker.queue("jobs").waiting == 3


def test_payloads_play_no_tricks_on_a_terminal(shell: Shell) -> None:
    """Unprintable characters are shown as escapes, and long payloads are cut."""
    shell.broker.enqueue("jobs", b"\x1b[31mred\n\xff" + b"x" * 500)
    out = shell.ok("peek", "jobs").out
    assert "\\x1b[31mred\\n\\xffxxx" in out
    assert out.endswith("x…\n")


def test_nothing_to_peek_at(shell: Shell) -> None:
    """An empty queue is an empty table."""
    assert shell.ok("peek", "jobs").out.splitlines() == ["ID  KEY  STATE  AGE  FAILURES  SIZE  PAYLOAD"]
    assert shell.ok("-o", "json", "peek", "jobs").json == []


def test_a_wait_is_explained(shell: Shell) -> None:
    """The reason is shown as text, and as fields in JSON."""
    shell.ok("queue", "pause", "jobs")
    message_id = shell.broker.enqueue("jobs", b"work")
    assert shell.ok("explain", "jobs", message_id).out == "queue_paused: Queue 'jobs' is paused.\n"
    assert shell.ok("-o", "json", "explain", "jobs", message_id).json["reason"] == "queue_paused"
    assert shell.run("-o", "json", "explain", "jobs", "0" * 16).error["code"] == "message_not_found"


def died(shell: Shell) -> list[str]:
    """Dead-letter three messages, of two keys and with two errors."""
    ids = []
    for key, error in (("acme", "timeout"), ("bakery", "no money"), ("acme", "no money")):
        ids.append(shell.broker.enqueue("jobs", b"work", fairness_key=key, headers={"to": key}))
        (delivery,) = shell.broker.lease("jobs")
        shell.broker.nack(delivery, error=error)
    return ids


@pytest.mark.parametrize("queue", ["jobs", "jobs.dlq"])
def test_dead_letters_are_listed(shell: Shell, queue: str) -> None:
    """The queue or its dead-letter queue can be named, and filters select messages."""
    ids = died(shell)
    table = shell.ok("dlq", "list", queue).out
    assert "max_attempts  timeout" in table
    cases = {
        ("--key", "acme"): [ids[0], ids[2]],
        ("--error", "money"): ids[1:],
        ("--reason", "hook"): [],
        ("--older-than", "1h"): [],
        ("--newer-than", "1h", "--count", "1"): ids[:1],
        ("--after", ids[1]): ids[2:],
    }
    for options, expected in cases.items():
        assert [view["id"] for view in shell.ok("-o", "json", "dlq", "list", queue, *options).json] == expected


def test_the_latest_failure_is_shown_with_its_place_and_traceback() -> None:
    """Worker and host stand next to each error, once each, and the traceback of the last one comes line by line."""
    details = [
        None,
        FailureDetail(worker="vm:12:charge", host="vm"),
        FailureDetail(traceback="Traceback:\n  boom()\nValueError: no", worker="w1", host="vm"),
    ]
    errors = [FailedAttempt(0, at, "failure", "no", detail) for at, detail in enumerate(details, start=1)]
    attempts, latest = of_failures(errors)
    assert [row[-1] for row in attempts.rows] == ["", "vm:12:charge", "w1 on vm"]
    assert latest.rows == [["Traceback:"], ["  boom()"], ["ValueError: no"]]
    (plain,) = of_failures(errors[:1])
    assert list(plain.columns) == ["attempt", "at", "reason", "error"]


def test_a_dead_letter_is_shown(shell: Shell) -> None:
    """The reason, the errors, the headers and the payload are shown."""
    message_id = died(shell)[0]
    out = shell.ok("dlq", "show", "jobs", message_id).out
    for said in ("max_attempts", "Failed and lost attempts", "timeout", "to      acme", "work"):
        assert said in out
    view = shell.ok("-o", "json", "dlq", "show", "jobs", message_id).json
    assert (view["dead"]["origin"], view["payload"]) == ("jobs", "work")
    assert shell.run("dlq", "show", "jobs", "0" * 16).code == 1


def test_queues_are_counted(shell: Shell) -> None:
    """The busiest queue comes first."""
    shell.broker.create_queue("mail")
    shell.broker.enqueue("mail", b"1")
    assert shell.ok("-o", "json", "stats").json[0]["name"] == "mail"
    assert shell.ok("stats").out.splitlines()[1].startswith("mail ")


def test_keys_of_a_queue_are_shown(shell: Shell) -> None:
    """Each key is shown with its share, weight, waiting and leased messages."""
    for key in ("acme", "acme", "bakery"):
        shell.broker.enqueue("jobs", b"1", fairness_key=key, weight=4 if key == "acme" else 1)
    shell.broker.set_config("cap:jobs:acme", "1")
    shell.broker.lease("jobs")
    rows = {line.split()[0]: line.split() for line in shell.ok("stats", "jobs").out.splitlines() if line}
    acme, bakery = rows["acme"], rows["bakery"]
    assert (acme[:6], acme[-1]) == (["acme", "80.0%", "4", "1", "1", "1"], "capped")
    assert acme[6] != "-"  # how long it waited
    assert bakery == ["bakery", "20.0%", "1", "1", "0", "-", "-", "-", "open"]


def test_a_key_that_is_throttled_is_shown_with_what_holds_it_back(shell: Shell) -> None:
    """The throttle is named, with the remaining time if it is known."""
    shell.broker.set_config("throttle:stuck:rate", "0")
    shell.broker.set_config("throttle:slow:rate", "0.001")
    for name in ("stuck", "slow"):
        for _ in range(2):
            shell.broker.enqueue("jobs", b"1", fairness_key=name, throttles=(name,))
    shell.broker.lease("jobs", 10)
    lines = shell.ok("stats", "jobs").out.splitlines()
    assert any("WAIT P99  THROTTLED" in line for line in lines)
    assert [line.split()[-3:] for line in lines if "by stuck" in line] == [["by", "stuck", "throttled"]]
    assert len([line for line in lines if line.startswith("slow") and "by slow for " in line]) == 1


def test_watching_looks_again(shell: Shell) -> None:
    """Without a terminal every update is printed; with --output json, as JSON lines."""
    looks = shell.ok("-o", "json", "stats", "jobs", "--watch", "--interval", "1ms", "--rounds", "3").lines
    assert [look["name"] for look in looks] == ["jobs"] * 3
    assert shell.ok("top", "--interval", "1ms", "--rounds", "2").out.count("jobs.dlq") == 2
    assert shell.run("stats", "no", "-w").code == 1
