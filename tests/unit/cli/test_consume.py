"""The command ``consume``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlane.cli import consume
from fairlane.model.message import Delivery
from tests.unit.cli.shell import Shell

if TYPE_CHECKING:
    import pytest


def filled(shell: Shell, count: int = 3) -> None:
    """Enqueue some messages."""
    for number in range(count):
        shell.broker.enqueue("jobs", b"%d" % number)


def test_payloads_are_printed_and_acked(shell: Shell) -> None:
    """Everything that is there is printed, a line each, and the queue is empty."""
    filled(shell, 70)
    assert shell.ok("consume", "jobs").out.split() == [str(number) for number in range(70)]
    view = shell.broker.queue("jobs")
    assert (view.waiting, view.leased, view.dead) == (0, 0, 0)
    assert shell.ok("consume", "jobs").out == ""


def test_a_count_ends_it(shell: Shell) -> None:
    """Only so many are taken, also while following."""
    filled(shell)
    assert shell.ok("consume", "jobs", "--follow", "--count", "2").out == "0\n1\n"
    assert shell.broker.queue("jobs").waiting == 1


def test_json_lines_are_whole_messages(shell: Shell) -> None:
    """Programs get everything, and may ack by themselves what was left leased."""
    shell.broker.enqueue("jobs", b"work", headers={"a": "b"})
    (line,) = shell.ok("-o", "json", "consume", "jobs", "--no-ack", "--visibility", "1h", "--owner", "me").lines
    assert (line["payload"], line["headers"]) == ("work", {"a": "b"})
    assert shell.broker.peek("jobs")[0].owner == "me"
    shell.ok("ack", "--queue", "jobs", "--id", line["id"], "--token", str(line["token"]))


def test_waiting_ends(shell: Shell) -> None:
    """With nothing to come it ends after the time it was told to wait."""
    assert shell.ok("consume", "jobs", "--wait", "5ms").out == ""


def test_an_interrupt_loses_nothing(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was printed is acked, what was not is free again without a failure, and the exit code is 130."""
    filled(shell)
    print_one = consume.Consuming._print

    def interrupted(self: consume.Consuming, delivery: Delivery) -> None:
        if delivery.payload == b"1":
            raise KeyboardInterrupt
        print_one(self, delivery)

    monkeypatch.setattr(consume.Consuming, "_print", interrupted)
    outcome = shell.run("consume", "jobs")
    assert (outcome.code, outcome.out) == (130, "0\n")
    views = shell.broker.peek("jobs", with_body=True)
    assert sorted((view.payload, view.status, view.failures) for view in views) == [
        (b"1", "waiting", 0),
        (b"2", "waiting", 0),
    ]


def test_a_lost_lease_is_told(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was printed but is not acked comes again, and the exit code says so."""
    filled(shell, 1)
    print_one = consume.Consuming._print

    def slowly(self: consume.Consuming, delivery: Delivery) -> None:
        print_one(self, delivery)
        shell.broker.nack(delivery, intent="defer", delay_ms=60_000)

    monkeypatch.setattr(consume.Consuming, "_print", slowly)
    outcome = shell.run("consume", "jobs")
    assert (outcome.code, outcome.out) == (1, "0\n")
    assert outcome.err == "1 message printed but not acked: their leases had ended.\n"


def test_a_queue_that_is_not_there(shell: Shell) -> None:
    """It is refused."""
    assert shell.run("consume", "no", "--follow").err.startswith("error[queue_not_found]: ")
