"""The commands ``queue``, ``stats`` and ``top``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event

import click

from fairlane.cli import tables
from fairlane.cli.broker_commands import Printed, broker_command
from fairlane.cli.formatting import message_count
from fairlane.cli.output import Table, is_terminal, show
from fairlane.cli.parameters import DURATION, KEY, MILLISECONDS, PAIR, QUEUE, QueueName
from fairlane.cli.policies import policy_fields
from fairlane.cli.session import Broker, Session, pass_session
from fairlane.model.message import Key, key_text

_SETTINGS = click.option(
    "--set",
    "pairs",
    multiple=True,
    type=PAIR,
    help="A policy field: max_attempts=3, visibility_timeout=1m, weights.acme=5, on_enqueue=@hook.lua, "
    "deadline=none. Repeatable.",
)
_POLICY = click.option(
    "--policy",
    "path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="TOML or JSON file with policy fields; --set overrides it.",
)
_GROUP = click.option(
    "--group", help="In a cluster: group to create it in. Queues of one group can forward to each other."
)
_VISIBILITY = click.option(
    "--visibility-timeout",
    "visibility_ms",
    type=MILLISECONDS,
    help="How long a lease lasts: 30s, or 30000 for milliseconds.",
)
_ONLY_KEY = click.option("--key", type=KEY, help="Only this fairness key and those below it: acme, or acme/mobile.")
_INTERVAL = click.option("--interval", type=DURATION, default="1s", show_default=True, help="Time between updates.")
_ROUNDS = click.option("--rounds", type=click.IntRange(min=1), help="Stop after this many updates.")
Snapshot = Callable[[], tuple[object, list[Table]]]
"""Returns the current views, for JSON, and the same as tables."""


@click.group(name="queue")
def queue_command() -> None:
    """Create, change, inspect and delete queues."""


@queue_command.command()
@click.argument("queue")
@_VISIBILITY
@_SETTINGS
@_POLICY
@_GROUP
@pass_session
def create(
    session: Session,
    queue: str,
    *,
    visibility_ms: int | None,
    pairs: tuple[tuple[str, str], ...],
    path: Path | None,
    group: str | None,
) -> None:
    """Create a queue together with its dead-letter queue."""
    fields = _policy(path, pairs, visibility_ms)
    with session.broker() as broker:
        broker.create_queue(queue, fields, **_in_group(session, group))
    session.answer({"queue": queue, "created": True}, f'Created queue "{queue}".')


@queue_command.command()
@click.argument("queue")
@_VISIBILITY
@_SETTINGS
@_POLICY
@_GROUP
@pass_session
def ensure(
    session: Session,
    queue: str,
    *,
    visibility_ms: int | None,
    pairs: tuple[tuple[str, str], ...],
    path: Path | None,
    group: str | None,
) -> None:
    """Create a queue if it does not exist. A queue that exists is not changed."""
    fields = _policy(path, pairs, visibility_ms)
    with session.broker() as broker:
        found = broker.ensure_queue(queue, fields, **_in_group(session, group))
    text = f'Created queue "{queue}".' if found.is_created else f'Queue "{queue}" exists.'
    if found.differing:
        text += f" Its policy differs in {', '.join(found.differing)} and was not changed."
    answer = {"queue": queue, "created": found.is_created, "differing": found.differing}
    session.answer(answer, text)


@queue_command.command()
@QUEUE
@_VISIBILITY
@_SETTINGS
@_POLICY
@pass_session
def update(
    session: Session,
    queue: str,
    *,
    visibility_ms: int | None,
    pairs: tuple[tuple[str, str], ...],
    path: Path | None,
) -> None:
    """Change fields of a queue's policy. Other fields keep their values."""
    fields = _policy(path, pairs, visibility_ms)
    if not fields:
        raise click.UsageError("Nothing to change; pass --set or --policy.")
    with session.broker() as broker:
        broker.update_queue(queue, fields)
    changed = sorted(fields)
    session.answer({"queue": queue, "changed": changed}, f'Updated queue "{queue}": {", ".join(changed)}.')


def _policy(path: Path | None, pairs: tuple[tuple[str, str], ...], visibility_ms: int | None) -> dict[str, object]:
    own = {} if visibility_ms is None else {"visibility_timeout_ms": visibility_ms}
    return policy_fields(path, pairs) | own


@broker_command(group=queue_command, name="list")
def list_queues(broker: Broker) -> Printed:
    """Show all queues."""
    views = broker.queues()
    return views, [tables.of_queues(views)]


@broker_command(QUEUE, group=queue_command)
def inspect(broker: Broker, queue: str) -> Printed:
    """Show a queue with its policy, fairness keys and throttles."""
    view = broker.inspect(queue)
    return view, tables.of_queue(view)


@broker_command(QUEUE, _ONLY_KEY, group=queue_command)
def pause(broker: Broker, queue: str, *, key: Key | None) -> Printed:
    """Stop delivery from a queue or a fairness key. Messages can still be enqueued."""
    broker.pause(queue, key=key)
    return {"queue": queue, "key": key, "paused": True}, f"Paused {_subject(queue, key)}."


@broker_command(QUEUE, _ONLY_KEY, group=queue_command)
def resume(broker: Broker, queue: str, *, key: Key | None) -> Printed:
    """Resume delivery after a pause."""
    broker.resume(queue, key=key)
    return {"queue": queue, "key": key, "paused": False}, f"Resumed {_subject(queue, key)}."


