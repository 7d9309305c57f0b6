"""The command ``fairlane``: its options, its commands, and how it ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

try:
    import click
except ImportError as missing:
    raise SystemExit("The command line is an extra: pip install 'fairlane[cli]'.") from missing

from fairlane import __version__
from fairlane.cli.errors import INTERRUPTED, exit_code_of, report, wants_json
from fairlane.cli.session import DEFAULT_SERVER, Place, Session
from fairlane.cli.session import connect as connect_to
from fairlane.errors import FairlaneError

SECTIONS = {
    "Server": {
        "serve": ("serve", "Run a server."),
        "key": ("api_keys", "Make, list and revoke API keys of a server."),
        "config": ("config", "Set, get and list config values; check the settings of a server."),
        "cluster": ("cluster", "Look at the nodes of a cluster, move and split queues, and drain nodes."),
    },
    "Worker": {
        "worker": ("worker", "Run the handlers of a worker."),
    },
    "Queues": {
        "queue": ("queues", "Make, change, look at and remove queues."),
        "stats": ("stats", "Show how queues do, or the fairness keys of one queue."),
        "top": ("stats", "Watch all queues."),
        "hook": ("hooks", "Try Lua hooks on samples."),
    },
    "Messages": {
        "enqueue": ("enqueue", "Enqueue a message, or many from a file or standard input."),
        "consume": ("consume", "Print the payloads of messages, a line each, and ack them."),
        "peek": ("messages", "Look at messages without leasing them."),
        "explain": ("messages", "Tell why a message waits."),
    },
    "Messages, one at a time, in a shell": {
        "dequeue": ("leases", "Lease a message and print the lines that export what ack, nack and extend need."),
        "ack": ("leases", "Let a leased message be done."),
        "nack": ("leases", "Give a leased message back."),
        "extend": ("leases", "Let a lease last longer."),
        "state": ("states", "Read and write the workflow state of a leased message."),
    },
    "Batches": {
        "consumers": ("batches", "Look at registered consumers, and release them."),
        "sinks": ("batches", "Look at sinks, and drop them."),
    },
    "Dead letters": {
        "dlq": ("dead_letters", "Look at dead letters."),
        "redrive": ("redrive", "Move dead letters back to their queue."),
    },
    "Data": {
        "journal": ("data.journal", "Export the journal, for the pipeline and for what-if."),
        "pipeline": ("data.pipeline", "Make tables of the journal, with Spark: usage, waits, fairness, failures."),
        "whatif": ("data.whatif", "Replay an exported journal against another policy."),
        "advise": ("data.advise", "Look for the setting that would have met targets at the least cost to the rest."),
        "backfill": ("data.backfill", "Fill QUEUE with the rows of files or of a table, each once."),
        "archive": ("data.archive", "Archive finished days of the journal and of acked messages as Parquet."),
        "report": ("data.reports", "Write a report of who waited and why, from the tables of the pipeline."),
    },
    "Shell": {
        "completion": ("completing", "Print the script that completes commands in a shell."),
    },
}
"""Where each command is, and what it does; so the help needs to import none of them."""

_COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}


FILE = click.Path(exists=True, dir_okay=False)


class Fairlane(click.Group):
    """The group of all commands. Commands are imported when they are called, and errors become exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of all commands."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Import a command."""
        if cmd_name not in _COMMANDS:
            return None
        command = getattr(import_module(f"fairlane.cli.{_COMMANDS[cmd_name][0]}"), f"{cmd_name}_command")
        return command if isinstance(command, click.Command) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - see above
        """Write the commands by topic."""
        width = max(map(len, _COMMANDS))
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, (_, text) in section.items()])

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's signature
        """Run a command; if whoever reads its output goes away, it ends without a word."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is still held back can go nowhere else
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
        """Run a command; whatever is expected to go wrong ends as an exit code and a few words."""
        arguments = list(sys.argv[1:] if args is None else args)
        name = prog_name or "fairlane"
        if not standalone_mode:
            return super().main(arguments, name, complete_var, standalone_mode=False, **extra)
        try:
            result = super().main(
                arguments, name, complete_var, standalone_mode=False, windows_expand_args=windows_expand_args, **extra
            )
        except click.Abort:
            sys.exit(INTERRUPTED)
        except (FairlaneError, click.ClickException, OSError, ModuleNotFoundError) as error:
            if isinstance(error, ModuleNotFoundError) and (error.name or "fairlane").startswith("fairlane"):
                raise  # a fault of ours, and not an extra that is missing
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
    help="The server to talk to.",
)
@click.option(
    "--api-key",
    metavar="KEY",
    envvar="FAIRLANE_API_KEY",
    show_envvar=True,
    help="Who you are. Others can see your options: the environment is the better place.",
)
@click.option(
    "--data",
    metavar="FOLDER",
    type=click.Path(file_okay=False),
    help="Work on the data in a folder, without a server.",
)
@click.option(
    "--tls-ca",
    metavar="FILE",
    type=FILE,
    envvar="FAIRLANE_CLIENT_CA",
    show_envvar=True,
    help="The certificates that vouch for the server, if those of the system don't.",
)
@click.option(
    "--tls-cert",
    metavar="FILE",
    type=FILE,
    envvar="FAIRLANE_CLIENT_CERT",
    show_envvar=True,
    help="Your certificate, for a server that asks for one.",
)
@click.option(
    "--tls-key",
    metavar="FILE",
    type=FILE,
    envvar="FAIRLANE_CLIENT_KEY",
    show_envvar=True,
    help="Its key, if that is in a file of its own.",
)
@click.option("--output", "-o", type=click.Choice(["table", "json"]), default="table", help="For people or programs.")
@click.version_option(__version__, "--version", prog_name="fairlane", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context, /, *, server: str, data: str | None, output: str, **known: str | None) -> None:
    """A durable, fair, multi-tenant message queue.

    Exit codes: 0 done, 1 refused, 2 wrong usage, 3 unavailable for now, 4 nothing there, 130 interrupted.
    """
    place = Place(
        server=server,
        api_key=known["api_key"],
        data=data,
        ca=known["tls_ca"],
        certificate=known["tls_cert"],
        certificate_key=known["tls_key"],
    )
    context.obj = Session(place=place, is_json=output == "json", connect=context.obj or connect_to)


def main() -> None:
    """Run the command ``fairlane``."""
    cli()
