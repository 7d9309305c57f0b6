"""How a WebSocket is refused and closed."""

from __future__ import annotations

from typing import Final

import msgspec

from fairlane.errors import FairlaneError
from fairlane.server.interfaces.asgi import Scope, Send
from fairlane.verbs.errors import body_of
from fairlane.wire.errors import HTTP_STATUS, ErrorAnswer

POLICY: Final = 1008
"""The close code for a caller that may not be connected."""
_REASON_BYTES_MAX: Final = 120


async def refuse_handshake(error: FairlaneError, scope: Scope, send: Send) -> None:
    """Refuse a WebSocket, with the error as the answer where the ASGI server can send one."""
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": POLICY, "reason": error.code})
        return
    headers = [(b"content-type", b"application/json")]
    await send({"type": "websocket.http.response.start", "status": HTTP_STATUS[error.code], "headers": headers})
    body = msgspec.json.encode(ErrorAnswer(error=body_of(error)))
    await send({"type": "websocket.http.response.body", "body": body})


async def close_socket(send: Send, code: int, reason: str) -> None:
    """Close a WebSocket."""
    short = reason.encode()[:_REASON_BYTES_MAX].decode(errors="ignore")
    await send({"type": "websocket.close", "code": code, "reason": short})
