"""The commands ``consumers …`` and ``sinks …``."""

from __future__ import annotations

import click

from fairlane.cli import tables
from fairlane.cli.interaction import confirm
from fairlane.cli.output import answer
from fairlane.cli.queue_names import QUEUE
from fairlane.cli.queues import YES
from fairlane.cli.session import Session, pass_session


@click.group(name="consumers")
def consumers_command() -> None:
    """Look at registered consumers, and release them."""


@consumers_command.command(name="list")
@QUEUE
@pass_session
def list_consumers(session: Session, queue: str) -> None:
    """Show the registered consumers of a queue, and what they have claimed."""
    with session.door() as door:
        views = door.consumers(queue)
    answer(views, [tables.of_consumers(views)], is_json=session.is_json)


@consumers_command.command()
@QUEUE
@click.argument("name")
@YES
@pass_session
def release(session: Session, queue: str, name: str, *, is_sure: bool) -> None:
    """Forget a consumer. What it has claimed waits again, as no failed attempt."""
    confirm(f"Forget consumer {name} of queue {queue}, and give back what it has claimed?", is_sure=is_sure)
    with session.door() as door:
        count = door.release_consumer(queue, name)
    said = {"queue": queue, "consumer": name, "given_back": count}
    answer(said, f"Consumer {name} is forgotten; {tables.messages(count)} given back.", is_json=session.is_json)


@click.group(name="sinks")
def sinks_command() -> None:
    """Look at sinks, and drop them."""


@sinks_command.command(name="list")
@QUEUE
@pass_session
def list_sinks(session: Session, queue: str) -> None:
    """Show the sinks of a queue, and what is staged for them."""
    with session.door() as door:
        views = door.sinks(queue)
    answer(views, [tables.of_sinks(views)], is_json=session.is_json)


@sinks_command.command()
@QUEUE
@click.argument("name")
@YES
@pass_session
def drop(session: Session, queue: str, name: str, *, is_sure: bool) -> None:
    """Forget a sink and the batches it has published, and drop what is staged for it."""
    question = f"Forget sink {name} of queue {queue}, which batches it has published, and what is staged for it?"
    confirm(question, is_sure=is_sure)
    with session.door() as door:
        count = door.drop_sink(queue, name)
    said = {"queue": queue, "sink": name, "dropped": count}
    answer(said, f"Sink {name} is forgotten; {tables.messages(count)} dropped.", is_json=session.is_json)
