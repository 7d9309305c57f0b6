"""Tests of the commands ``consumers`` and ``sinks``."""

from __future__ import annotations

import json

from fairlane.model.message import NewMessage
from tests.unit.cli.shell import Shell


def test_consumers_are_shown_and_released(shell: Shell) -> None:
    """The list shows a consumer's claims, and a release returns the claimed messages."""
    shell.broker.create_queue("mail")
    shell.broker.enqueue_many("mail", [NewMessage(), NewMessage()])
    epoch = shell.broker.register_consumer("mail", "etl", idle_ms=60_000).epoch
    shell.broker.claim("mail", "etl", epoch=epoch, done=0)
    (line,) = [line for line in shell.ok("consumers", "list", "mail").out.splitlines() if line.startswith("etl")]
    assert line.split()[:5] == ["etl", str(epoch), "1", "0", "2"]
    (view,) = json.loads(shell.ok("-o", "json", "consumers", "list", "mail").out)
    assert (view["name"], view["open_messages"], view["idle_ms"]) == ("etl", 2, 60_000)
    assert "returned 2 messages" in shell.ok("consumers", "release", "mail", "etl", "--yes").out
    assert shell.broker.consumers("mail") == []


def test_sinks_are_shown_and_dropped(shell: Shell) -> None:
    """The list shows a sink's staged messages, and a drop deletes them."""
    shell.broker.create_queue("mail")
    shell.broker.stage("mail", "nightly", batch=4, part="p", at=0, messages=[NewMessage(payload=b"xyz")])
    (line,) = [line for line in shell.ok("sinks", "list", "mail").out.splitlines() if line.startswith("nightly")]
    assert line.split()[:5] == ["nightly", "-", "1", "3", "B"]
    assert "staged" in shell.ok("queue", "inspect", "mail").out
    said = json.loads(shell.ok("-o", "json", "sinks", "drop", "mail", "nightly", "--yes").out)
    assert said == {"queue": "mail", "sink": "nightly", "dropped": 1}
    assert shell.broker.sinks("mail") == []


def test_a_message_is_shown_with_its_claim(shell: Shell) -> None:
    """A claimed message shows its consumer and claim instead of the end of its lease."""
    shell.broker.create_queue("mail")
    message_id = shell.broker.enqueue("mail", b"x")
    epoch = shell.broker.register_consumer("mail", "etl").epoch
    shell.broker.claim("mail", "etl", epoch=epoch, done=0)
    assert "claimed by consumer etl under claim 1" in shell.ok("explain", "mail", message_id).out
    assert "1, 1 claimed" in shell.ok("queue", "inspect", "mail").out
