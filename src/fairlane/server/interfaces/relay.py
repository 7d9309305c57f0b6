"""Relays answers in pieces from the node that has a queue, for callers that can't be redirected, such as a web page."""

from __future__ import annotations

from typing import Final

from fairlane.server.context import ServerContext
from fairlane.server.interfaces.correlation import HEADER
from fairlane.server.interfaces.exchange import Exchange
from fairlane.server.interfaces.subscription import first_of

_PASSED_THERE: Final = ("authorization", "accept", "traceparent", "tracestate")
_PASSED_BACK: Final = "x-fairlane-"


def may_relay(exchange: Exchange) -> bool:
    """Return whether a request is relayed: a GET of a caller that neither follows by itself nor is a node."""
    context = exchange.context()
    return exchange.method == "GET" and not context.follows and not context.is_forwarded


def headers_for_node(exchange: Exchange) -> dict[str, str]:
    """Return the headers that another node needs to answer in the caller's place."""
    given = {name: exchange.headers.get(name.encode()) for name in _PASSED_THERE}
    passed = {name: value for name, value in given.items() if value is not None}
    return {"accept": "*/*", HEADER: exchange.correlation.id, **passed}


async def relay(server: ServerContext, exchange: Exchange, address: str) -> None:
    """Send the answer of the node at an address, until it ends, the caller disconnects, or the server shuts down.

    Raises:
        QueueMoving, Disconnected: that node does not answer.
    """
    query = f"?{exchange.query_string}" if exchange.query_string else ""
    with server.subscription(exchange.holder):
        async with server.gateway.listen(address, exchange.path + query, headers_for_node(exchange)) as answer:

            async def pass_on() -> None:
                headers = {name: value for name, value in answer.headers.items() if name.startswith(_PASSED_BACK)}
                headers["cache-control"] = answer.headers.get("cache-control", "no-store")
                kind = answer.headers.get("content-type", "application/octet-stream")
                await exchange.begin(kind, status=answer.status, headers=headers)
                async for piece in answer.pieces:
                    await exchange.more(piece)

            await first_of(pass_on(), exchange.hung_up(), server.draining.wait())
    await exchange.end()
