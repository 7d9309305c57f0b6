"""The log of refused requests: which caller was refused, and why. Its size is bounded (see ``line_limits``)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from fairlane.errors import FairlaneError
from fairlane.gateway.caller import Caller
from fairlane.server.line_limits import LineLimits
from fairlane.server.logs import level_of

_WHAT_LENGTH_MAX: Final = 200
_log = logging.getLogger("fairlane.access")


class RefusalLog:
    """Logs the refused requests of all interfaces."""

    def __init__(
        self,
        lines_per_second: int,
        *,
        now_ms: Callable[[], int],
        call_later: Callable[[float, Callable[[], None]], object] | None = None,
    ) -> None:
        """Log from now on; see ``LineLimits``."""
        what = "requests were refused"
        self._lines = LineLimits(_log, what, lines_per_second, now_ms=now_ms, call_later=call_later)

    def note(
        self, what: str, error: FairlaneError, *, caller: Caller, address: str | None, correlation_id: str | None = None
    ) -> None:
        """Log that a request was refused, or count it."""
        level = level_of(error)
        if not _log.isEnabledFor(level):
            return
        if level < logging.ERROR and not self._lines.admits(address, error.code):
            return
        fields = {"code": error.code, "correlation_id": correlation_id, "caller": caller.name, "address": address}
        extra = {name: value for name, value in fields.items() if value is not None}
        _log.log(level, "%s was refused: %s", what[:_WHAT_LENGTH_MAX], error.code, extra=extra)
