"""A shell for tests that runs commands in this process, on a broker in memory."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from click.testing import CliRunner

from fairlane.assembly import Broker
from fairlane.cli.main import cli
from fairlane.cli.session import Endpoint
from fairlane.verbs.methods.complete import AllVerbs


@dataclass(frozen=True)
class Outcome:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads(self.err.splitlines()[-1])["error"]
        return facts


class Shell:
    """Runs commands against one broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.endpoints: list[Endpoint] = []

    def run(self, *arguments: str, feed: str | bytes | None = None, env: dict[str, str] | None = None) -> Outcome:
        """Run a command with its arguments."""
        result = CliRunner().invoke(cli, arguments, input=feed, env=env, obj=self._connect)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Outcome(result.exit_code, result.stdout, result.stderr)

    def ok(self, *arguments: str, feed: str | bytes | None = None, env: dict[str, str] | None = None) -> Outcome:
        """Run a command, assert that it succeeds, and return its output."""
        outcome = self.run(*arguments, feed=feed, env=env)
        assert outcome.code == 0, outcome
        return outcome

    def _connect(self, endpoint: Endpoint) -> AbstractContextManager[AllVerbs[Any]]:
        self.endpoints.append(endpoint)
        return nullcontext(self.broker)
