"""Tests of the command ``call``: every verb can be reached from a shell."""

from __future__ import annotations

import click

from fairlane.cli.main import cli
from fairlane.verbs.table import VERBS
from tests.unit.cli.shell import Shell


def test_any_verb_is_called_with_json(shell: Shell) -> None:
    """The answer is JSON, whatever the output format."""
    shell.broker.enqueue("jobs", b"hello")
    answered = shell.ok("-o", "json", "call", "peek", '{"queue": "jobs", "with_body": true}').json
    assert [message["payload"] for message in answered["messages"]] == ["hello"]
    assert shell.ok("-o", "json", "call", "readers").json == {"readers": []}


def test_a_bad_request_is_refused(shell: Shell) -> None:
    """Unknown verbs, unknown fields and text that is not JSON are errors of the caller."""
    assert shell.run("call", "no_such_verb").code == 2
    assert shell.run("call", "peek", '{"ques": "jobs"}').code == 1
    assert shell.run("call", "peek", "jobs").code == 1


def test_the_commands_that_verbs_name_exist() -> None:
    """A verb that names its command names one that there is."""
    for verb in VERBS.values():
        command: click.Command | None = cli
        for part in (verb.command or "").split():
            assert isinstance(command, click.Group), verb.name
            command = command.get_command(click.Context(command), part)
        assert command is not None, f"{verb.name}: there is no command {verb.command!r}"