_WITH_LEASED = click.option(
    "--with-leased", is_flag=True, help="Delete leased messages too; their leases become stale."
)


@broker_command(QUEUE, _WITH_LEASED, group=queue_command, asks='Delete the messages of queue "{queue}"?')
def purge(broker: Broker, queue: str, *, with_leased: bool) -> Printed:
    """Delete the messages of a queue that are not leased, or all of its messages."""
    count = broker.purge(queue, with_leased=with_leased)
    return {"queue": queue, "purged": count}, f"Deleted {message_count(count)}."


@broker_command(QUEUE, group=queue_command, asks='Delete queue "{queue}" with all its messages and dead letters?')
def delete(broker: Broker, queue: str) -> Printed:
    """Delete a queue with all its messages and dead letters."""
    broker.delete_queue(queue)
    return {"queue": queue, "deleted": True}, f'Deleted queue "{queue}".'


@queue_command.group(name="template")
def template_group() -> None:
    """Set policies for new queues, by the pattern of their names."""


@template_group.command(name="set")
@click.argument("pattern")
@_SETTINGS
@_POLICY
@click.option("--auto-create", is_flag=True, help="Create a missing queue when a message is enqueued or leased there.")
@click.option(
    "--queues-max",
    type=click.IntRange(min=1),
    default=1_000,
    show_default=True,
    help="Create no more queues once there are this many, of any name.",
)
@pass_session
def set_template(
    session: Session,
    pattern: str,
    *,
    pairs: tuple[tuple[str, str], ...],
    path: Path | None,
    auto_create: bool,
    queues_max: int,
) -> None:
    """Set the template of new queues. PATTERN is a name, a prefix followed by a star, or a star."""
    fields = policy_fields(path, pairs)
    with session.broker() as broker:
        broker.set_queue_template(pattern, fields, auto_create=auto_create, queues_max=queues_max)
    answer = {"pattern": pattern, "policy": fields, "auto_create": auto_create, "queues_max": queues_max}
    session.answer(answer, f'Set the template of queues "{pattern}".')


@broker_command(group=template_group, name="list")
def list_templates(broker: Broker) -> Printed:
    """Show all queue templates."""
    found = broker.queue_templates()
    return found, [tables.of_templates(found)]


@broker_command(click.argument("pattern"), group=template_group, name="remove")
def remove_template(broker: Broker, pattern: str) -> Printed:
    """Remove a template. Queues that it created stay."""
    broker.remove_queue_template(pattern)
    return {"pattern": pattern, "removed": True}, f'Removed the template of queues "{pattern}".'


def _in_group(session: Session, group: str | None) -> dict[str, str]:
    if group is None:
        return {}
    if session.endpoint.is_embedded:
        raise click.UsageError("--group needs a server: a data folder has no groups.")
    return {"group": group}


def _subject(queue: str, key: Key | None) -> str:
    return f'queue "{queue}"' if key is None else f'key "{key_text(key)}" of queue "{queue}"'


@click.command(name="stats")
@click.argument("queue", required=False, type=QueueName())
@click.option("--watch", "-w", is_flag=True, help="Keep updating until interrupted.")
@_INTERVAL
@_ROUNDS
@pass_session
def stats_command(session: Session, queue: str | None, *, watch: bool, interval: int, rounds: int | None) -> None:
    """Show statistics of all queues, or of one queue and its fairness keys.

    A key's share is its entitled share among the keys that have messages. Its wait p99 covers the messages that were
    leased in the last one to two minutes.
    """
    with session.broker() as broker:
        _watch(session, _snapshot(broker, queue), interval_ms=interval, rounds=rounds if watch else 1)


@click.command(name="top")
@_INTERVAL
@_ROUNDS
@pass_session
def top_command(session: Session, *, interval: int, rounds: int | None) -> None:
    """Watch all queues live, busiest first."""
    with session.broker() as broker:
        _watch(session, _snapshot(broker, None), interval_ms=interval, rounds=rounds)


def _snapshot(broker: Broker, queue: str | None) -> Snapshot:
    def all_queues() -> tuple[object, list[Table]]:
        views = sorted(broker.queues(), key=lambda view: (-view.waiting - view.leased, view.name))
        return views, [tables.of_queues(views)]

    def one_queue() -> tuple[object, list[Table]]:
        view = broker.inspect(queue or "")
        return view, [tables.of_queues([view]), *tables.of_keys(view)]

    return all_queues if queue is None else one_queue


def _watch(session: Session, snapshot: Snapshot, *, interval_ms: int, rounds: int | None) -> None:
    """Print snapshots until interrupted, or a given number of them. On a terminal each replaces the one before."""
    pause = Event()
    if rounds == 1:
        views, found = snapshot()
        session.answer(views, found)
        return
    if is_terminal() and not session.is_json:
        _watch_on_screen(snapshot, pause, interval_ms=interval_ms, rounds=rounds)
        return
    for at in _counted(rounds):
        if at:
            pause.wait(interval_ms / 1000)
        views, found = snapshot()
        session.answer(views, found)


def _watch_on_screen(snapshot: Snapshot, pause: Event, *, interval_ms: int, rounds: int | None) -> None:
    from fairlane.cli.terminal import screen

    found: list[Table] = []
    with screen() as drawn:
        for at in _counted(rounds):
            if at:
                pause.wait(interval_ms / 1000)
            _, found = snapshot()
            drawn.show(found)
    show(found)  # the screen is gone with its content, so leave the last tables behind


def _counted(rounds: int | None) -> range:
    return range(rounds if rounds is not None else 1 << 62)
