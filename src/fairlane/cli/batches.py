"""The commands ``consumers`` and ``sinks``."""

from __future__ import annotations

import click

from fairlane.cli import tables
from fairlane.cli.broker_commands import Printed, broker_command
from fairlane.cli.formatting import message_count
from fairlane.cli.parameters import QUEUE
from fairlane.cli.session import Broker

NAME = click.argument("name")


@click.group(name="consumers")
def consumers_command() -> None:
    """List and release registered consumers."""


@broker_command(QUEUE, group=consumers_command, name="list")
def list_consumers(broker: Broker, queue: str) -> Printed:
    """Show the registered consumers of a queue and their claims."""
    views = broker.consumers(queue)
    return views, [tables.of_consumers(views)]


@broker_command(
    QUEUE,
    NAME,
    group=consumers_command,
    asks='Release consumer "{name}" of queue "{queue}" and return its claimed messages?',
)
def release(broker: Broker, queue: str, name: str) -> Printed:
    """Remove a registered consumer and return its claimed messages.

    The messages wait again, without a failed attempt. A process that still uses the name cannot claim any more.
    """
    count = broker.release_consumer(queue, name)
    facts = {"queue": queue, "consumer": name, "returned": count}
    return facts, f'Released consumer "{name}" and returned {message_count(count)}.'


@click.group(name="sinks")
def sinks_command() -> None:
    """List and drop sinks."""


@broker_command(QUEUE, group=sinks_command, name="list")
def list_sinks(broker: Broker, queue: str) -> Printed:
    """Show the sinks of a queue and their staged messages."""
    views = broker.sinks(queue)
    return views, [tables.of_sinks(views)]


@broker_command(
    QUEUE,
    NAME,
    group=sinks_command,
    asks='Drop sink "{name}" of queue "{queue}", its record of published batches and its staged messages?',
)
def drop(broker: Broker, queue: str, name: str) -> Printed:
    """Remove a sink, its record of published batches, and its staged messages."""
    count = broker.drop_sink(queue, name)
    facts = {"queue": queue, "sink": name, "dropped": count}
    return facts, f'Dropped sink "{name}" and {message_count(count)} staged for it.'
