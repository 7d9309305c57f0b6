"""Types of options and arguments, and the options that several commands share."""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import CompletionItem

from fairlane.cli.session import DEFAULT_SERVER, Endpoint, connect
from fairlane.model.durations import milliseconds

_COMPLETION_TIMEOUT_S = 2.0


class Duration(click.ParamType):  # type: ignore[type-arg] # older versions of click are not generic
    """A timespan with units, converted to milliseconds."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the milliseconds."""
        if isinstance(value, int):
            return value
        try:
            return milliseconds(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Milliseconds(Duration):
    """A timespan with units, or a plain number of milliseconds."""

    name = "ms|duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the milliseconds."""
        text = str(value)
        return int(text) if text.isascii() and text.isdigit() else super().convert(value, param, ctx)


class WaitTime(Duration):
    """A timespan, or ``forever``."""

    name = "duration|forever"
    forever_ms = 366 * 24 * 3600 * 1000

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the milliseconds; a year stands for ``forever``."""
        return self.forever_ms if value == "forever" else super().convert(value, param, ctx)


class KeyPath(click.ParamType):  # type: ignore[type-arg] # older versions of click are not generic
    """A fairness key; slashes separate the names of a path."""

    name = "key"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str | tuple[str, ...]:
        """Return the fairness key."""
        if isinstance(value, tuple):
            return value
        names = tuple(str(value).split("/"))
        if not all(names):
            self.fail(f"Invalid fairness key {str(value)!r}; write a name or a path such as acme/mobile.", param, ctx)
        return names[0] if len(names) == 1 else names


class Pair(click.ParamType):  # type: ignore[type-arg] # older versions of click are not generic
    """A name and a value, separated by an equals sign."""

    name = "name=value"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Return the name and the value."""
        if isinstance(value, tuple):
            return value
        name, sign, text = str(value).partition("=")
        if not sign or not name:
            self.fail(f"Expected NAME=VALUE, got {str(value)!r}.", param, ctx)
        return name, text


class QueueName(click.ParamType):  # type: ignore[type-arg] # older versions of click are not generic
    """The name of a queue, with shell completion. The broker checks whether the queue exists."""

    name = "queue"

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,  # noqa: ARG002 - click's signature
        incomplete: str,
    ) -> list[CompletionItem]:
        """Return the server's queues that begin with the text; nothing if the server cannot be reached."""
        options = ctx.find_root().params
        if options.get("data") is not None:  # opening a folder could create it
            return []
        endpoint = Endpoint(
            server=options.get("server") or DEFAULT_SERVER,
            api_key=options.get("api_key"),
            timeout_s=_COMPLETION_TIMEOUT_S,
        )
        try:
            with connect(endpoint) as broker:
                names = [view.name for view in broker.queues()]
        except Exception:  # noqa: BLE001 - an error message would garble the line that the user is typing
            return []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


FOLDER = click.Path(file_okay=False, path_type=Path)
DURATION = Duration()
MILLISECONDS = Milliseconds()
WAIT_TIME = WaitTime()
KEY = KeyPath()
PAIR = Pair()

QUEUE = click.argument("queue", type=QueueName())
"""The queue that a command is about."""

TABLES = click.option(
    "--tables",
    required=True,
    metavar="TABLES",
    help="The address of the tables: a folder, s3://…, gs://… or az://…, or after delta: or iceberg: one of these.",
)
"""The option for the tables of the pipeline."""

YES = click.option("--yes", "-y", "is_sure", is_flag=True, help="Do not ask for confirmation.")
"""The option that answers the question of ``interaction.confirm``."""
