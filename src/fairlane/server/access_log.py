"""The access log: a line of JSON for each call of HTTP, the stream and gRPC, for operators who turn it on.

It says who asked what about which queue, what came of it, how long that took, and under which correlation id. Callers
choose much of that, so values are escaped and cut (see ``fairlane.logs``), and the lines per second are bounded (see
``line_limits``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import perf_counter
from typing import Any, Final, Literal, TypeAlias

from fairlane.gateway.caller import Caller
from fairlane.server.line_limits import LineLimits

Interface: TypeAlias = Literal["http", "stream", "grpc"]
OK: Final = "ok"
DISCONNECTED: Final = "disconnected"
"""The status of a call whose caller was gone before it was answered."""
LOGGER: Final = "fairlane.calls"
_log = logging.getLogger(LOGGER)


class AccessLog:
    """Logs the calls of all interfaces."""

    def __init__(
        self,
        lines_per_second: int,
        *,
        now_ms: Callable[[], int],
        call_later: Callable[[float, Callable[[], None]], object] | None = None,
    ) -> None:
        """Log from now on; see ``LineLimits``."""
        what = "calls were answered"
        self._lines = LineLimits(_log, what, lines_per_second, now_ms=now_ms, call_later=call_later)

    def note(
        self,
        interface: Interface,
        verb: str,
        begun_s: float,
        *,
        caller: Caller,
        address: str | None,
        request: object = None,
        status: str = OK,
        correlation_id: str | None = None,
    ) -> None:
        """Log a call that has been answered, or count it.

        Args:
            interface: how it came.
            verb: the verb; for what is no verb, method and path.
            begun_s: when it came, by ``perf_counter``.
            caller: who made it.
            address: from where.
            request: the request, if it could be read; it names the queue.
            status: ``ok``, or the code of the error with which it was refused.
            correlation_id: that of the only message it was about, or of the call.
        """
        if not self._lines.admits(address, status):
            return
        fields: dict[str, Any] = {
            "interface": interface,
            "verb": verb,
            "queue": getattr(request, "queue", None),
            "status": status,
            "duration_ms": round((perf_counter() - begun_s) * 1000, 3),
            "correlation_id": correlation_id,
            "caller": caller.name,
            "address": address,
        }
        _log.info("call", extra={name: value for name, value in fields.items() if value is not None})
