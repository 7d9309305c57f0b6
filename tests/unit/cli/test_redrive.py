"""The command ``redrive``."""

from __future__ import annotations

import pytest

from fairlane.cli import redrive
from tests.unit.cli.shell import Shell
from tests.unit.cli.test_messages import died


def test_dead_letters_go_back(shell: Shell) -> None:
    """It waits until all are moved, and says how many those were."""
    died(shell)
    assert shell.ok("redrive", "jobs").out == "3 messages moved from jobs.dlq.\n"
    assert (shell.broker.queue("jobs").waiting, shell.broker.queue("jobs").dead) == (3, 0)


def test_a_dry_run_counts(shell: Shell) -> None:
    """Filters say which are meant, and nothing is moved."""
    died(shell)
    cases = {("--error", "money"): 2, ("--key", "acme", "--count", "1"): 1, ("--older-than", "1d"): 0}
    for options, expected in cases.items():
        said = shell.ok("-o", "json", "redrive", "jobs.dlq", "--dry-run", *options).json
        assert (said["matched"], said["moved"]) == (expected, 0)
    assert shell.ok("redrive", "jobs", "--dry-run").out == "3 messages of 3 in jobs.dlq would be moved.\n"
    assert shell.broker.queue("jobs").dead == 3


def test_some_go_back(shell: Shell) -> None:
    """A count and a rate limit it."""
    died(shell)
    assert shell.ok("-o", "json", "redrive", "jobs", "--count", "2", "--rate", "1000").json["moved"] == 2


def test_it_may_go_on_alone(shell: Shell) -> None:
    """Without waiting the answer is its id."""
    died(shell)
    outcome = shell.ok("redrive", "jobs", "--rate", "0.001", "--no-wait")
    assert outcome.out == "Redrive redrive-1 of jobs.dlq has begun.\n"
    assert shell.broker.stop_redrive("redrive-1").status == "stopped"


def test_an_interrupt_stops_it(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has moved stays moved, the rest stays dead, and the exit code is 130."""
    died(shell)

    class Impatient:
        def wait(self, _: float) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr(redrive, "Event", Impatient)
    outcome = shell.run("redrive", "jobs", "--rate", "0.001")
    assert outcome.code == 130
    assert "then it was stopped." in outcome.err
    assert shell.broker.redrives()[-1].status == "stopped"


@pytest.mark.parametrize("options", [["--count", "0"], ["--rate", "0"], ["--rate", "-1"], ["--older-than", "x"]])
def test_wrong_usage(shell: Shell, options: list[str]) -> None:
    """What makes no sense is refused before anything is asked of a broker."""
    assert (shell.run("redrive", "jobs", *options).code, shell.places) == (2, [])


def test_a_queue_that_is_not_there(shell: Shell) -> None:
    """It is refused."""
    assert shell.run("-o", "json", "redrive", "no").error["code"] == "queue_not_found"
