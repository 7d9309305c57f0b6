"""Bounds how many log lines callers can cause, whatever they send.

Each address may cause a number of lines per second, and all addresses together ten times as many. What is beyond is
counted, and every ten seconds one line for each address says how much there was. So a flood can neither fill the disk
nor hide what others do.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

from fairlane.server.addresses import block_of
from fairlane.server.rate_limits import RateLimits

SUMMARY_S: Final = 10
_BURST_S: Final = 10
_ALL: Final = ""
_ADDRESSES_MAX: Final = 1_000
_SHOWN_MAX: Final = 10


class LineLimits:
    """Decides which events get a line, and sums up the others."""

    def __init__(
        self,
        log: logging.Logger,
        what: str,
        lines_per_second: int,
        *,
        now_ms: Callable[[], int],
        call_later: Callable[[float, Callable[[], None]], object] | None = None,
    ) -> None:
        """Start with the lines of a burst.

        Args:
            log: where sums are logged.
            what: what the events are, as in "10 more requests were refused".
            lines_per_second: the lines that one address may cause.
            now_ms: the time.
            call_later: calls back after a number of seconds; by default the running loop does.
        """
        self._log = log
        self._what = what
        self._each = RateLimits(lines_per_second, lines_per_second * _BURST_S, now_ms=now_ms)
        self._all = RateLimits(lines_per_second * 10, lines_per_second * 10 * _BURST_S, now_ms=now_ms)
        self._call_later = call_later
        self._unlogged: dict[str, Counter[str]] = {}

    def admits(self, address: str | None, kind: str) -> bool:
        """Return whether an event of an address gets a line; otherwise count it under its kind."""
        block = block_of(address)
        if self._each.allows(block) and self._all.allows(_ALL):
            return True
        self._count(block, kind)
        return False

    def _count(self, address: str, kind: str) -> None:
        if not self._unlogged:
            later = self._call_later or asyncio.get_running_loop().call_later
            later(SUMMARY_S, self._summarise)
        if address not in self._unlogged and len(self._unlogged) >= _ADDRESSES_MAX:
            address = "other addresses"
        self._unlogged.setdefault(address, Counter())[kind] += 1

    def _summarise(self) -> None:
        found, self._unlogged = self._unlogged, {}
        ranked = sorted(found.items(), key=lambda item: -item[1].total())
        for address, kinds in ranked[:_SHOWN_MAX]:
            shown = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
            text = f"%d more {self._what} within %d s: %s"
            self._log.info(text, kinds.total(), SUMMARY_S, shown, extra={"address": address})
        if rest := ranked[_SHOWN_MAX:]:
            total, (things, verb) = sum(kinds.total() for _, kinds in rest), self._what.split(" ", 1)
            text = f"%d more {things} of %d other addresses {verb} within %d s."
            self._log.info(text, total, len(rest), SUMMARY_S)
