"""The command ``schedule``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click
import msgspec

from fairlane.cli.broker_commands import Printed, broker_command
from fairlane.cli.formatting import duration, excerpt, now_ms
from fairlane.cli.output import Table
from fairlane.cli.parameters import DURATION, KEY, PAIR, QUEUE, QueueName
from fairlane.cli.session import Broker
from fairlane.model.message import PRIORITY_NAMES, NewMessage, key_text
from fairlane.model.schedules import CATCH_UPS, OVERLAPS, ScheduleSpec, ScheduleView

NAME = click.argument("name")
_NUMBERS = frozenset({"fired", "missed"})


_INSTANT = click.DateTime(formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S%z"])


@click.group(name="schedule")
def schedule_command() -> None:
    """Enqueue messages on cron schedules and at intervals."""


# Most options are named for the field that they set.
_WHEN = (
    click.option("--cron", metavar="EXPRESSION", help="Minute, hour, day, month, weekday: '0 7 * * MON-FRI'."),
    click.option("--timezone", default="UTC", show_default=True, help="Time zone of --cron, such as Europe/Berlin."),
    click.option("--every", "every_ms", type=DURATION, help="Interval instead of --cron: 30s, 5m, 2h."),
    click.option(
        "--anchor", type=_INSTANT, metavar="INSTANT", help="Instant that intervals count from. Default: 1970-01-01."
    ),
    click.option(
        "--from",
        "begin",
        type=_INSTANT,
        metavar="INSTANT",
        help="Do not fire before this instant; UTC unless it has an offset.",
    ),
    click.option("--until", "end", type=_INSTANT, metavar="INSTANT", help="Do not fire after this instant."),
    click.option(
        "--catch-up",
        type=click.Choice(CATCH_UPS),
        default="last",
        show_default=True,
        help="What to do about ticks missed while the server was down or the schedule was paused.",
    ),
    click.option(
        "--catch-up-max", type=int, default=100, show_default=True, help="Maximum number of ticks that `all` fires."
    ),
    click.option(
        "--overlap",
        type=click.Choice(OVERLAPS),
        default="allow",
        show_default=True,
        help="skip: skip a tick while an earlier message of the schedule waits or runs.",
    ),
    click.option("--jitter", "jitter_ms", type=DURATION, default="0", help="Spread messages over this time."),
)
_MESSAGE = (
    click.argument("payload", required=False),
    click.option("--header", "headers", multiple=True, type=PAIR, help="A header; repeatable."),
    click.option("--key", "fairness_key", type=KEY, help="Fairness key: acme, or a path such as acme/mobile."),
    click.option("--cost", type=int, help="What the message takes from its key's share."),
    click.option("--priority", type=click.Choice(PRIORITY_NAMES), help="Priority among the messages of its key."),
    click.option("--throttle", "throttles", multiple=True, metavar="NAME", help="A throttle; repeatable."),
    click.option(
        "--deadline", "deadline_ms", type=DURATION, help="Time after which the message is no longer delivered."
    ),
    click.option("--max-attempts", type=int, help="Failed attempts before the message becomes a dead letter."),
)


@broker_command(QUEUE, NAME, *_MESSAGE, *_WHEN, group=schedule_command, name="set")
def set_schedule(
    broker: Broker,
    /,
    queue: str,
    name: str,
    *,
    payload: str | None,
    headers: tuple[tuple[str, str], ...],
    anchor: datetime | None,
    begin: datetime | None,
    end: datetime | None,
    **terms: object,
) -> Printed:
    """Create a schedule, or replace it.

    Each tick enqueues PAYLOAD, which is empty by default. Setting the same schedule again changes nothing.
    """
    if (terms["cron"] is None) == (terms["every_ms"] is None):
        raise click.UsageError("Pass either --cron or --every.")
    own = {"payload": (payload or "").encode(errors="surrogateescape"), "headers": dict(headers)}
    instants = {"anchor_ms": _at_ms(anchor) or 0, "from_ms": _at_ms(begin), "until_ms": _at_ms(end)}
    message = {field: value for field, value in terms.items() if field in NewMessage.__struct_fields__}
    rest = {field: value for field, value in terms.items() if field not in message}
    spec = msgspec.convert(rest | instants | {"message": message | own}, ScheduleSpec)
    result = broker.set_schedule(queue, name, spec)
    view = broker.get_schedule(queue, name)
    done = "Created" if result.is_created else "Changed" if result.is_changed else "No change of"
    answer = {"queue": queue, "name": name, "created": result.is_created, "changed": result.is_changed}
    text = f'{done} schedule "{name}" of queue "{queue}". Next: {_next(view, now_ms())}.'
    return answer | {"next_ms": view.next_ms}, text


def _at_ms(instant: datetime | None) -> int | None:
    if instant is None:
        return None
    return int((instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC)).timestamp() * 1000)


@broker_command(click.argument("queue", type=QueueName(), required=False), group=schedule_command, name="list")
def list_schedules(broker: Broker, queue: str | None) -> Printed:
    """Show all schedules, or those of a queue."""
    views = broker.schedules(queue)
    return views, [of_schedules(views)]


_COUNT = click.option("--count", type=int, default=5, show_default=True, help="How many of the next ticks to show.")


@broker_command(QUEUE, NAME, _COUNT, group=schedule_command)
def show(broker: Broker, queue: str, name: str, *, count: int) -> Printed:
    """Show a schedule with its next ticks."""
    view = broker.get_schedule(queue, name, upcoming=count)
    return view, of_schedule(view)


@broker_command(QUEUE, NAME, group=schedule_command)
def pause(broker: Broker, queue: str, name: str) -> Printed:
    """Stop a schedule from firing until it is resumed."""
    broker.pause_schedule(queue, name)
    return {"queue": queue, "name": name, "paused": True}, f'Paused schedule "{name}" of queue "{queue}".'


@broker_command(QUEUE, NAME, group=schedule_command)
def resume(broker: Broker, queue: str, name: str) -> Printed:
    """Resume a schedule. Its catch-up policy applies to ticks that were due during the pause."""
    broker.resume_schedule(queue, name)
    return {"queue": queue, "name": name, "paused": False}, f'Resumed schedule "{name}" of queue "{queue}".'


@broker_command(QUEUE, NAME, group=schedule_command)
def run(broker: Broker, queue: str, name: str) -> Printed:
    """Enqueue the message of a schedule now, and print its id."""
    message_id = broker.run_schedule(queue, name)
    return {"queue": queue, "name": name, "id": message_id}, message_id


@broker_command(QUEUE, NAME, group=schedule_command, asks='Delete schedule "{name}" of queue "{queue}"?')
def delete(broker: Broker, queue: str, name: str) -> Printed:
    """Delete a schedule. Messages that it has enqueued stay."""
    broker.delete_schedule(queue, name)
    return {"queue": queue, "name": name, "deleted": True}, f'Deleted schedule "{name}" of queue "{queue}".'


# -------------------------------------------------------------------------------------------------------------- tables


def of_schedules(views: Sequence[ScheduleView]) -> Table:
    """Return a table of schedules."""
    at = now_ms()
    rows = [
        [
            view.queue,
            view.name,
            expression(view.spec),
            _next(view, at),
            moment(view.last_ms, view.spec, at),
            str(view.fired),
            str(view.missed),
        ]
        for view in views
    ]
    return Table(["queue", "schedule", "when", "next", "last", "fired", "missed"], rows, numbers=_NUMBERS)


def of_schedule(view: ScheduleView) -> list[Table]:
    """Return the tables of one schedule: facts, and the next ticks."""
    at, spec, message = now_ms(), view.spec, view.spec.message
    limits = [(name, value) for name, value in (("from", spec.from_ms), ("until", spec.until_ms)) if value is not None]
    facts = [
        ["queue", view.queue],
        ["schedule", view.name],
        ["when", expression(spec)],
        *[[name, moment(value, spec, at)] for name, value in limits],
        ["catch-up", f"all, up to {spec.catch_up_max}" if spec.catch_up == "all" else spec.catch_up],
        ["overlap", spec.overlap],
        *([["jitter", duration(spec.jitter_ms)]] if spec.jitter_ms else []),
        ["key", "-" if message.fairness_key is None else key_text(message.fairness_key)],
        ["payload", excerpt(message.payload)],
        ["last", moment(view.last_ms, spec, at)],
        *([["last message", view.last_id]] if view.last_id is not None else []),
        ["fired", str(view.fired)],
        ["missed", _missed(view, at)],
        *([["error", view.error]] if view.error is not None else []),
        ["declared by" if view.is_declared else "set by", view.by or ("a program" if view.is_declared else "-")],
    ]
    ticks = [["", moment(tick_ms, spec, at)] for tick_ms in view.upcoming_ms]
    return [Table([], facts), Table([], ticks or [["", _next(view, at)]], title=_next_title(view))]


def _next_title(view: ScheduleView) -> str:
    return "Next ticks, if it were not paused" if view.is_paused else "Next ticks"


def _next(view: ScheduleView, at: int) -> str:
    if view.is_paused:
        return "paused"
    return "ended" if view.next_ms is None else moment(view.next_ms, view.spec, at)


def _missed(view: ScheduleView, at: int) -> str:
    if view.missed_ms is None:
        return str(view.missed)
    return f"{view.missed}, last {moment(view.missed_ms, view.spec, at)}: {view.missed_reason}"


def expression(spec: ScheduleSpec) -> str:
    """Return when a schedule fires, as people set it."""
    return f"every {duration(spec.every_ms)}" if spec.every_ms is not None else f"{spec.cron} {spec.timezone}"


def moment(at_ms: int | None, spec: ScheduleSpec, now: int) -> str:
    """Return an instant in the time zone of a schedule, and how far away it is."""
    if at_ms is None:
        return "-"
    try:
        zone = ZoneInfo(spec.timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        zone = ZoneInfo("UTC")
    local = datetime.fromtimestamp(at_ms / 1000, zone).strftime("%a %Y-%m-%d %H:%M:%S %Z")
    away = f"in {duration(at_ms - now)}" if at_ms >= now else f"{duration(now - at_ms)} ago"
    return f"{local} ({away})"
