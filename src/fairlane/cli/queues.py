"""The commands ``queue …``."""

from __future__ import annotations

from pathlib import Path

import click

from fairlane.cli import tables
from fairlane.cli.interaction import confirm
from fairlane.cli.output import answer
from fairlane.cli.parameters import KEY, PAIR, written
from fairlane.cli.policies import policy_fields
from fairlane.cli.queue_names import QUEUE
from fairlane.cli.session import Session, pass_session

NEW_QUEUE = click.argument("queue")
SETTINGS = click.option(
    "--set",
    "pairs",
    multiple=True,
    type=PAIR,
    help="A field of the policy: max_attempts=3, visibility_timeout=1m, weights.acme=5, on_enqueue=@hook.lua, "
    "deadline=none. May be repeated.",
)
POLICY = click.option(
    "--policy",
    "path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A TOML or JSON file with fields of the policy.",
)
ONLY_KEY = click.option("--key", type=KEY, help="Only this fairness key and those below it: acme, or acme/mobile.")
YES = click.option("--yes", "-y", "is_sure", is_flag=True, help="Don't ask.")


@click.group(name="queue")
def queue_command() -> None:
    """Make, change, look at and remove queues."""


@queue_command.command()
@NEW_QUEUE
@SETTINGS
@POLICY
@click.option("--group", help="In a cluster, the group of queues that it joins; it may forward to those in one commit.")
@pass_session
def create(
    session: Session, queue: str, *, pairs: tuple[tuple[str, str], ...], path: Path | None, group: str | None
) -> None:
    """Make a queue, and its dead-letter queue with it."""
    fields = policy_fields(path, pairs)
    if group is not None and session.place.is_embedded:
        raise click.UsageError("A folder has one broker and no groups: leave --group out.")
    with session.door() as door:
        door.create_queue(queue, fields, **({} if group is None else {"group": group}))
    answer({"queue": queue, "created": True}, f"Queue {queue} is there.", is_json=session.is_json)


@queue_command.command()
@QUEUE
@SETTINGS
@POLICY
@pass_session
def update(session: Session, queue: str, *, pairs: tuple[tuple[str, str], ...], path: Path | None) -> None:
    """Change fields of a queue's policy while it is in use."""
    fields = policy_fields(path, pairs)
    if not fields:
        raise click.UsageError("Say with --set or --policy what is to change.")
    with session.door() as door:
        door.update_queue(queue, fields)
    said = {"queue": queue, "changed": sorted(fields)}
    answer(said, f"Queue {queue} has changed: {', '.join(sorted(fields))}.", is_json=session.is_json)


@queue_command.command(name="list")
@pass_session
def list_queues(session: Session) -> None:
    """Show all queues."""
    with session.door() as door:
        views = door.queues()
    answer(views, [tables.of_queues(views)], is_json=session.is_json)


@queue_command.command()
@QUEUE
@pass_session
def inspect(session: Session, queue: str) -> None:
    """Show a queue with its policy, fairness keys and throttles."""
    with session.door() as door:
        view = door.inspect(queue)
    answer(view, tables.of_queue(view), is_json=session.is_json)


@queue_command.command()
@QUEUE
@ONLY_KEY
@pass_session
def pause(session: Session, queue: str, *, key: str | tuple[str, ...] | None) -> None:
    """Hand out nothing of a queue or a key until it is resumed."""
    with session.door() as door:
        door.pause(queue, key=key)
    answer({"queue": queue, "key": key, "paused": True}, f"{_what(queue, key)} is paused.", is_json=session.is_json)


@queue_command.command()
@QUEUE
@ONLY_KEY
@pass_session
def resume(session: Session, queue: str, *, key: str | tuple[str, ...] | None) -> None:
    """Undo a pause."""
    with session.door() as door:
        door.resume(queue, key=key)
    answer({"queue": queue, "key": key, "paused": False}, f"{_what(queue, key)} goes on.", is_json=session.is_json)


@queue_command.command()
@QUEUE
@YES
@pass_session
def purge(session: Session, queue: str, *, is_sure: bool) -> None:
    """Remove all messages of a queue that are not leased."""
    confirm(f"Remove all messages of queue {queue} that are not leased?", is_sure=is_sure)
    with session.door() as door:
        count = door.purge(queue)
    answer({"queue": queue, "purged": count}, f"{tables.messages(count)} removed.", is_json=session.is_json)


@queue_command.command()
@QUEUE
@YES
@pass_session
def delete(session: Session, queue: str, *, is_sure: bool) -> None:
    """Remove a queue with everything in it, its dead letters included."""
    confirm(f"Remove queue {queue} with all its messages and dead letters?", is_sure=is_sure)
    with session.door() as door:
        door.delete_queue(queue)
    answer({"queue": queue, "deleted": True}, f"Queue {queue} is gone.", is_json=session.is_json)


def _what(queue: str, key: str | tuple[str, ...] | None) -> str:
    return f"Queue {queue}" if key is None else f"Key {written(key)} of queue {queue}"
