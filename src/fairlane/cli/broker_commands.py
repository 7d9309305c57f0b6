"""Commands that call a broker once and print its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Concatenate, ParamSpec, TypeAlias

import click

from fairlane.cli.interaction import confirm
from fairlane.cli.output import Table
from fairlane.cli.parameters import YES
from fairlane.cli.session import Broker, Session, pass_session

P = ParamSpec("P")
Printed: TypeAlias = tuple[object, Iterable[Table] | str]
"""An answer for programs, and the same as tables or text for people."""
Parameter: TypeAlias = Callable[[Any], Any]
"""A decorator of click that adds an option or an argument."""


def broker_command(
    *parameters: Parameter, name: str | None = None, group: click.Group | None = None, asks: str | None = None
) -> Callable[[Callable[Concatenate[Broker, P], Printed]], click.Command]:
    """Return a decorator that makes a command of a function, which gets the broker and the parameters.

    With ``asks`` the user has to confirm that question first. Names of parameters in it stand for their values. A
    queue that does not exist is refused before the question.
    """

    def decorate(function: Callable[..., Printed]) -> click.Command:
        @pass_session
        def run(session: Session, /, **given: Any) -> None:  # noqa: ANN401 - click's options
            is_sure = asks is None or given.pop("is_sure")
            with session.broker() as broker:
                if asks is not None and not is_sure:
                    if given.get("queue") is not None:
                        broker.queue(given["queue"])
                    confirm(asks.format(**given), is_sure=False)
                thing, readable = function(broker, **given)
            session.answer(thing, readable)

        command: Any = run
        for parameter in reversed((*parameters, YES) if asks is not None else parameters):
            command = parameter(command)
        make = click.command if group is None else group.command
        return make(name or function.__name__, help=function.__doc__)(command)

    return decorate
