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
