"""The commands ``key …``."""

from __future__ import annotations

from typing import cast, get_args

import click

from fairlane.cli.durations import DURATION
from fairlane.cli.key_office import create_key, list_keys, revoke_key
from fairlane.cli.output import Table, answer, instant
from fairlane.cli.session import Session, pass_session
from fairlane.cli.tables import now_ms
from fairlane.verbs.keys import CreateKey, Grant, RevokeKey
from fairlane.verbs.verb import Right

_RIGHTS = get_args(Right)


class GrantType(click.ParamType):  # type: ignore[type-arg] # older versions of click know no argument
    """A right, and where it holds: ``RIGHT[:QUEUES[:KEY,KEY]]``."""

    name = "right[:queues[:keys]]"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Grant:
        """Return the grant that was written."""
        right, _, rest = str(value).partition(":")
        queues, _, keys = rest.partition(":")
        if right not in _RIGHTS:
            self.fail(f"A right is {', '.join(_RIGHTS)}, not {right!r}.", param, ctx)
        return Grant(right=cast("Right", right), queues=queues or "*", keys=tuple(keys.split(",")) if keys else None)


@click.group(name="key")
def key_command() -> None:
    """Make, list and revoke API keys of a server."""


@key_command.command()
@click.argument("name")
@click.option(
    "--grant",
    "grants",
    multiple=True,
    required=True,
    type=GrantType(),
    help="What it gives the right to: produce, consume or admin; on which queues: produce:orders, consume:mail.*; "
    "for producers, for which fairness keys: produce:orders:acme,bakery. May be repeated.",
)
@click.option("--expires-in", type=DURATION, help="How long it is good; by default until it is revoked.")
@pass_session
def create(session: Session, name: str, *, grants: tuple[Grant, ...], expires_in: int | None) -> None:
    """Make a key and print it. This is the only time that it is shown.

    With --data the key is made in a folder that no server has open: so the first one can be made.
    """
    expires_ms = None if expires_in is None else now_ms() + expires_in
    made = create_key(session.place, CreateKey(name=name, grants=grants, expires_ms=expires_ms))
    if not session.is_json:
        click.echo(f"Key {made.id}, {name}. It is shown only now:", err=True)
    answer(made, made.key, is_json=session.is_json)


@key_command.command(name="list")
@pass_session
def list_command(session: Session) -> None:
    """Show keys, without what makes them good."""
    keys = list_keys(session.place).keys
    rows = [
        [
            key.id,
            key.name,
            ", ".join(map(_words, key.grants)),
            instant(key.created_ms),
            "never" if key.expires_ms is None else instant(key.expires_ms),
        ]
        for key in keys
    ]
    answer(keys, [Table(["id", "name", "grants", "made", "expires"], rows)], is_json=session.is_json)


@key_command.command()
@click.argument("key_id", metavar="ID")
@pass_session
def revoke(session: Session, key_id: str) -> None:
    """Let a key be good for nothing from now on."""
    revoke_key(session.place, RevokeKey(id=key_id))
    answer({"id": key_id, "revoked": True}, f"Key {key_id} is good for nothing now.", is_json=session.is_json)


def _words(grant: Grant) -> str:
    keys = "" if grant.keys is None else f":{','.join(grant.keys)}"
    return f"{grant.right}:{grant.queues}{keys}"
