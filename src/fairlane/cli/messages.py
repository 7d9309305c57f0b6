"""The commands ``peek`` and ``explain``."""

from __future__ import annotations

import click

from fairlane.cli import tables
from fairlane.cli.formatting import printable
from fairlane.cli.output import answer
from fairlane.cli.parameters import KEY
from fairlane.cli.queue_names import QUEUE
from fairlane.cli.session import Session, pass_session
from fairlane.model.limits import BATCH_MAX
from fairlane.model.views import DeadLetterFilter

COUNT = click.option(
    "--count", type=click.IntRange(1, BATCH_MAX), default=10, show_default=True, help="At most so many."
)
AFTER = click.option("--after", metavar="ID", help="Go on behind this message.")


@click.command(name="peek")
@QUEUE
@COUNT
@AFTER
@click.option("--key", type=KEY, help="Only this fairness key.")
@pass_session
def peek_command(
    session: Session, queue: str, *, count: int, after: str | None, key: str | tuple[str, ...] | None
) -> None:
    """Look at messages without leasing them, in the order they came."""
    with session.door() as door:
        views = door.peek(queue, count, after=after, wanted=DeadLetterFilter(fairness_key=key), with_body=True)
    answer(views, [tables.of_messages(views)], is_json=session.is_json)


@click.command(name="explain")
@QUEUE
@click.argument("message_id", metavar="ID")
@pass_session
def explain_command(session: Session, queue: str, message_id: str) -> None:
    """Tell why a message waits."""
    with session.door() as door:
        explained = door.explain(queue, message_id)
    answer(explained, printable(f"{explained.reason}: {explained.words}"), is_json=session.is_json)
