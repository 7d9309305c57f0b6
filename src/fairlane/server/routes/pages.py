"""GET routes: queues, config, metrics, health checks, API documentation and the dashboard."""

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
from fairlane.gateway.context import PLAIN
from fairlane.server.context import ServerContext
from fairlane.server.interfaces.exchange import JSON, Exchange
from fairlane.server.metrics.families import OPENMETRICS, PROMETHEUS, render
from fairlane.server.openapi import description
from fairlane.verbs.cluster import GetCluster
from fairlane.verbs.config import ListConfig
from fairlane.verbs.keys import EVERY
from fairlane.verbs.queues import InspectQueue, ListQueues


async def queues(server: ServerContext, exchange: Exchange, caller: Caller) -> None:
    """Answer with all queues."""
    exchange.query()
    await exchange.answer(await server.call(ListQueues(), caller, PLAIN))


async def queue(name: str, server: ServerContext, exchange: Exchange, caller: Caller) -> None:
    """Answer with one queue and its fairness keys."""
    exchange.query()
    await exchange.answer(await server.call(InspectQueue(queue=name), caller, PLAIN))


async def config(server: ServerContext, exchange: Exchange, caller: Caller) -> None:
    """Answer with config values."""
    prefix = exchange.query("prefix").get("prefix", "")
    await exchange.answer(await server.call(ListConfig(prefix=prefix), caller, PLAIN))


async def cluster(server: ServerContext, exchange: Exchange, caller: Caller) -> None:
    """Answer with the cluster as this node sees it."""
    exchange.query()
    await exchange.answer(await server.call(GetCluster(), caller, PLAIN))


async def metrics(server: ServerContext, exchange: Exchange, caller: Caller) -> None:
    """Answer with all metrics, for Prometheus."""
    caller.check("observe", EVERY)
    is_open_metrics = "application/openmetrics-text" in (exchange.headers.get(b"accept") or "")
    parts = []
    for part in render(
        await server.metrics.families(server.tally, server.connections), is_open_metrics=is_open_metrics
    ):
        parts.append(part)
        await asyncio.sleep(0)  # calls must not wait for a long page
    await exchange.answer_bytes("".join(parts).encode(), OPENMETRICS if is_open_metrics else PROMETHEUS)


# ---------------------------------------------------------------------------------------- routes without authentication


async def healthz(_server: ServerContext, exchange: Exchange) -> None:
    """Answer that the process is alive."""
    await exchange.answer({"status": "ok", "version": __version__})


async def readyz(server: ServerContext, exchange: Exchange) -> None:
    """Answer whether the server accepts work: its store responds, and it is not shutting down."""
    if server.draining.is_set():
        await exchange.answer({"status": "draining"}, status=503)
        return
    await server.observed.get_config("")
    await exchange.answer({"status": "ready"})


@cache
def _description() -> bytes:
    return msgspec.json.encode(description())


async def openapi(_server: ServerContext, exchange: Exchange) -> None:
    """Answer with the OpenAPI description."""
    await exchange.answer_bytes(_description(), JSON)


async def _favicon(_server: ServerContext, _exchange: Exchange) -> None:
    raise RouteNotFound("The server has no favicon.ico.")


async def _dashboard(_server: ServerContext, exchange: Exchange) -> None:
    """Answer with a file of the dashboard. The files have no secrets; the calls they make need rights."""
    asset = assets()[exchange.path]
    headers = {**HEADERS, "etag": asset.etag}
    if exchange.headers.get(b"if-none-match") == asset.etag:
        await exchange.answer_bytes(b"", asset.kind, status=304, headers=headers)
    else:
        await exchange.answer_bytes(asset.data, asset.kind, headers=headers)


async def _plotly(_server: ServerContext, exchange: Exchange) -> None:
    """Answer with the Plotly script, if it is installed. A thread prepares it once."""
    script = await asyncio.to_thread(plotly_script)
    if script is None:
        raise RouteNotFound("Charts need the plotly package; install fairlane[server] on the server.")
    headers = {**HEADERS, "etag": script.etag, "vary": "accept-encoding"}
    if exchange.headers.get(b"if-none-match") == script.etag:
        await exchange.answer_bytes(b"", KIND, status=304, headers=headers)
    elif "gzip" in (exchange.headers.get(b"accept-encoding") or ""):
        await exchange.answer_bytes(script.gzipped, KIND, headers={**headers, "content-encoding": "gzip"})
    else:
        await exchange.answer_bytes(script.data, KIND, headers=headers)


PUBLIC: Final[dict[str, Callable[[ServerContext, Exchange], Awaitable[Any]]]] = {
    **dict.fromkeys(assets(), _dashboard),
    PLOTLY: _plotly,
    "/healthz": healthz,
    "/readyz": readyz,
    "/openapi.json": openapi,
    "/favicon.ico": _favicon,
}
"""Routes without authentication, by path."""
