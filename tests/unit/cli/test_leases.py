"""Tests of the commands ``dequeue``, ``ack``, ``nack`` and ``extend``."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.unit.cli.shell import Outcome, Shell


def exports(outcome: Outcome) -> dict[str, str]:
    """Return the variables that a shell has after ``eval``."""
    lines = [line.removeprefix("export ") for line in outcome.out.splitlines() if line.startswith("export ")]
    return dict(shlex.split(line)[0].split("=", 1) for line in lines)


def test_a_leased_message_is_exported(shell: Shell) -> None:
    """The variables name the queue, the message, the token, and a private file with the payload."""
    shell.broker.enqueue("jobs", b"\x00 work", fairness_key=("acme", "it's"))
    known = exports(shell.ok("dequeue", "jobs"))
    path = Path(known["FAIRLANE_QUEUE_PAYLOAD_PATH"])
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"\x00 work", 0o600)
    (view,) = shell.broker.peek("jobs")
    assert (known["FAIRLANE_QUEUE_NAME"], known["FAIRLANE_QUEUE_MESSAGE_ID"]) == ("jobs", view.id)
    assert known["FAIRLANE_QUEUE_TOKEN"] == str(shell.broker.read_journal().events[-1]["token"])
    assert (known["FAIRLANE_QUEUE_KEY"], known["FAIRLANE_QUEUE_ATTEMPT"]) == ("acme/it's", "1")
    shell.ok("ack", env=known)
    assert shell.broker.queue("jobs").leased == 0
    assert not path.exists()


def test_one_message_is_leased_and_no_more(shell: Shell) -> None:
    """A dequeue leases one message; the others keep waiting."""
    shell.broker.enqueue("jobs", b"1")
    shell.broker.enqueue("jobs", b"2")
    shell.ok("dequeue", "jobs", "--owner", "me", "--visibility", "1h")
    view = shell.broker.queue("jobs")
    assert (view.waiting, view.leased) == (1, 1)
    leased = shell.broker.peek("jobs")[0]
    assert leased.owner == "me"
    assert leased.expires_ms is not None
    assert leased.expires_ms >= leased.enqueued_ms + 3_600_000


def test_a_payload_is_written_where_it_is_told(shell: Shell, tmp_path: Path) -> None:
    """The chosen file is exported with its absolute path, and stays after the ack."""
    shell.broker.enqueue("jobs", b"work")
    known = exports(shell.ok("dequeue", "jobs", "--payload-out", str(tmp_path / "out file")))
    assert known["FAIRLANE_QUEUE_PAYLOAD_PATH"] == str(tmp_path / "out file")
    shell.ok("ack", env=known)
    assert (tmp_path / "out file").read_bytes() == b"work"


def test_a_message_that_cannot_be_written_is_returned(shell: Shell) -> None:
    """A message whose payload cannot be written waits again at once, without a failure."""
    shell.broker.enqueue("jobs", b"work")
    outcome = shell.run("dequeue", "jobs", "--payload-out", "/nowhere/at/all")
    assert outcome.code == 1
    assert outcome.out.endswith("(exit 1)\n")
    assert outcome.err.startswith("error[file]: ")
    (view,) = shell.broker.peek("jobs")
    assert (view.status, view.failures) == ("waiting", 0)


def test_nothing_there(shell: Shell) -> None:
    """The exit code is 4; ``eval`` unsets the previous message and fails with the same code."""
    outcome = shell.run("dequeue", "jobs")
    assert outcome.code == 4
    assert outcome.out.startswith("unset FAIRLANE_QUEUE_NAME ")
    assert outcome.out.endswith("\n(exit 4)\n")
    assert shell.run("-o", "json", "dequeue", "jobs", "--wait", "1ms").out == ""


def test_dequeue_blocks_until_there_is_a_message(shell: Shell) -> None:
    """With ``--block`` it waits for a message, and takes one that is there at once; a limit contradicts it."""
    shell.broker.enqueue("jobs", b"work", delay_ms=100)
    known = exports(shell.ok("dequeue", "jobs", "--block"))
    assert Path(known["FAIRLANE_QUEUE_PAYLOAD_PATH"]).read_bytes() == b"work"
    shell.ok("ack", env=known)
    assert shell.run("dequeue", "jobs", "--block", "--wait", "1s").code == 2


def test_a_refusal_fails_eval_too(shell: Shell) -> None:
    """``eval`` fails with the exit code of the command."""
    outcome = shell.run("dequeue", "no")
    assert (outcome.code, outcome.out.splitlines()[-1]) == (1, "(exit 1)")
    assert "error[queue_not_found]" in outcome.err


def test_several_messages_are_json_lines(shell: Shell, tmp_path: Path) -> None:
    """Several messages need JSON output; shell variables hold one."""
    for payload in (b"1", b"\xff"):
        shell.broker.enqueue("jobs", payload)
    assert shell.run("dequeue", "jobs", "--count", "2").code == 2
    assert shell.run("-o", "json", "dequeue", "jobs", "--count", "2", "--payload-out", str(tmp_path / "x")).code == 2
    first, second = shell.ok("-o", "json", "dequeue", "jobs", "--count", "2").lines
    assert (first["payload"], second["payload_base64"]) == ("1", "/w==")
    assert first["token"] < second["token"]


def test_json_names_the_file_of_the_payload(shell: Shell, tmp_path: Path) -> None:
    """With a payload file, the JSON output has its path instead."""
    shell.broker.enqueue("jobs", b"work")
    said = shell.ok("-o", "json", "dequeue", "jobs", "--payload-out", str(tmp_path / "x")).json
    assert (said["payload_path"], "payload" in said) == (str(tmp_path / "x"), False)


@pytest.mark.parametrize("flag", ["--with-state", "--stateful"])
def test_the_workflow_state_comes_along(shell: Shell, flag: str) -> None:
    """The state is written to a file, and its version is exported."""
    shell.broker.enqueue("jobs", b"work")
    (delivery,) = shell.broker.lease("jobs")
    etag = shell.broker.set_state(delivery, b"half done", etag=None)
    shell.broker.nack(delivery, intent="defer", delay_ms=0)
    known = exports(shell.ok("dequeue", "jobs", flag))
    assert Path(known["FAIRLANE_QUEUE_STATE_PATH"]).read_bytes() == b"half done"
    assert known["FAIRLANE_QUEUE_STATE_ETAG"] == etag
    shell.ok("ack", env=known)
    assert not Path(known["FAIRLANE_QUEUE_STATE_PATH"]).exists()


def leased(shell: Shell) -> dict[str, str]:
    """Lease a message and return its variables."""
    shell.broker.enqueue("jobs", b"work")
    (delivery,) = shell.broker.lease("jobs")
    return {
        "FAIRLANE_QUEUE_NAME": "jobs",
        "FAIRLANE_QUEUE_MESSAGE_ID": delivery.id,
        "FAIRLANE_QUEUE_TOKEN": str(delivery.token),
    }


def flags(known: dict[str, str]) -> list[str]:
    """Return the variables as options."""
    names = {"--queue": "NAME", "--id": "MESSAGE_ID", "--token": "TOKEN"}
    return [part for flag, name in names.items() for part in (flag, known[f"FAIRLANE_QUEUE_{name}"])]


def test_an_ack_by_flags(shell: Shell) -> None:
    """Options can name the message, and set its actual cost."""
    known = leased(shell)
    said = shell.ok("-o", "json", "ack", "--cost", "5", *flags(known)).json
    assert said == {"id": known["FAIRLANE_QUEUE_MESSAGE_ID"], "queue": "jobs", "acked": True}
    assert shell.run("ack", env=known).err.startswith("error[message_not_found]: ")


def test_a_nack_is_a_failure(shell: Shell) -> None:
    """The error is kept, and after the last attempt the message is a dead letter."""
    shell.ok("nack", "--error", "no money", env=leased(shell))
    (dead,) = shell.broker.peek("jobs.dlq")
    assert dead.errors[-1].error == "no money"


def test_a_nack_defers_or_gives_up(shell: Shell) -> None:
    """A deferred message waits without a failure; a dead one goes to the dead letters at once."""
    shell.broker.update_queue("jobs", {"max_attempts": 9})
    said = shell.ok("-o", "json", "nack", "--intent", "defer", "--delay", "1h", env=leased(shell)).json
    assert said["intent"] == "defer"
    (view,) = shell.broker.peek("jobs")
    assert (view.status, view.failures) == ("delayed", 0)
    shell.ok("nack", "--intent", "dead", env=leased(shell))
    assert shell.broker.queue("jobs").dead == 1


def test_a_lease_is_extended(shell: Shell) -> None:
    """The answer has the new end of the lease."""
    known = leased(shell)
    said = shell.ok("-o", "json", "extend", "--visibility", "1h", env=known).json
    assert said["expires_ms"] == shell.broker.peek("jobs")[0].expires_ms
    assert "Extended the lease of message" in shell.ok("extend", env=known).out


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
def test_a_stale_token_is_refused(shell: Shell, verb: str) -> None:
    """A caller without the lease cannot settle or extend the message."""
    known = leased(shell) | {"FAIRLANE_QUEUE_TOKEN": "1"}
    outcome = shell.run("-o", "json", verb, env=known)
    assert (outcome.code, outcome.error["code"]) == (1, "lease_mismatch")


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
def test_a_message_must_be_named(shell: Shell, verb: str) -> None:
    """Without options and environment the usage error names both."""
    outcome = shell.run(verb)
    assert (outcome.code, shell.endpoints) == (2, [])
    assert "FAIRLANE_QUEUE_NAME" in outcome.err
    assert shell.run(verb, "--queue", "jobs", "--id", "1", "--token", "x").code == 2


def test_only_our_own_temporary_files_are_removed(shell: Shell, tmp_path: Path) -> None:
    """An ack removes no file that dequeue did not create."""
    (tmp_path / "fairlane-mine").write_text("keep")
    shell.ok("ack", env=leased(shell) | {"FAIRLANE_QUEUE_PAYLOAD_PATH": str(tmp_path / "fairlane-mine")})
    assert (tmp_path / "fairlane-mine").exists()
