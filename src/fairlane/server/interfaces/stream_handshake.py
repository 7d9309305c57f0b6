"""The handshake of the stream: who may open one, and how it is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from fairlane.errors import FairlaneError, InvalidArgument, RouteNotFound
from fairlane.gateway.caller import ANYBODY
from fairlane.server.context import ServerContext
from fairlane.server.interfaces.asgi import Receive, Scope, Send, address_of
from fairlane.server.interfaces.exchange import headers_of
from fairlane.server.interfaces.stream import POLICY, StreamConnection
from fairlane.verbs.errors import body_of
from fairlane.wire.errors import HTTP_STATUS, ErrorAnswer
from fairlane.wire.frames import COLUMNS, SUBPROTOCOL

PATH: Final = "/v1/stream"


async def serve_stream(server: ServerContext, scope: Scope, receive: Receive, send: Send) -> None:
    """Serve one WebSocket from its handshake to its end."""
    await receive()  # websocket.connect
    try:
        if scope["path"] != PATH:
            raise RouteNotFound(f"The stream is at {PATH}, not at {scope['path']!r:.150}.")
        caller = server.caller(headers_of(scope), scope)
        subprotocol = _chosen(server, scope["subprotocols"])
    except FairlaneError as error:
        what = f"WebSocket {scope['path']:.200}"
        server.tally.errors[error.code] += 1
        server.refusals.note(what, error, caller=ANYBODY, address=address_of(scope))
        await _refuse(error, scope, send)
        return
    await send({"type": "websocket.accept", "subprotocol": subprotocol})
    server.tally.streams += 1
    try:
        await StreamConnection(server, caller, scope, receive, send, columns=subprotocol == COLUMNS).run()
    finally:
        server.tally.streams -= 1


def _chosen(server: ServerContext, offered: Sequence[str]) -> str:
    """Return the subprotocol to speak. Raises InvalidArgument if the client knows none that the server knows.

    A node of a cluster passes requests on to other nodes, which it can with rows only.
    """
    if COLUMNS in offered and server.gateway.node is None:
        return COLUMNS
    if SUBPROTOCOL not in offered:
        raise InvalidArgument(f"The stream needs the subprotocol {SUBPROTOCOL!r}.")
    return SUBPROTOCOL


async def _refuse(error: FairlaneError, scope: Scope, send: Send) -> None:
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": POLICY, "reason": error.code})
        return
    headers = [(b"content-type", b"application/json")]
    await send({"type": "websocket.http.response.start", "status": HTTP_STATUS[error.code], "headers": headers})
    body = msgspec.json.encode(ErrorAnswer(error=body_of(error)))
    await send({"type": "websocket.http.response.body", "body": body})
