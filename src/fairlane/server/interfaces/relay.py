"""Answers that come bit by bit from another node, passed on to whoever can't be sent there, such as a page."""

from __future__ import annotations

from typing import Final

from fairlane.server.context import ServerContext
from fairlane.server.interfaces.exchange import Exchange
from fairlane.server.interfaces.subscription import first_of

_PASSED_THERE: Final = ("authorization", "accept", "x-correlation-id", "traceparent", "tracestate")
_PASSED_BACK: Final = "x-fairlane-"


def may_relay(exchange: Exchange) -> bool:
    """Tell whether a request is passed on: it takes nothing with it, and its caller neither follows nor is a node."""
    context = exchange.context()
    return exchange.method == "GET" and not context.follows and not context.is_forwarded


def headers_for_node(exchange: Exchange) -> dict[str, str]:
    """Return what another node is told of a caller and of what it may answer."""
    given = {name: exchange.headers.get(name.encode()) for name in _PASSED_THERE}
    told = {name: value for name, value in given.items() if value is not None}
    return {"accept": "*/*", "x-correlation-id": exchange.correlation_id, **told}


async def relay(server: ServerContext, exchange: Exchange, address: str) -> None:
    """Answer with what the node at an address answers, until it ends, the caller hangs up, or the server goes down.

    Raises:
        QueueMoving, Disconnected: it does not answer.
    """
    query = f"?{exchange.query_string}" if exchange.query_string else ""
    with server.subscription():
        async with server.gateway.listen(address, exchange.path + query, headers_for_node(exchange)) as heard:

            async def pass_on() -> None:
                headers = {name: value for name, value in heard.headers.items() if name.startswith(_PASSED_BACK)}
                headers["cache-control"] = heard.headers.get("cache-control", "no-store")
                kind = heard.headers.get("content-type", "application/octet-stream")
                await exchange.begin(kind, status=heard.status, headers=headers)
                async for piece in heard.pieces:
                    await exchange.more(piece)

            await first_of(pass_on(), exchange.hung_up(), server.draining.wait())
    await exchange.end()
