"""The command ``fairlane``: its options, its commands and its exit codes."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

try:
    import click
except ImportError as missing:
    raise SystemExit("The command line needs an extra: pip install 'fairlane[cli]'.") from missing

from fairlane import __version__
from fairlane.cli.errors import INTERRUPTED, exit_code_of, names_extra, report, wants_json
from fairlane.cli.session import DEFAULT_SERVER, Endpoint, Session
from fairlane.cli.session import connect as connect_to
from fairlane.errors import FairlaneError

SECTIONS = {
    "Server": {
        "serve": ("serve", "Run a server."),
        "key": ("api_keys", "Create, list and revoke API keys."),
        "config": ("config", "Set, get and list config values; check a server's settings."),
        "store": ("store", "Check, repair or copy a store that no server has open."),
        "backup": ("backups", "Back up the store of a running server."),
        "restore": ("backups", "Restore a backup to a new data folder, or to a store at a URL."),
        "doctor": ("doctor", "Check a server or a data folder, and report what is wrong."),
        "cluster": ("cluster", "Show the nodes of a cluster, move and split queues, and drain nodes."),
    },
    "Worker": {
        "worker": ("worker", "Run the handlers of a worker."),
        "outbox": ("outbox", "Move messages from a table in your own PostgreSQL database to queues."),
    },
    "Queues": {
        "queue": ("queues", "Create, change, inspect and delete queues."),
        "stats": ("queues", "Show statistics of all queues, or of one queue and its fairness keys."),
        "top": ("queues", "Watch all queues live."),
        "schedule": ("schedules", "Enqueue messages on cron schedules and at intervals."),
        "hook": ("hooks", "Test Lua hooks on sample messages."),
    },
    "Messages": {
        "enqueue": ("enqueue", "Enqueue a message, or many from a file or standard input."),
        "consume": ("consume", "Print the payloads of messages, one per line."),
        "peek": ("messages", "Show messages without leasing them."),
        "explain": ("messages", "Explain why a message is waiting."),
        "message": ("jobs", "Show the status of one message, get its result, cancel it, or retry it."),
    },
    "One message at a time, in a shell": {
        "lease": ("leases", "Lease a message and print it as shell variables."),
        "ack": ("leases", "Acknowledge a leased message."),
        "nack": ("leases", "Return a leased message to its queue."),
        "extend": ("leases", "Extend the lease of a message."),
        "state": ("leases", "Read and write the workflow state of a leased message."),
    },
    "Batches": {
        "consumers": ("batches", "List and release registered consumers."),
        "sinks": ("batches", "List and drop sinks."),
    },
    "Dead letters": {
        "dlq": ("dead_letters", "List, show and delete dead letters, and show redrives."),
        "redrive": ("dead_letters", "Move dead letters back to their queue."),
    },
    "Data": {
        "journal": ("data.journal", "Export the journal for the pipeline and for what-if."),
        "pipeline": ("data.pipeline", "Turn the journal into tables with Spark: usage, waits, fairness, failures."),
        "whatif": ("data.whatif", "Replay an exported journal under other settings."),
        "advise": ("data.advise", "Find the settings that would have met targets at the least cost to others."),
        "capacity": ("data.capacity", "Find the fewest consumers that would have met targets."),
        "tune": ("data.tune", "Tune a queue of a running server until targets are met."),
        "forecast": ("data.forecast", "Forecast arrivals by hour."),
        "backfill": ("data.bulk", "Enqueue the rows of files or of a table, each once."),
        "archive": ("data.bulk", "Archive finished days of the journal and of acknowledged messages as Parquet."),
        "report": ("data.reports", "Write a report of waits and their causes."),
        "alarms": ("data.alarms", "Show tenants that are served too much, waits that have risen, and new errors."),
        "chargeback": ("data.chargeback", "Charge tenants for what they used."),
    },
    "Any verb": {
        "call": ("call", "Call a verb and print its answer as JSON."),
    },
    "Shell": {
        "completion": ("shell", "Print a shell completion script."),
    },
}
"""The module and the summary of each command, so that the help imports none of them."""

ALIASES = {"dequeue": "lease"}
"""Other names of commands."""
_COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}


FILE = click.Path(exists=True, dir_okay=False)
FORMATS = ("table", "json")
_OUTPUT = re.compile(rf"(?:-o|--output=)({'|'.join(FORMATS)})")


def with_output_first(arguments: Sequence[str]) -> list[str]:
    """Return arguments with the output format before the command, wherever the user wrote it before ``--``."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    formats: list[str] = []
    others: list[str] = []
    at = 0
    while at < end:
        if arguments[at] in ("-o", "--output") and at + 1 < end and arguments[at + 1] in FORMATS:
            formats += ["--output", arguments[at + 1]]
            at += 1
        elif (found := _OUTPUT.fullmatch(arguments[at])) is not None:
            formats += ["--output", found[1]]
        else:
            others.append(arguments[at])
        at += 1
    return [*formats, *others, *arguments[end:]]


