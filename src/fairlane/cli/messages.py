"""The commands ``peek`` and ``explain``."""

from __future__ import annotations

import click

from fairlane.cli import tables
from fairlane.cli.formatting import printable
from fairlane.cli.output import answer
from fairlane.cli.parameters import KEY, QUEUE
from fairlane.cli.session import Session, pass_session
from fairlane.model.limits import BATCH_MAX
from fairlane.model.views import DeadLetterFilter

COUNT = click.option(
    "--count", type=click.IntRange(1, BATCH_MAX), default=10, show_default=True, help="Most messages to show."
)
AFTER = click.option("--after", metavar="ID", help="Continue after this message.")


@click.command(name="peek")
@QUEUE
@COUNT
@AFTER
@click.option("--key", type=KEY, help="Only messages of this fairness key.")
@pass_session
def peek_command(
    session: Session, queue: str, *, count: int, after: str | None, key: str | tuple[str, ...] | None
) -> None:
    """Show messages without leasing them, oldest first."""
    with session.broker() as broker:
        views = broker.peek(queue, count, after=after, wanted=DeadLetterFilter(fairness_key=key), with_body=True)
    answer(views, [tables.of_messages(views)], is_json=session.is_json)


@click.command(name="explain")
@QUEUE
@click.argument("message_id", metavar="ID")
@pass_session
def explain_command(session: Session, queue: str, message_id: str) -> None:
    """Explain why a message is waiting."""
    with session.broker() as broker:
        explained = broker.explain(queue, message_id)
    answer(explained, printable(f"{explained.reason}: {explained.words}"), is_json=session.is_json)
