"""Pages to be looked at with GET, by people and by operators' machines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any, Final

import msgspec

from fairlane import __version__
from fairlane.dashboard.assets import HEADERS, assets
from fairlane.dashboard.plotly import KIND, PLOTLY, plotly_script
from fairlane.errors import RouteNotFound
from fairlane.gateway.caller import Caller
from fairlane.server.doors import Doors
from fairlane.server.interfaces.asgi import header
from fairlane.server.interfaces.exchange import JSON, Exchange
from fairlane.server.metrics.families import OPENMETRICS, PROMETHEUS, render
from fairlane.server.openapi import description
from fairlane.server.routes.api_docs import PAGE
from fairlane.verbs.cluster import GetCluster
from fairlane.verbs.config import ListConfig
from fairlane.verbs.keys import EVERY
from fairlane.verbs.queues import InspectQueue, ListQueues


async def queues(doors: Doors, exchange: Exchange, caller: Caller) -> None:
    """Show all queues."""
    exchange.query()
    await exchange.answer(await doors.call("queues", ListQueues(), caller))


async def queue(name: str, doors: Doors, exchange: Exchange, caller: Caller) -> None:
    """Show a queue with its keys."""
    exchange.query()
    await exchange.answer(await doors.call("inspect", InspectQueue(queue=name), caller))


async def config(doors: Doors, exchange: Exchange, caller: Caller) -> None:
    """Show config values."""
    prefix = exchange.query("prefix").get("prefix", "")
    await exchange.answer(await doors.call("list_config", ListConfig(prefix=prefix), caller))


async def cluster(doors: Doors, exchange: Exchange, caller: Caller) -> None:
    """Show the cluster as this node sees it."""
    exchange.query()
    await exchange.answer(await doors.call("cluster", GetCluster(), caller))


async def metrics(doors: Doors, exchange: Exchange, caller: Caller) -> None:
    """Show what is counted, for Prometheus."""
    caller.check("admin", EVERY)
    is_open_metrics = "application/openmetrics-text" in (header(exchange.scope, b"accept") or "")
    parts = []
    for part in render(await doors.metrics.families(doors.tally), is_open_metrics=is_open_metrics):
        parts.append(part)
        await asyncio.sleep(0)  # messages and leases are not to wait for a long page
    await exchange.answer_bytes("".join(parts).encode(), OPENMETRICS if is_open_metrics else PROMETHEUS)


# ------------------------------------------------------------------------------------------------- what needs no rights


async def healthz(_doors: Doors, exchange: Exchange) -> None:
    """Say that the process lives."""
    await exchange.answer({"status": "ok", "version": __version__})


async def readyz(doors: Doors, exchange: Exchange) -> None:
    """Say whether work is taken: the store answers, and the server does not go down."""
    if doors.draining.is_set():
        await exchange.answer({"status": "draining"}, status=503)
        return
    await doors.broker.get_config("")
    await exchange.answer({"status": "ready"})


@cache
def _description() -> bytes:
    return msgspec.json.encode(description())


async def openapi(_doors: Doors, exchange: Exchange) -> None:
    """Show the description of the API."""
    await exchange.answer_bytes(_description(), JSON)


async def docs(_doors: Doors, exchange: Exchange) -> None:
    """Show the description for people."""
    policy = "default-src 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    await exchange.answer_bytes(PAGE.encode(), "text/html; charset=utf-8", headers={"content-security-policy": policy})


async def _favicon(_doors: Doors, _exchange: Exchange) -> None:
    raise RouteNotFound("There is no icon.")


async def _dashboard(_doors: Doors, exchange: Exchange) -> None:
    """Show the dashboard: files without secrets; what they ask for needs rights."""
    asset = assets()[exchange.path]
    headers = {**HEADERS, "etag": asset.etag}
    if header(exchange.scope, b"if-none-match") == asset.etag:
        await exchange.answer_bytes(b"", asset.kind, status=304, headers=headers)
    else:
        await exchange.answer_bytes(asset.data, asset.kind, headers=headers)


async def _plotly(_doors: Doors, exchange: Exchange) -> None:
    """Show the script that draws charts, if it is installed. It is made ready beside the loop, once."""
    script = await asyncio.to_thread(plotly_script)
    if script is None:
        raise RouteNotFound("Charts need the package plotly on the server: install fairlane[report] there.")
    headers = {**HEADERS, "etag": script.etag, "vary": "accept-encoding"}
    if header(exchange.scope, b"if-none-match") == script.etag:
        await exchange.answer_bytes(b"", KIND, status=304, headers=headers)
    elif "gzip" in (header(exchange.scope, b"accept-encoding") or ""):
        await exchange.answer_bytes(script.gzipped, KIND, headers={**headers, "content-encoding": "gzip"})
    else:
        await exchange.answer_bytes(script.data, KIND, headers=headers)


PUBLIC: Final[dict[str, Callable[[Doors, Exchange], Awaitable[Any]]]] = {
    **dict.fromkeys(assets(), _dashboard),
    PLOTLY: _plotly,
    "/healthz": healthz,
    "/readyz": readyz,
    "/openapi.json": openapi,
    "/docs": docs,
    "/favicon.ico": _favicon,
}
"""What anybody may see."""
