"""The commands ``stats`` and ``top``."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

import click

from fairlane.cli import tables
from fairlane.cli.door import Door
from fairlane.cli.durations import DURATION
from fairlane.cli.output import Table, answer, is_terminal, show
from fairlane.cli.queue_names import QueueName
from fairlane.cli.session import Session, pass_session

INTERVAL = click.option("--interval", type=DURATION, default="1s", show_default=True, help="How often to look.")
ROUNDS = click.option("--rounds", type=click.IntRange(min=1), help="Look so many times and end.")
Look = Callable[[], tuple[object, list[Table]]]


@click.command(name="stats")
@click.argument("queue", required=False, type=QueueName())
@click.option("--watch", "-w", is_flag=True, help="Go on looking until interrupted.")
@INTERVAL
@ROUNDS
@pass_session
def stats_command(session: Session, queue: str | None, *, watch: bool, interval: int, rounds: int | None) -> None:
    """Show how queues do, or the fairness keys of one queue.

    A key's share is what it is entitled to among those that have messages. Its wait p99 is of what was handed out in
    the last minute or two.
    """
    with session.door() as door:
        _watch(session, _looking(door, queue), interval_ms=interval, rounds=rounds if watch else 1)


@click.command(name="top")
@INTERVAL
@ROUNDS
@pass_session
def top_command(session: Session, *, interval: int, rounds: int | None) -> None:
    """Watch all queues."""
    with session.door() as door:
        _watch(session, _looking(door, None), interval_ms=interval, rounds=rounds)


def _looking(door: Door, queue: str | None) -> Look:
    def all_queues() -> tuple[object, list[Table]]:
        views = sorted(door.queues(), key=lambda view: (-view.waiting - view.leased, view.name))
        return views, [tables.of_queues(views)]

    def one_queue() -> tuple[object, list[Table]]:
        view = door.inspect(queue or "")
        return view, [tables.of_queues([view]), *tables.of_keys(view)]

    return all_queues if queue is None else one_queue


def _watch(session: Session, look: Look, *, interval_ms: int, rounds: int | None) -> None:
    """Look so many times, or until interrupted. On a terminal, what is new is drawn over what was there."""
    pause = Event()
    if rounds == 1:
        thing, found = look()
        answer(thing, found, is_json=session.is_json)
        return
    if is_terminal() and not session.is_json:
        _draw(look, pause, interval_ms=interval_ms, rounds=rounds)
        return
    for at in _counted(rounds):
        if at:
            pause.wait(interval_ms / 1000)
        thing, found = look()
        answer(thing, found, is_json=session.is_json)


def _draw(look: Look, pause: Event, *, interval_ms: int, rounds: int | None) -> None:
    from fairlane.cli.terminal import screen

    found: list[Table] = []
    with screen() as drawn:
        for at in _counted(rounds):
            if at:
                pause.wait(interval_ms / 1000)
            _, found = look()
            drawn.show(found)
    show(found)


def _counted(rounds: int | None) -> range:
    return range(rounds if rounds is not None else 1 << 62)
