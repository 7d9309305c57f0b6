"""The commands ``dlq …``."""

from __future__ import annotations

from typing import Any

import click

from fairlane.cli import tables
from fairlane.cli.durations import DURATION
from fairlane.cli.messages import AFTER, COUNT
from fairlane.cli.output import answer
from fairlane.cli.parameters import KEY
from fairlane.cli.queue_names import QUEUE
from fairlane.cli.session import Session, pass_session
from fairlane.model.names import dlq_of, is_dlq
from fairlane.model.views import DeadLetterFilter

FILTERS = (
    click.option("--newer-than", type=DURATION, help="Only those dead at most so long."),
    click.option("--older-than", type=DURATION, help="Only those dead at least so long."),
    click.option(
        "--reason", type=click.Choice(["max_attempts", "hook", "deadline", "requested"]), help="Only what died of this."
    ),
    click.option("--error", metavar="TEXT", help="Only those with this text in one of their errors."),
    click.option("--key", type=KEY, help="Only this fairness key."),
)


def filter_options(command: Any) -> Any:  # noqa: ANN401 - as click's decorators
    """Add the options that say which dead letters are meant."""
    for option in FILTERS:
        command = option(command)
    return command


def wanted_by(options: dict[str, Any]) -> DeadLetterFilter:
    """Return the filter that options say."""
    return DeadLetterFilter(
        fairness_key=options["key"],
        error=options["error"],
        reason=options["reason"],
        older_than_ms=options["older_than"],
        newer_than_ms=options["newer_than"],
    )


def dlq_meant(queue: str) -> str:
    """Return the dead-letter queue that is meant: itself, or that of the queue."""
    return queue if is_dlq(queue) else dlq_of(queue)


@click.group(name="dlq")
def dlq_command() -> None:
    """Look at dead letters. QUEUE is the queue or its dead-letter queue."""


@dlq_command.command(name="list")
@QUEUE
@COUNT
@AFTER
@filter_options
@pass_session
def list_dead(session: Session, /, queue: str, *, count: int, after: str | None, **options: Any) -> None:  # noqa: ANN401 - click's
    """Show dead letters, in the order they died."""
    with session.door() as door:
        views = door.peek(dlq_meant(queue), count, after=after, wanted=wanted_by(options), with_body=True)
    answer(views, [tables.of_messages(views)], is_json=session.is_json)


@dlq_command.command()
@QUEUE
@click.argument("message_id", metavar="ID")
@pass_session
def show(session: Session, queue: str, message_id: str) -> None:
    """Show one dead letter with its headers, errors and payload."""
    with session.door() as door:
        view = door.get(dlq_meant(queue), message_id)
    answer(view, tables.of_message(view), is_json=session.is_json)