class Fairlane(click.Group):
    """The group of all commands. It imports a command when it is called, and turns errors into exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of all commands."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Import a command."""
        cmd_name = ALIASES.get(cmd_name, cmd_name)
        if cmd_name not in _COMMANDS:
            return None
        command = getattr(import_module(f"fairlane.cli.{_COMMANDS[cmd_name][0]}"), f"{cmd_name}_command")
        return command if isinstance(command, click.Command) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - see above
        """Write the list of commands, grouped by topic."""
        width = max(map(len, _COMMANDS))
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, (_, text) in section.items()])

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's signature
        """Run a command; end silently if the reader of its output goes away."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            os.dup2(
                os.open(os.devnull, os.O_WRONLY), 1
            )  # the interpreter flushes its buffer on exit, and must not fail then
            return None

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: FBT001, FBT002 - click's signature
        windows_expand_args: bool = True,  # noqa: FBT001, FBT002 - click's signature
        **extra: Any,  # noqa: ANN401 - click's signature
    ) -> Any:  # noqa: ANN401 - click's signature
        """Run a command, and report expected errors with a message and an exit code."""
        arguments = with_output_first(sys.argv[1:] if args is None else args)
        name = prog_name or "fairlane"
        if not standalone_mode:
            return super().main(arguments, name, complete_var, standalone_mode=False, **extra)
        try:
            result = super().main(
                arguments, name, complete_var, standalone_mode=False, windows_expand_args=windows_expand_args, **extra
            )
        except click.Abort:
            sys.exit(INTERRUPTED)
        except (FairlaneError, click.ClickException, OSError, ImportError) as error:
            if isinstance(error, ImportError) and not names_extra(error):
                raise  # a bug, in Fairlane or in the program that it runs, not a missing extra
            report(error, is_json=wants_json(error, arguments))
            sys.exit(exit_code_of(error))
        sys.exit(result if isinstance(result, int) else 0)


@click.group("fairlane", cls=Fairlane, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--server",
    metavar="URL",
    envvar="FAIRLANE_SERVER",
    default=DEFAULT_SERVER,
    show_default=True,
    show_envvar=True,
    help="Server to connect to; several nodes of a cluster, separated by commas.",
)
@click.option(
    "--api-key",
    metavar="KEY",
    envvar="FAIRLANE_API_KEY",
    show_envvar=True,
    help="API key. Other users can see options; prefer the environment variable.",
)
@click.option(
    "--data",
    metavar="FOLDER",
    type=click.Path(file_okay=False),
    help="Open the data in a folder instead of connecting to a server.",
)
@click.option(
    "--tls-ca",
    metavar="FILE",
    type=FILE,
    envvar="FAIRLANE_CLIENT_CA",
    show_envvar=True,
    help="CA certificates that verify the server. Default: those of the system.",
)
@click.option(
    "--tls-cert",
    metavar="FILE",
    type=FILE,
    envvar="FAIRLANE_CLIENT_CERT",
    show_envvar=True,
    help="Client certificate, for a server that requires one.",
)
@click.option(
    "--tls-key",
    metavar="FILE",
    type=FILE,
    envvar="FAIRLANE_CLIENT_KEY",
    show_envvar=True,
    help="Private key of the client certificate, if it is in a separate file.",
)
@click.option(
    "--output",
    "-o",
    type=click.Choice(FORMATS),
    default="table",
    help="Output format: tables for people, JSON for programs. It may also be written after the command.",
)
@click.version_option(__version__, "--version", prog_name="fairlane", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context, /, *, server: str, data: str | None, output: str, **known: str | None) -> None:
    """A durable, fair, multi-tenant message queue.

    Exit codes: 0 success, 1 refused, 2 usage error, 3 temporarily unavailable, 4 nothing found, 130 interrupted.
    """  # noqa: D401 - this is the help text of the program
    endpoint = Endpoint(
        server=server,
        api_key=known["api_key"],
        data=data,
        ca=known["tls_ca"],
        certificate=known["tls_cert"],
        certificate_key=known["tls_key"],
    )
    context.obj = Session(endpoint=endpoint, is_json=output == "json", connect=context.obj or connect_to)


def main() -> None:
    """Run the command ``fairlane``."""
    cli()
