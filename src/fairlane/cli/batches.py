"""The commands ``consumers`` and ``sinks``."""

from __future__ import annotations

import click

from fairlane.cli import tables
from fairlane.cli.formatting import message_count
from fairlane.cli.interaction import confirm
from fairlane.cli.output import answer
from fairlane.cli.parameters import QUEUE, YES
from fairlane.cli.session import Session, pass_session


@click.group(name="consumers")
def consumers_command() -> None:
    """List and release registered consumers."""


@consumers_command.command(name="list")
@QUEUE
@pass_session
def list_consumers(session: Session, queue: str) -> None:
    """Show the registered consumers of a queue and their claims."""
    with session.broker() as broker:
        views = broker.consumers(queue)
    answer(views, [tables.of_consumers(views)], is_json=session.is_json)


@consumers_command.command()
@QUEUE
@click.argument("name")
@YES
@pass_session
def release(session: Session, queue: str, name: str, *, is_sure: bool) -> None:
    """Remove a registered consumer and return its claimed messages.

    The messages wait again, without a failed attempt. A process that still uses the name cannot claim any more.
    """
    confirm(f'Release consumer "{name}" of queue "{queue}" and return its claimed messages?', is_sure=is_sure)
    with session.broker() as broker:
        count = broker.release_consumer(queue, name)
    facts = {"queue": queue, "consumer": name, "returned": count}
    answer(facts, f'Released consumer "{name}" and returned {message_count(count)}.', is_json=session.is_json)


@click.group(name="sinks")
def sinks_command() -> None:
    """List and drop sinks."""


@sinks_command.command(name="list")
@QUEUE
@pass_session
def list_sinks(session: Session, queue: str) -> None:
    """Show the sinks of a queue and their staged messages."""
    with session.broker() as broker:
        views = broker.sinks(queue)
    answer(views, [tables.of_sinks(views)], is_json=session.is_json)


@sinks_command.command()
@QUEUE
@click.argument("name")
@YES
@pass_session
def drop(session: Session, queue: str, name: str, *, is_sure: bool) -> None:
    """Remove a sink, its record of published batches, and its staged messages."""
    question = f'Drop sink "{name}" of queue "{queue}", its record of published batches and its staged messages?'
    confirm(question, is_sure=is_sure)
    with session.broker() as broker:
        count = broker.drop_sink(queue, name)
    facts = {"queue": queue, "sink": name, "dropped": count}
    answer(facts, f'Dropped sink "{name}" and {message_count(count)} staged for it.', is_json=session.is_json)
