"""Tests of the command ``redrive``."""

from __future__ import annotations

import pytest

from fairlane.cli import dead_letters
from tests.unit.cli.shell import Shell
from tests.unit.cli.test_messages import died


def test_dead_letters_go_back(shell: Shell) -> None:
    """The command waits until all are moved, and prints how many."""
    died(shell)
    assert shell.ok("redrive", "jobs").out == "Moved 3 messages from jobs.dlq.\n"
    assert (shell.broker.queue("jobs").waiting, shell.broker.queue("jobs").dead) == (3, 0)


def test_the_dead_letters_of_one_of_several_queues_go_back(shell: Shell) -> None:
    """Naming a queue means its own letters, wherever they are; naming the dead-letter queue means all, unless from."""
    broker = shell.broker
    broker.create_queue("failures")
    for name in ("a", "b"):
        broker.create_queue(name, {"dead_letter_queue": "failures"})
        broker.enqueue(name, name.encode())
        broker.nack(broker.lease(name)[0], intent="dead")
    listed = [shell.ok("-o", "json", "dlq", "list", *queue).json for queue in (["a"], ["failures", "--from", "b"])]
    assert [[view["dead"]["origin"] for view in views] for views in listed] == [["a"], ["b"]]
    assert shell.ok("redrive", "a").out == "Moved 1 message from failures.\n"
    assert shell.ok("redrive", "failures").out == "Moved 1 message from failures.\n"
    assert (broker.queue("a").waiting, broker.queue("b").waiting, broker.queue("failures").waiting) == (1, 1, 0)


def test_messages_among_dead_letters_are_none(shell: Shell) -> None:
    """A queue that others use for their dead letters keeps its own messages, whatever is listed or deleted."""
    broker = shell.broker
    broker.create_queue("failures")
    broker.create_queue("a", {"dead_letter_queue": "failures"})
    broker.enqueue("failures", b"own")
    broker.enqueue("a", b"dead")
    broker.nack(broker.lease("a")[0], intent="dead")
    listed = shell.ok("-o", "json", "dlq", "list", "failures", "--count", "1").json
    assert [view["dead"]["origin"] for view in listed] == ["a"]
    assert shell.ok("dlq", "delete", "failures", "--all", "--yes").out == "Deleted 1 message of failures.\n"
    assert [view.id for view in broker.peek("failures")] == [broker.lease("failures")[0].id]


def test_dead_letters_that_are_gone_are_counted(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are deleted, however many requests that takes, and the exit code says that some were not."""
    monkeypatch.setattr(dead_letters, "BATCH_MAX", 2)
    died(shell)
    first, second, third = (view.id for view in shell.broker.peek("jobs.dlq"))
    shell.broker.cancel("jobs.dlq", first)
    outcome = shell.run("dlq", "delete", "jobs", first, second, third, "--yes")
    assert outcome.code == 1
    assert outcome.out.startswith("Deleted 2 messages of jobs.dlq. Refused 1: ")
    assert first in outcome.out
    assert shell.broker.queue("jobs").dead == 0
    again = shell.run("-o", "json", "dlq", "delete", "jobs", second, third, "--yes")
    assert (again.code, again.json) == (1, {"queue": "jobs.dlq", "deleted": 0, "refused": 2})


def test_a_dry_run_counts(shell: Shell) -> None:
    """A dry run counts the selected messages and moves none."""
    died(shell)
    cases = {("--error", "money"): 2, ("--key", "acme", "--count", "1"): 1, ("--older-than", "1d"): 0}
    for options, expected in cases.items():
        said = shell.ok("-o", "json", "redrive", "jobs.dlq", "--dry-run", *options).json
        assert (said["matched"], said["moved"]) == (expected, 0)
    assert shell.ok("redrive", "jobs", "--dry-run").out == "Would move 3 messages of 3 in jobs.dlq.\n"
    assert shell.broker.queue("jobs").dead == 3


def test_some_go_back(shell: Shell) -> None:
    """A count and a rate limit the redrive."""
    died(shell)
    assert shell.ok("-o", "json", "redrive", "jobs", "--count", "2", "--rate", "1000").json["moved"] == 2


def test_no_wait_returns_at_once(shell: Shell) -> None:
    """With --no-wait the command prints the id and returns."""
    died(shell)
    outcome = shell.ok("redrive", "jobs", "--rate", "0.001", "--no-wait")
    (view,) = shell.broker.redrives()
    assert outcome.out == f"Started redrive {view.id} of jobs.dlq.\n"
    assert view.id.endswith("@jobs.dlq")


def test_redrives_are_listed_and_stopped(shell: Shell) -> None:
    """Progress, rate and status are shown by ``dlq redrives`` and by ``stats``, until ``dlq stop`` ends the redrive."""
    died(shell)
    view = shell.broker.redrive("jobs.dlq", rate=0.001, by="ann")
    shell.broker.redrive_view(view.id)
    listed = shell.ok("dlq", "redrives").out.splitlines()[-1].split()
    assert listed[:5] == [view.id, "jobs.dlq", "running", "1", "3"]
    assert shell.ok("stats", "jobs").out.splitlines()[-1].split()[:5] == listed[:5]
    assert shell.ok("dlq", "stop", view.id).out == "Redrive stopped after moving 1 message from jobs.dlq.\n"
    assert shell.ok("-o", "json", "dlq", "redrives").json[0]["status"] == "stopped"
    assert shell.run("-o", "json", "dlq", "stop", "redrive-99").error["code"] == "redrive_not_found"


def test_an_interrupt_stops_it(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Moved messages stay moved, the others stay dead, and the exit code is 130."""
    died(shell)

    class Impatient:
        def wait(self, _: float) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr(dead_letters, "Event", Impatient)
    outcome = shell.run("redrive", "jobs", "--rate", "0.001")
    assert outcome.code == 130
    assert "Redrive stopped after moving " in outcome.err
    assert shell.broker.redrives()[-1].status == "stopped"


@pytest.mark.parametrize("options", [["--count", "0"], ["--rate", "0"], ["--rate", "-1"], ["--older-than", "x"]])
def test_wrong_usage(shell: Shell, options: list[str]) -> None:
    """Usage errors are found before a broker is called."""
    assert (shell.run("redrive", "jobs", *options).code, shell.endpoints) == (2, [])


def test_a_missing_queue_is_refused(shell: Shell) -> None:
    """A missing queue is refused."""
    assert shell.run("-o", "json", "redrive", "no").error["code"] == "queue_not_found"


def test_dead_letters_are_deleted(shell: Shell) -> None:
    """Those with an id, and then those that a filter selects, are gone for good; nothing is deleted by default."""
    died(shell)
    first = shell.broker.peek("jobs.dlq")[0].id
    assert shell.run("dlq", "delete", "jobs", "--yes").code == 2
    assert shell.ok("dlq", "delete", "jobs", first, "--yes").out == "Deleted 1 message of jobs.dlq.\n"
    assert shell.ok("dlq", "delete", "jobs", "--all", "--older-than", "1d", "--yes", "-o", "json").json["deleted"] == 0
    assert shell.broker.queue("jobs").dead == 2
    assert shell.ok("dlq", "delete", "jobs", "--all", "--yes").out == "Deleted 2 messages of jobs.dlq.\n"
    assert shell.broker.queue("jobs").dead == 0
