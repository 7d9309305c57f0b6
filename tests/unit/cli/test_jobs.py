"""Tests of the command ``message``."""

from __future__ import annotations

from tests.unit.cli.shell import Shell


def died(shell: Shell) -> str:
    """Dead-letter a message and return its id."""
    message_id = shell.broker.enqueue("jobs", b"work")
    (delivery,) = shell.broker.lease("jobs")
    shell.broker.nack(delivery, error="timeout")
    return message_id


def test_a_status_needs_no_queue(shell: Shell) -> None:
    """The status of a dead letter names its queue and its error, and JSON has the same facts."""
    message_id = died(shell)
    out = shell.ok("message", "show", message_id).out
    assert "jobs.dlq" in out
    assert "timeout" in out
    assert shell.ok("message", "show", message_id, "-o", "json").json["status"] == "dead"


def test_a_dead_letter_is_retried_by_its_id(shell: Shell) -> None:
    """Only the named dead letter goes back to its queue, with its attempts from 0."""
    message_id, other = died(shell), died(shell)
    assert shell.ok("message", "retry", message_id).out == f"Moved message {message_id} to jobs.\n"
    view = shell.broker.get("jobs", message_id)
    assert (view.status, view.attempts) == ("waiting", 0)
    assert [view.id for view in shell.broker.peek("jobs.dlq")] == [other]


def test_only_a_dead_letter_is_retried(shell: Shell) -> None:
    """A message that waits is refused with its status, and an unknown one as not found."""
    message_id = shell.broker.enqueue("jobs", b"work")
    error = shell.run("message", "retry", message_id, "-o", "json").error
    assert error["cause"] == f"The status of message {message_id} is waiting; only a dead letter is retried."
    assert error["remedy"] == "See its status with `fairlane message show ID`."
    assert shell.run("message", "retry", "0" * 16, "-o", "json").error["code"] == "message_not_found"


def test_a_message_is_cancelled_by_its_id(shell: Shell) -> None:
    """With and without its queue a message is cancelled, and its status says so."""
    for options in ([], ["--queue", "jobs"]):
        message_id = shell.broker.enqueue("jobs", b"work")
        assert shell.ok("message", "cancel", message_id, "--yes", *options).out == f"Cancelled message {message_id}.\n"
        assert shell.broker.status(message_id).status == "cancelled"
    assert shell.broker.queue("jobs").waiting == 0


def test_a_question_without_a_terminal_has_a_line_of_its_own(shell: Shell) -> None:
    """Without a terminal to answer on, the error begins on a new line and names the option."""
    message_id = shell.broker.enqueue("jobs", b"work")
    outcome = shell.run("message", "cancel", message_id)
    assert outcome.code == 2
    assert outcome.err.splitlines()[1] == "error[usage]: No terminal for confirmation; pass --yes."


def test_a_result_that_is_not_there_in_time_has_an_exit_code_of_its_own(shell: Shell) -> None:
    """A message that has not ended has no result: exit code 4."""
    message_id = shell.broker.enqueue("jobs", b"work")
    outcome = shell.run("message", "result", message_id, "--wait", "5ms")
    assert (outcome.code, outcome.out) == (4, "")
