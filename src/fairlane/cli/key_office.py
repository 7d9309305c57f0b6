"""Where API keys are made: on a server over HTTP, or in a folder that no server has open."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TypeVar
from urllib.parse import urlsplit

import click
import msgspec

from fairlane.assembly import open_async_broker
from fairlane.cli.session import Place
from fairlane.errors import Disconnected, InternalError
from fairlane.gateway.caller import ANYBODY
from fairlane.server.api_keys import ApiKeys
from fairlane.verbs.errors import error_of
from fairlane.verbs.keys import CreatedKey, CreateKey, KeyList, ListKeys, RevokeKey
from fairlane.verbs.verb import Done, Shape
from fairlane.wire.errors import ErrorAnswer

_TIMEOUT_S = 30
_OK = 200
Answer = TypeVar("Answer", bound=Shape)


def create_key(place: Place, request: CreateKey) -> CreatedKey:
    """Make a key."""
    if place.data is None:
        return _post(place, "keys/create", request, CreatedKey)

    async def make(keys: ApiKeys) -> CreatedKey:
        return await keys.create(request, ANYBODY)

    return asyncio.run(_in_folder(place, make))


def list_keys(place: Place) -> KeyList:
    """Return all keys, without what makes them good."""
    if place.data is None:
        return _post(place, "keys/list", ListKeys(), KeyList)

    async def show(keys: ApiKeys) -> KeyList:
        return await keys.shown(ListKeys(), ANYBODY)

    return asyncio.run(_in_folder(place, show))


def revoke_key(place: Place, request: RevokeKey) -> None:
    """Let a key be good for nothing."""
    if place.data is None:
        _post(place, "keys/revoke", request, Done)
        return

    async def revoke(keys: ApiKeys) -> None:
        await keys.revoke(request, ANYBODY)

    asyncio.run(_in_folder(place, revoke))


T = TypeVar("T")


async def _in_folder(place: Place, do: Callable[[ApiKeys], Awaitable[T]]) -> T:
    async with await open_async_broker(place.store) as broker:
        keys = ApiKeys(broker)
        await keys.load()
        return await do(keys)


def _post(place: Place, path: str, request: Shape, answer: type[Answer]) -> Answer:
    """Ask a server, and return its answer; of several nodes the first that is there."""
    first, _, others = place.server.partition(",")
    try:
        return _post_to(first.strip(), place, path, request, answer)
    except Disconnected:
        if not others:
            raise
        return _post(replace(place, server=others), path, request, answer)


def _post_to(server: str, place: Place, path: str, request: Shape, answer: type[Answer]) -> Answer:
    parts = urlsplit(server)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise click.UsageError(f"A server is named by a URL such as http://127.0.0.1:7420, not {server!r}.")
    connection = HTTPConnection(parts.hostname, parts.port, timeout=_TIMEOUT_S)
    if parts.scheme == "https":
        connection = HTTPSConnection(parts.hostname, parts.port, timeout=_TIMEOUT_S, context=place.tls())
    headers = {"content-type": "application/json"}
    if place.api_key is not None:
        headers["authorization"] = f"Bearer {place.api_key}"
    try:
        connection.request("POST", f"{parts.path.rstrip('/')}/v1/{path}", msgspec.json.encode(request), headers)
        response = connection.getresponse()
        status, body = response.status, response.read()
    except (HTTPException, OSError) as error:
        raise Disconnected(f"The server {server} can't be reached: {error}.") from error
    finally:
        connection.close()
    try:
        if status == _OK:
            return msgspec.json.decode(body, type=answer)
        refusal = msgspec.json.decode(body, type=ErrorAnswer)
    except msgspec.MsgspecError as error:
        raise InternalError(f"{server} answers {status} with what is no answer of a Fairlane server.") from error
    raise error_of(refusal.error)
