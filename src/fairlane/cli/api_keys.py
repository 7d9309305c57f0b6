"""The commands ``key``: API keys of a server, or of a data folder that no server has open."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast, get_args

import click

from fairlane.assembly import open_async_broker
from fairlane.cli.formatting import instant, now_ms
from fairlane.cli.output import Table
from fairlane.cli.parameters import DURATION
from fairlane.cli.session import Endpoint, Session, pass_session
from fairlane.gateway.caller import ANYBODY
from fairlane.server.api_keys import ApiKeys
from fairlane.verbs.keys import CreateKey, Grant, ListKeys, RevokeKey
from fairlane.verbs.verb import Request, Right

_RIGHTS = get_args(Right)
Answer = TypeVar("Answer")


class GrantType(click.ParamType):  # type: ignore[type-arg] # older versions of click are not generic
    """A right and where it applies: ``RIGHT[:QUEUES[:KEYS[:THROTTLES[:SINKS]]]]``, lists separated by commas."""

    name = "right[:queues[:keys[:throttles[:sinks]]]]"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Grant:
        """Return the grant."""
        right, queues, keys, throttles, sinks = [*str(value).split(":", 4), "", "", "", ""][:5]
        if right not in _RIGHTS:
            self.fail(f"Unknown right {right!r}; use one of {', '.join(_RIGHTS)}.", param, ctx)
        return Grant(
            right=cast("Right", right),
            queues=queues or "*",
            keys=_names(keys),
            throttles=_names(throttles),
            sinks=_names(sinks),
        )


def _names(text: str) -> tuple[str, ...] | None:
    return tuple(text.split(",")) if text else None


@click.group(name="key")
def key_command() -> None:
    """Create, list and revoke API keys."""


@key_command.command()
@click.argument("name")
@click.option(
    "--grant",
    "grants",
    multiple=True,
    required=True,
    type=GrantType(),
    help="Right to grant: produce, consume, observe or admin. "
    "It can be limited to queues (produce:orders, consume:mail.*), "
    "and for producers also to fairness keys (produce:orders:acme,bakery), throttles that messages may name "
    "(produce:orders:acme:stripe) and sinks (produce:orders:acme::acme-*). Without a limit, throttles and sinks are "
    "none with fairness keys, otherwise any. Repeatable.",
)
@click.option("--expires-in", type=DURATION, help="How long the API key is valid. Default: until it is revoked.")
@pass_session
def create(session: Session, name: str, *, grants: tuple[Grant, ...], expires_in: int | None) -> None:
    """Create an API key and print it. It cannot be shown again.

    With --data the API key is created in a folder that no server has open. Use this to create the first one.
    """
    expires_ms = None if expires_in is None else now_ms() + expires_in
    request = CreateKey(name=name, grants=grants, expires_ms=expires_ms)
    made = _call(session, request, lambda keys: keys.create(request, ANYBODY))
    if not session.is_json:
        click.echo(f'Created API key {made.id} ("{name}"). Store it now; it cannot be shown again:', err=True)
    session.answer(made, made.key)


@key_command.command(name="list")
@pass_session
def list_command(session: Session) -> None:
    """Show the API keys, without their secrets."""
    keys = _call(session, ListKeys(), lambda keys: keys.shown(ListKeys(), ANYBODY)).keys
    rows = [
        [
            key.id,
            key.name,
            ", ".join(map(_grant_text, key.grants)),
            instant(key.created_ms),
            "never" if key.expires_ms is None else instant(key.expires_ms),
        ]
        for key in keys
    ]
    session.answer(keys, [Table(["id", "name", "grants", "created", "expires"], rows)])


@key_command.command()
@click.argument("key_id", metavar="ID")
@pass_session
def revoke(session: Session, key_id: str) -> None:
    """Revoke an API key. Requests with it are refused from now on."""
    request = RevokeKey(id=key_id)
    _call(session, request, lambda keys: keys.revoke(request, ANYBODY))
    session.answer({"id": key_id, "revoked": True}, f"Revoked API key {key_id}.")


def _grant_text(grant: Grant) -> str:
    limits = (grant.keys, grant.throttles, grant.sinks)
    return ":".join([grant.right, grant.queues, *(",".join(names or ()) for names in limits)]).rstrip(":")


def _call(session: Session, request: Request[Answer], in_folder: Callable[[ApiKeys], Awaitable[Answer]]) -> Answer:
    """Send a request to the server; with --data, carry it out on the folder, where no server handles API keys."""
    if session.endpoint.is_embedded:
        return asyncio.run(_in_folder(session.endpoint, in_folder))
    with session.broker() as broker:
        return broker.call(request)


async def _in_folder(endpoint: Endpoint, work: Callable[[ApiKeys], Awaitable[Answer]]) -> Answer:
    async with await open_async_broker(endpoint.store) as broker:
        keys = ApiKeys(broker)
        await keys.load()
        return await work(keys)
