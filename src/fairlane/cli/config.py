"""The commands ``config …``: values that act on a running broker, and the settings a server starts with."""

from __future__ import annotations

from pathlib import Path

import click

from fairlane.cli.errors import NOTHING, Stop
from fairlane.cli.output import Table, answer
from fairlane.cli.session import Session, pass_session
from fairlane.cli.settings import SETTINGS_FILE, facts_of, load_settings

_SECRET = "auth:"  # noqa: S105 - where the hashes of keys are kept


@click.group(name="config")
def config_command() -> None:
    """Set, get and list config values; check the settings of a server."""


@config_command.command(name="set")
@click.argument("key")
@click.argument("value", required=False)
@click.option("--unset", is_flag=True, help="Remove the value.")
@pass_session
def set_value(session: Session, key: str, value: str | None, *, unset: bool) -> None:
    r"""Set a config value. It acts at once.

    \b
    throttle:NAME:rate     tokens a second of a throttle
    throttle:NAME:burst    the most tokens it saves up
    weight:QUEUE:KEY       the weight of a fairness key
    cap:QUEUE:KEY          how many messages of a key may be leased at once
    anything else          is for hooks
    """
    if unset == (value is not None):
        raise click.UsageError("Say a VALUE, or --unset.")
    _refuse_secrets(key)
    with session.door() as door:
        door.set_config(key, value)
    words = f"{key} is removed." if value is None else f"{key} is {value}."
    answer({"key": key, "value": value}, words, is_json=session.is_json)


@config_command.command()
@click.argument("key")
@pass_session
def get(session: Session, key: str) -> None:
    """Print a config value; exit code 4 if there is none."""
    _refuse_secrets(key)
    with session.door() as door:
        value = door.list_config(key).get(key)
    if value is None:
        raise Stop(NOTHING)
    answer({"key": key, "value": value}, value, is_json=session.is_json)


@config_command.command(name="list")
@click.option("--prefix", default="", help="Only keys that begin so.")
@pass_session
def list_values(session: Session, *, prefix: str) -> None:
    """Show config values by key."""
    with session.door() as door:
        found = door.list_config(prefix)
    values = {key: value for key, value in found.items() if not key.startswith(_SECRET)}
    answer(values, [Table(["key", "value"], [list(pair) for pair in values.items()])], is_json=session.is_json)


@config_command.command()
@SETTINGS_FILE
@pass_session
def check(session: Session, *, path: Path | None) -> None:
    """Check the settings with which a server would start, and show them.

    They come from the file, the environment (FAIRLANE_PORT and so on) and the defaults; nothing is started.
    """
    from fairlane.server.settings import check as check_settings

    settings = load_settings(path, {"data": session.place.data})
    check_settings(settings)
    found = facts_of(settings)
    rows = [[name, "-" if value is None else str(value)] for name, value in found.items()]
    answer(found, [Table(["setting", "value"], rows)], is_json=session.is_json)


def _refuse_secrets(key: str) -> None:
    if key.startswith(_SECRET):
        raise click.UsageError("API keys have commands of their own: fairlane key.")
