"""The log of refused requests: which caller was refused, and why. Its size is bounded, whatever callers send.

Each address may cause a few lines per second, and all addresses together ten times as many. Further refusals are
counted, and every ten seconds one line for each address says how many there were. So a flood of bad requests can
neither fill the disk nor hide what others do.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

from fairlane.errors import FairlaneError
from fairlane.gateway.caller import Caller
from fairlane.server.addresses import block_of
from fairlane.server.logs import level_of
from fairlane.server.rate_limits import RateLimits

SUMMARY_S: Final = 10
_BURST_S: Final = 10
_ALL: Final = ""
_ADDRESSES_MAX: Final = 1_000
_SHOWN_MAX: Final = 10
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
        """Log from now on.

        Args:
            lines_per_second: the lines that one address may cause.
            now_ms: the time.
            call_later: calls back after a number of seconds; by default the running loop does.
        """
        self._each = RateLimits(lines_per_second, lines_per_second * _BURST_S, now_ms=now_ms)
        self._all = RateLimits(lines_per_second * 10, lines_per_second * 10 * _BURST_S, now_ms=now_ms)
        self._call_later = call_later
        self._unlogged: dict[str, Counter[str]] = {}

    def note(
        self, what: str, error: FairlaneError, *, caller: Caller, address: str | None, correlation_id: str | None = None
    ) -> None:
        """Log that a request was refused, or count it."""
        level = level_of(error)
        if not _log.isEnabledFor(level):
            return
        if level < logging.ERROR and not (self._each.allows(block_of(address)) and self._all.allows(_ALL)):
            self._count(block_of(address), error.code)
            return
        fields = {"code": error.code, "correlation_id": correlation_id, "caller": caller.name, "address": address}
        extra = {name: value for name, value in fields.items() if value is not None}
        _log.log(level, "%s was refused: %s", what[:_WHAT_LENGTH_MAX], error.code, extra=extra)

    def _count(self, address: str, code: str) -> None:
        if not self._unlogged:
            later = self._call_later or asyncio.get_running_loop().call_later
            later(SUMMARY_S, self._summarise)
        if address not in self._unlogged and len(self._unlogged) >= _ADDRESSES_MAX:
            address = "other addresses"
        self._unlogged.setdefault(address, Counter())[code] += 1

    def _summarise(self) -> None:
        found, self._unlogged = self._unlogged, {}
        ranked = sorted(found.items(), key=lambda item: -item[1].total())
        for address, codes in ranked[:_SHOWN_MAX]:
            shown = ", ".join(f"{count} {code}" for code, count in codes.most_common())
            text = "%d more requests were refused within %d s: %s"
            _log.info(text, codes.total(), SUMMARY_S, shown, extra={"address": address})
        if rest := ranked[_SHOWN_MAX:]:
            total = sum(codes.total() for _, codes in rest)
            _log.info("%d more requests of %d other addresses were refused within %d s.", total, len(rest), SUMMARY_S)
