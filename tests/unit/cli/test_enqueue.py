"""Tests of the command ``enqueue``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fairlane.errors import Disconnected
from tests.unit.cli.shell import Shell


def payloads(shell: Shell) -> list[bytes | None]:
    """Return the payloads in the queue."""
    return [view.payload for view in shell.broker.peek("jobs", 100, with_body=True)]


def test_a_payload_is_enqueued_with_all_its_terms(shell: Shell) -> None:
    """Every option sets a term of the message, and the id is printed."""
    shell.broker.update_queue("jobs", {"dedup_window_ms": 60_000})
    terms = ["--key", "acme/mobile", "--weight", "3", "--cost", "2", "--priority", "high", "--throttle", "api"]
    terms += ["--throttle", "db", "--delay", "1h", "--deadline", "2h", "--dedup-id", "d1", "--correlation-id", "c1"]
    terms += ["--max-attempts", "2", "--visibility-timeout", "1m"]
    terms += ["--header", "a=b", "--header", "c=d=e"]
    message_id = shell.ok("enqueue", "jobs", "hello", *terms).out.strip()
    view = shell.broker.get("jobs", message_id)
    assert (view.payload, view.headers, view.correlation_id) == (b"hello", {"a": "b", "c": "d=e"}, "c1")
    assert (view.fairness_key, view.weight, view.cost, view.priority) == (("acme", "mobile"), 3, 2, "high")
    assert (view.throttles, view.status) == (("api", "db"), "delayed")
    assert view.due_ms == view.enqueued_ms + 3_600_000
    assert view.deadline_ms == view.enqueued_ms + 7_200_000
    assert (view.max_attempts, view.visibility_timeout_ms) == (2, 60_000)
    assert shell.ok("-o", "json", "enqueue", "jobs", "again", *terms).json == {"id": message_id, "queue": "jobs"}


def test_the_time_that_a_result_is_kept_is_an_option(shell: Shell) -> None:
    """The option sets it for a message, and a line of JSON for its own."""
    shell.ok("enqueue", "jobs", "hello", "--result-ttl", "1h")
    shell.ok("enqueue", "jobs", "--jsonl", "--result-ttl", "1h", feed='{"payload": "hello", "result_ttl": "2h"}')
    kept_ms = []
    for delivery in shell.broker.lease("jobs", 2):
        shell.broker.ack(delivery, result=b"done")
        view = shell.broker.status(delivery.id)
        assert view.kept_until_ms is not None
        assert view.finished_ms is not None
        kept_ms.append(view.kept_until_ms - view.finished_ms)
    assert kept_ms == [3_600_000, 7_200_000]


def test_a_payload_comes_from_standard_input(shell: Shell) -> None:
    """Without a payload, or with a dash, standard input is the payload."""
    shell.ok("enqueue", "jobs", feed=b"one\ntwo\n\xff")
    shell.ok("enqueue", "jobs", "-", feed=b"three")
    assert payloads(shell) == [b"one\ntwo\n\xff", b"three"]


def test_a_payload_comes_from_a_file(shell: Shell, tmp_path: Path) -> None:
    """A whole file is one payload."""
    (tmp_path / "picture").write_bytes(b"\x00\xff\n")
    shell.ok("enqueue", "jobs", "--file", str(tmp_path / "picture"))
    assert payloads(shell) == [b"\x00\xff\n"]


def test_lines_are_messages(shell: Shell, tmp_path: Path) -> None:
    """Each line is a payload, empty ones too, with the terms of the options."""
    assert shell.ok("enqueue", "jobs", "--lines", "--key", "acme", feed="a\r\n\nb").out == "Enqueued 3 messages.\n"
    assert payloads(shell) == [b"a", b"", b"b"]
    assert {view.fairness_key for view in shell.broker.peek("jobs")} == {"acme"}
    (tmp_path / "lines").write_bytes(b"".join(b"%d\n" % number for number in range(1_200)))
    outcome = shell.ok("-o", "json", "enqueue", "jobs", "--stdin-lines", "--file", str(tmp_path / "lines"))
    assert outcome.json == {"queue": "jobs", "enqueued": 1_200, "failed": 0, "errors": []}
    assert shell.broker.queue("jobs").waiting == 1_203


def test_json_lines_are_messages(shell: Shell) -> None:
    """A line has the fields of a message; the options are the defaults."""
    lines = [
        {"payload": "text", "fairness_key": "acme", "headers": {"b": "2"}},
        {"payload": {"any": ["json", 1]}, "delay": "1h", "weight": 2},
        {"payload_base64": "AP8=", "fairness_key": ["a", "b"], "priority": "low", "throttles": ["t"]},
    ]
    feed = "\n\n".join(map(json.dumps, lines))
    shell.ok("enqueue", "jobs", "--jsonl", "--key", "default", "--header", "a=1", feed=feed)
    views = shell.broker.peek("jobs", with_body=True)
    assert [view.payload for view in views] == [b"text", b'{"any":["json",1]}', b"\x00\xff"]
    assert [view.headers for view in views] == [{"a": "1", "b": "2"}, {"a": "1"}, {"a": "1"}]
    assert [view.fairness_key for view in views] == ["acme", "default", ("a", "b")]
    assert [(view.status, view.weight) for view in views][1] == ("delayed", 2)


BAD_LINES = [
    ("{", "Expecting"),
    ("[]", "JSON object"),
    ('{"headers": {}}', "has no payload"),
    ('{"payload": "x", "unknown": 1}', "unknown"),
    ('{"payload": "x", "weight": "heavy"}', "weight"),
    ('{"payload": "x", "headers": {"a": 1}}', "headers"),
    ('{"payload": "x", "delay": "soon"}', "duration"),
    ('{"payload_base64": "%%%"}', "base64"),
    ('{"payload_base64": 3}', "base64"),
    ("\xff\xfe", "line"),
]


@pytest.mark.parametrize(("line", "said"), BAD_LINES)
def test_a_bad_line_does_not_hold_up_the_others(shell: Shell, line: str, said: str) -> None:
    """A bad line is reported with its number, the others are enqueued, and the exit code is 1."""
    feed = b'{"payload": "1"}\n' + line.encode("latin-1") + b'\n{"payload": "2"}\n'
    outcome = shell.run("enqueue", "jobs", "--jsonl", feed=feed)
    assert (outcome.code, outcome.out) == (1, "Enqueued 2 messages, 1 refused.\n")
    assert outcome.err.startswith("error[invalid_argument]: line 2: ")
    assert said in outcome.err
    assert payloads(shell) == [b"1", b"2"]


def test_a_full_queue_is_unavailable(shell: Shell) -> None:
    """Refused messages are counted, the first are reported, and the exit code says to retry."""
    shell.broker.update_queue("jobs", {"waiting_max": 2})
    outcome = shell.run("-o", "json", "enqueue", "jobs", "--lines", feed="x\n" * 20)
    assert outcome.code == 3
    assert (outcome.json["enqueued"], outcome.json["failed"], len(outcome.json["errors"])) == (2, 18, 10)
    assert outcome.json["errors"][0]["line"] == 3
    assert outcome.json["errors"][0]["code"] == "queue_full"
    assert shell.run("enqueue", "jobs", "one more").code == 3


def test_lines_can_be_sent_twice(shell: Shell) -> None:
    """With a dedup prefix a second run enqueues nothing."""
    for _ in range(2):
        shell.ok("enqueue", "jobs", "--lines", "--dedup-prefix", "load-1", feed="a\nb\n")
    assert payloads(shell) == [b"a", b"b"]


def test_an_interrupted_run_reports_its_progress(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error output says how many lines were enqueued."""
    send = shell.broker.enqueue_many
    batches: list[int] = []

    def break_down(queue: str, messages: object, **more: object) -> object:
        batches.append(1)
        if len(batches) > 1:
            raise Disconnected("Connection lost.")
        return send(queue, messages, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(shell.broker, "enqueue_many", break_down)
    outcome = shell.run("enqueue", "jobs", "--lines", feed="x\n" * 700)
    assert outcome.code == 3
    assert outcome.err.splitlines()[0] == "Stopped: 500 messages enqueued, up to line 500."


@pytest.mark.parametrize(
    "arguments",
    [
        ["payload", "--lines"],
        ["payload", "--file", "x"],
        ["--lines", "--jsonl"],
        ["--lines", "--dedup-id", "x"],
        ["payload", "--dedup-prefix", "x"],
        ["payload", "--delay", "5"],
        ["payload", "--delay", "5 minutes"],
        ["payload", "--key", "a//b"],
        ["payload", "--header", "x"],
        ["payload", "--weight", "much"],
        ["payload", "--priority", "urgent"],
    ],
)
def test_wrong_usage(shell: Shell, arguments: list[str]) -> None:
    """Usage errors are found before a broker is called."""
    outcome = shell.run("-o", "json", "enqueue", "jobs", *arguments)
    assert (outcome.code, outcome.error["code"], shell.endpoints) == (2, "usage", [])
    assert outcome.error["remedy"] == "See fairlane enqueue --help."


def test_refusals_of_the_broker_are_reported(shell: Shell) -> None:
    """A missing queue and a term out of range are reported with their codes."""
    assert shell.run("-o", "json", "enqueue", "no", "x").error["code"] == "queue_not_found"
    assert shell.run("-o", "json", "enqueue", "no", "--lines", feed="x").error["code"] == "queue_not_found"
    assert shell.run("-o", "json", "enqueue", "jobs", "x", "--weight", "0").error["code"] == "invalid_argument"


def test_a_missing_file_is_refused(shell: Shell) -> None:
    """A missing file has a cause and a remedy, and no traceback."""
    outcome = shell.run("enqueue", "jobs", "--file", "/nowhere/at/all")
    assert outcome.code == 1
    assert outcome.err.startswith("error[file]: ")
