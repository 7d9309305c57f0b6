"""Tests of the command ``consume``."""

from __future__ import annotations

import pytest

from fairlane.cli import consume
from fairlane.model.message import Delivery
from tests.unit.cli.shell import Shell


def filled(shell: Shell, count: int = 3) -> None:
    """Enqueue numbered messages."""
    for number in range(count):
        shell.broker.enqueue("jobs", b"%d" % number)


def test_payloads_are_printed_and_acked(shell: Shell) -> None:
    """All payloads are printed, one per line, and the queue is empty."""
    filled(shell, 70)
    assert shell.ok("consume", "jobs", "--ack").out.split() == [str(number) for number in range(70)]
    view = shell.broker.queue("jobs")
    assert (view.waiting, view.leased, view.dead) == (0, 0, 0)


def test_a_count_ends_it(shell: Shell) -> None:
    """The command stops after the given number of messages, even with --follow."""
    filled(shell)
    assert shell.ok("consume", "jobs", "--ack", "--follow", "--count", "2").out == "0\n1\n"
    assert shell.broker.queue("jobs").waiting == 1


def test_json_lines_are_whole_messages(shell: Shell) -> None:
    """A JSON line is a complete message, which can be acknowledged later with --no-ack."""
    shell.broker.enqueue("jobs", b"work", headers={"a": "b"})
    (line,) = shell.ok("-o", "json", "consume", "jobs", "--no-ack", "--visibility", "1h", "--owner", "me").lines
    assert (line["payload"], line["headers"]) == ("work", {"a": "b"})
    assert shell.broker.peek("jobs")[0].owner == "me"
    shell.ok("ack", "--queue", "jobs", "--id", line["id"], "--token", str(line["token"]))


@pytest.mark.parametrize("options", [(), ("--ack",), ("--no-ack",), ("--wait", "5ms")])
def test_nothing_to_print_has_an_exit_code_of_its_own(shell: Shell, options: tuple[str, ...]) -> None:
    """If no message arrives in time, nothing is printed and the exit code is 4, as for lease."""
    outcome = shell.run("consume", "jobs", *options)
    assert (outcome.code, outcome.out, outcome.err) == (4, "", "")


def test_an_interrupt_loses_nothing(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Printed messages are acknowledged, the others wait again without a failure, and the exit code is 130."""
    filled(shell)
    print_one = consume.MessagePrinter._print

    def interrupted(self: consume.MessagePrinter, delivery: Delivery) -> None:
        if delivery.payload == b"1":
            raise KeyboardInterrupt
        print_one(self, delivery)

    monkeypatch.setattr(consume.MessagePrinter, "_print", interrupted)
    outcome = shell.run("consume", "jobs", "--ack")
    assert (outcome.code, outcome.out) == (130, "0\n")
    views = shell.broker.peek("jobs", with_body=True)
    assert sorted((view.payload, view.status, view.failures) for view in views) == [
        (b"1", "waiting", 0),
        (b"2", "waiting", 0),
    ]


def test_a_lost_lease_is_reported(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that was printed but not acknowledged is reported, with exit code 1."""
    filled(shell, 1)
    print_one = consume.MessagePrinter._print

    def slowly(self: consume.MessagePrinter, delivery: Delivery) -> None:
        print_one(self, delivery)
        shell.broker.nack(delivery, intent="defer", delay_ms=60_000)

    monkeypatch.setattr(consume.MessagePrinter, "_print", slowly)
    outcome = shell.run("consume", "jobs", "--ack")
    assert (outcome.code, outcome.out) == (1, "0\n")
    assert outcome.err == "1 message printed but not acknowledged, because their leases had ended.\n"


def test_a_missing_queue_is_refused(shell: Shell) -> None:
    """A missing queue is refused."""
    assert shell.run("consume", "no", "--ack", "--follow").err.startswith("error[queue_not_found]: ")


def test_nothing_is_acknowledged_unless_asked_for(shell: Shell) -> None:
    """Without --ack the first ten messages are printed, and all of them wait as before, with no failure."""
    filled(shell, 12)
    outcome = shell.ok("consume", "jobs")
    assert outcome.out.split() == [str(number) for number in range(10)]
    assert outcome.err == "10 messages printed and returned. Pass --ack to acknowledge them.\n"
    view = shell.broker.queue("jobs")
    assert (view.waiting, view.leased, view.dead) == (12, 0, 0)
    assert {message.failures for message in shell.broker.peek("jobs", 100)} == {0}


def test_following_needs_a_decision(shell: Shell) -> None:
    """A command that goes on must say whether it acknowledges."""
    outcome = shell.run("consume", "jobs", "--follow")
    assert outcome.code == 2
    assert "--follow needs --ack or --no-ack." in outcome.err
