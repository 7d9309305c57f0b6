"""A shell for tests: commands run in this process, on a broker in memory."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from click.testing import CliRunner

from fairlane.assembly import Broker
from fairlane.cli.door import Door
from fairlane.cli.main import cli
from fairlane.cli.session import Place


@dataclass(frozen=True)
class Outcome:
    """What came of a command."""

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
    """Runs commands on a broker that stays between them."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.places: list[Place] = []

    def run(self, *arguments: str, feed: str | bytes | None = None, env: dict[str, str] | None = None) -> Outcome:
        """Run a command as somebody would type it."""
        result = CliRunner().invoke(cli, arguments, input=feed, env=env, obj=self._connect)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Outcome(result.exit_code, result.stdout, result.stderr)

    def ok(self, *arguments: str, feed: str | bytes | None = None, env: dict[str, str] | None = None) -> Outcome:
        """Run a command that is to succeed, and return what it said."""
        outcome = self.run(*arguments, feed=feed, env=env)
        assert outcome.code == 0, outcome
        return outcome

    def _connect(self, place: Place) -> AbstractContextManager[Door]:
        self.places.append(place)
        return nullcontext(self.broker)
