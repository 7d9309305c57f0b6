"""The commands ``config``: values that operators change at run time, and the settings that a server starts with."""

from __future__ import annotations

from pathlib import Path

import click

from fairlane.cli.errors import NOTHING, Quit
from fairlane.cli.formatting import duration, instant
from fairlane.cli.output import Table
from fairlane.cli.parameters import Duration
from fairlane.cli.server_settings import server_options, settings_by_name, settings_of
from fairlane.cli.session import Session, pass_session

_API_KEYS = "auth:"
"""The prefix under which the hashes of API keys are stored."""
_CONFIG_KEYS = """\b
Config keys:
  throttle:NAME:rate          tokens per second of a throttle
  throttle:NAME:burst         most tokens that a throttle accumulates
  throttle:NAME:charge        message or cost: take one token, or as many as a message costs
  throttle_weight:QUEUE:NAME  weight of a queue in a throttle that queues share
  weight:QUEUE:KEY            weight of a fairness key
  cap:QUEUE:KEY               most messages of a fairness key in flight
  floor:QUEUE:KEY             messages of a fairness key in flight even if in_flight_max is reached
  rate:QUEUE:KEY              most messages of a fairness key per second
  burst:QUEUE:KEY             most messages of a fairness key at once after a rest
  charge:QUEUE:KEY            message or cost: a message counts as one in them, or as many as it costs
  queue_template:PATTERN      template of new queues; see fairlane queue template
  queue:QUEUE:NAME            value that the hooks of a queue read
  public:NAME                 value that the hooks of all queues read
  any other                   for your own use
NAME and KEY may end with a star, for all names with that prefix.
"""


@click.group(name="config")
def config_command() -> None:
    """Set, get and list config values; check a server's settings."""


@config_command.command(name="set", epilog=_CONFIG_KEYS)
@click.argument("key")
@click.argument("value", required=False)
@click.option("--unset", is_flag=True, help="Remove the value.")
@click.option("--owner", help="Who is responsible for the value; recorded in the journal.")
@click.option("--reason", help="Why it is set; recorded in the journal.")
@click.option(
    "--expires",
    "expire_after_ms",
    type=Duration(),
    help="Set it for this long, such as 1h; then the broker restores the previous value.",
)
@pass_session
def set_value(
    session: Session,
    key: str,
    value: str | None,
    *,
    unset: bool,
    owner: str | None,
    reason: str | None,
    expire_after_ms: int | None,
) -> None:
    """Set a config value. It takes effect at once, for waiting messages too."""
    if unset == (value is not None):
        raise click.UsageError("Pass either a VALUE or --unset.")
    _refuse_api_keys(key)
    with session.broker() as broker:
        broker.set_config(key, value, owner=owner, reason=reason, expire_after_ms=expire_after_ms)
    until = "" if expire_after_ms is None else f" for {duration(expire_after_ms)}"
    text = f"Removed {key}{until}." if value is None else f"Set {key} to {value}{until}."
    session.answer({"key": key, "value": value}, text)


@config_command.command()
@click.argument("key")
@pass_session
def get(session: Session, key: str) -> None:
    """Print a config value. Exit code 4 means that it is not set."""
    _refuse_api_keys(key)
    with session.broker() as broker:
        value = broker.get_config(key)
    if value is None:
        raise Quit(NOTHING)
    session.answer({"key": key, "value": value}, value)


@config_command.command(name="list")
@click.option("--prefix", default="", help="Only config keys with this prefix.")
@pass_session
def list_values(session: Session, *, prefix: str) -> None:
    """Show config values, and below them those that expire."""
    with session.broker() as broker:
        found = broker.list_config(prefix)
        temporary = broker.list_temporary_config(prefix)
    values = {key: value for key, value in found.items() if not key.startswith(_API_KEYS)}
    tables = [Table(["key", "value"], [list(pair) for pair in values.items()])]
    if temporary:
        columns = ["key", "expires", "value before", "owner", "reason"]
        rows = [
            [one.key, instant(one.expires_ms), one.before or "-", one.owner or "-", one.reason or "-"]
            for one in temporary
        ]
        tables.append(Table(columns, rows, title="Temporary values"))
    session.answer(values, tables)


@config_command.command()
@server_options
@pass_session
def check(session: Session, /, *, path: Path | None, **options: object) -> None:
    """Check and show the settings that a server would start with, with the values that take effect.

    It takes the options of fairlane serve. Settings come from them, the environment (FAIRLANE_PORT and so on), the file
    and the defaults. No server is started.
    """
    from fairlane.server.settings import check as check_settings

    settings = settings_of(session, path, options)
    check_settings(settings)
    found = settings_by_name(settings) | {"auth": settings.requires_auth}
    rows = [[name, "-" if value is None else str(value)] for name, value in found.items()]
    session.answer(found, [Table(["setting", "value"], rows)])


def _refuse_api_keys(key: str) -> None:
    if key.startswith(_API_KEYS):
        raise click.UsageError(f"Config keys that begin with {_API_KEYS} store API keys; use `fairlane key` instead.")
