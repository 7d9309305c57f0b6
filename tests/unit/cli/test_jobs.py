"""Tests of the command ``message``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

from fairlane.assembly import Broker, NewMessage
from fairlane.model.status import StatusView
from tests.unit.cli.shell import Shell


class BusyBroker:
    """A broker with a consumer that does its next step whenever somebody waits for a change."""

    def __init__(self, broker: Broker, steps: Iterator[Callable[[], object]]) -> None:
        self._broker = broker
        self._steps = steps

    def status(self, message_id: str, **options: Any) -> StatusView:
        """Return the status after the next step, or at once."""
        if options.get("after") is not None:
            next(self._steps)()
        return self._broker.status(message_id, **options)


def watched(shell: Shell, message: NewMessage, *arguments: str) -> str:
    """Return what is printed about a message that is leased, reports progress, and fails."""
    broker = shell.broker
    message_id = broker.enqueue("jobs", message)
    held: list[Any] = []
    steps = (
        lambda: held.extend(broker.lease("jobs", owner="worker-1")),
        lambda: broker.report_progress(held[0], 0.25, note="page 1"),
        lambda: broker.nack(held[0], error="no paper"),
    )
    shell.broker = cast("Broker", BusyBroker(broker, iter(steps)))
    return shell.ok(*arguments, "message", "watch", message_id).out


def test_a_message_is_watched_until_its_end(shell: Shell) -> None:
    """Each change is a line with what is new: the consumer, its progress, and why the message died."""
    lines = watched(shell, NewMessage(payload=b"print")).splitlines()
    told = [line.split("  ", 1)[1] for line in lines]
    assert told[0].startswith("waiting  ")
    assert told[1:3] == ["running  attempt 1  worker-1", "running  attempt 1  worker-1  25% page 1"]
    assert told[3] == "dead  It is a dead letter of jobs: max_attempts.  no paper"
    assert len(told) == 4


def test_changes_are_lines_of_json(shell: Shell) -> None:
    """With JSON each line is a whole status."""
    lines = watched(shell, NewMessage(payload=b"print"), "-o", "json").splitlines()
    assert ['"status": "waiting"' in lines[0], '"fraction": 0.25' in lines[2], '"status": "dead"' in lines[3]] == [
        True,
        True,
        True,
    ]


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
