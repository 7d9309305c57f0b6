"""The commands ``peek`` and ``explain``."""

from __future__ import annotations

from typing import get_args

import click

from fairlane.cli import tables
from fairlane.cli.broker_commands import Printed, broker_command
from fairlane.cli.formatting import printable
from fairlane.cli.parameters import KEY, QUEUE
from fairlane.cli.session import Broker
from fairlane.model.limits import BATCH_MAX
from fairlane.model.message import MessageStatus
from fairlane.model.views import DeadLetterFilter

COUNT = click.option(
    "--count",
    type=click.IntRange(1, BATCH_MAX),
    default=10,
    show_default=True,
    help="Maximum number of messages to show.",
)
AFTER = click.option("--after", metavar="ID", help="Continue after this message.")
MESSAGE = click.argument("message_id", metavar="ID")


@broker_command(
    QUEUE,
    COUNT,
    AFTER,
    click.option("--key", type=KEY, help="Only messages of this fairness key."),
    click.option("--status", type=click.Choice(get_args(MessageStatus)), help="Only messages with this status."),
    name="peek",
)
def peek_command(
    broker: Broker,
    queue: str,
    *,
    count: int,
    after: str | None,
    key: str | tuple[str, ...] | None,
    status: MessageStatus | None,
) -> Printed:
    """Show messages without leasing them, oldest first."""
    wanted = DeadLetterFilter(fairness_key=key)
    views = broker.peek(queue, count, after=after, wanted=wanted, status=status, with_body=True)
    return views, [tables.of_messages(views)]


@broker_command(QUEUE, MESSAGE, name="explain")
def explain_command(broker: Broker, queue: str, message_id: str) -> Printed:
    """Explain why a message is waiting."""
    explained = broker.explain(queue, message_id)
    return explained, printable(f"{explained.reason}: {explained.words}")
