"""The commands ``key``: API keys of a server, or of a data folder that no server has open."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TypeVar, cast, get_args
from urllib.parse import urlsplit

import click
import msgspec

from fairlane.assembly import open_async_broker
from fairlane.cli.formatting import instant, now_ms
from fairlane.cli.output import Table, answer
from fairlane.cli.parameters import DURATION
from fairlane.cli.session import Endpoint, Session, pass_session
from fairlane.errors import Disconnected, InternalError
from fairlane.gateway.caller import ANYBODY
from fairlane.server.api_keys import ApiKeys
from fairlane.verbs.errors import error_of
from fairlane.verbs.keys import CreatedKey, CreateKey, Grant, KeyList, ListKeys, RevokeKey
from fairlane.verbs.verb import Done, Right, Shape
from fairlane.wire.errors import ErrorAnswer

_RIGHTS = get_args(Right)
_TIMEOUT_S = 30
_OK = 200
Answer = TypeVar("Answer", bound=Shape)
T = TypeVar("T")


class GrantType(click.ParamType):  # type: ignore[type-arg] # older versions of click are not generic
    """A right and where it applies: ``RIGHT[:QUEUES[:KEY,KEY]]``."""

    name = "right[:queues[:keys]]"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Grant:
        """Return the grant."""
        right, _, rest = str(value).partition(":")
        queues, _, keys = rest.partition(":")
        if right not in _RIGHTS:
            self.fail(f"Unknown right {right!r}; use one of {', '.join(_RIGHTS)}.", param, ctx)
        return Grant(right=cast("Right", right), queues=queues or "*", keys=tuple(keys.split(",")) if keys else None)


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
    help="Right to grant: produce, consume or admin; optionally on which queues (produce:orders, consume:mail.*), "
    "and for producers with which fairness keys (produce:orders:acme,bakery). Repeatable.",
)
@click.option("--expires-in", type=DURATION, help="How long the API key is valid. Default: until it is revoked.")
@pass_session
def create(session: Session, name: str, *, grants: tuple[Grant, ...], expires_in: int | None) -> None:
    """Create an API key and print it. It cannot be shown again.

    With --data the API key is created in a folder that no server has open. Use this to create the first one.
    """
    expires_ms = None if expires_in is None else now_ms() + expires_in
    made = _create(session.endpoint, CreateKey(name=name, grants=grants, expires_ms=expires_ms))
    if not session.is_json:
        click.echo(f'Created API key {made.id} ("{name}"). Store it now; it cannot be shown again:', err=True)
    answer(made, made.key, is_json=session.is_json)


@key_command.command(name="list")
@pass_session
def list_command(session: Session) -> None:
    """Show the API keys, without their secrets."""
    keys = _list(session.endpoint).keys
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
    answer(keys, [Table(["id", "name", "grants", "created", "expires"], rows)], is_json=session.is_json)


@key_command.command()
@click.argument("key_id", metavar="ID")
@pass_session
def revoke(session: Session, key_id: str) -> None:
    """Revoke an API key. Requests with it are refused from now on."""
    _revoke(session.endpoint, RevokeKey(id=key_id))
    answer({"id": key_id, "revoked": True}, f"Revoked API key {key_id}.", is_json=session.is_json)


def _grant_text(grant: Grant) -> str:
    keys = "" if grant.keys is None else f":{','.join(grant.keys)}"
    return f"{grant.right}:{grant.queues}{keys}"


def _create(endpoint: Endpoint, request: CreateKey) -> CreatedKey:
    if not endpoint.is_embedded:
        return _post(endpoint, "keys/create", request, CreatedKey)

    async def create(keys: ApiKeys) -> CreatedKey:
        return await keys.create(request, ANYBODY)

    return asyncio.run(_in_folder(endpoint, create))


def _list(endpoint: Endpoint) -> KeyList:
    if not endpoint.is_embedded:
        return _post(endpoint, "keys/list", ListKeys(), KeyList)

    async def shown(keys: ApiKeys) -> KeyList:
        return await keys.shown(ListKeys(), ANYBODY)

    return asyncio.run(_in_folder(endpoint, shown))


def _revoke(endpoint: Endpoint, request: RevokeKey) -> None:
    if not endpoint.is_embedded:
        _post(endpoint, "keys/revoke", request, Done)
        return

    async def revoke(keys: ApiKeys) -> None:
        await keys.revoke(request, ANYBODY)

    asyncio.run(_in_folder(endpoint, revoke))


async def _in_folder(endpoint: Endpoint, work: Callable[[ApiKeys], Awaitable[T]]) -> T:
    async with await open_async_broker(endpoint.store) as broker:
        keys = ApiKeys(broker)
        await keys.load()
        return await work(keys)


def _post(endpoint: Endpoint, path: str, request: Shape, kind: type[Answer]) -> Answer:
    """Send a request to a server and return its answer; of several nodes, to the first that answers."""
    first, _, others = endpoint.server.partition(",")
    try:
        return _post_to(first.strip(), endpoint, path, request, kind)
    except Disconnected:
        if not others:
            raise
        return _post(replace(endpoint, server=others), path, request, kind)


def _post_to(server: str, endpoint: Endpoint, path: str, request: Shape, kind: type[Answer]) -> Answer:
    status, body = _exchange(server, endpoint, path, msgspec.json.encode(request))
    try:
        if status == _OK:
            return msgspec.json.decode(body, type=kind)
        refusal = msgspec.json.decode(body, type=ErrorAnswer)
    except msgspec.MsgspecError as error:
        cause = f"{server} answered with HTTP status {status} and a body that no Fairlane server sends."
        raise InternalError(cause) from error
    raise error_of(refusal.error)


def _exchange(server: str, endpoint: Endpoint, path: str, body: bytes) -> tuple[int, bytes]:
    parts = urlsplit(server)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise click.UsageError(f"Invalid server address {server!r}; expected a URL such as http://127.0.0.1:7420.")
    connection = HTTPConnection(parts.hostname, parts.port, timeout=_TIMEOUT_S)
    if parts.scheme == "https":
        connection = HTTPSConnection(parts.hostname, parts.port, timeout=_TIMEOUT_S, context=endpoint.tls())
    headers = {"content-type": "application/json"}
    if endpoint.api_key is not None:
        headers["authorization"] = f"Bearer {endpoint.api_key}"
    try:
        connection.request("POST", f"{parts.path.rstrip('/')}/v1/{path}", body, headers)
        response = connection.getresponse()
        return response.status, response.read()
    except (HTTPException, OSError) as error:
        raise Disconnected(f"Cannot reach the server at {server}: {error}.") from error
    finally:
        connection.close()
