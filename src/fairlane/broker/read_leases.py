"""Reading under a lease: a consumer that gets on with a payload keeps its lease, and one that stalls loses it.

A large payload takes longer to read than a lease lasts. So a read that gets further than all before it extends the
lease when a third of it is over, to the same time from then on. To read the same bytes again extends nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from fairlane.core.ledger import Message

_PARTS: Final = 3
"""A lease is extended once the first of this many parts is over: the reader has the others to come back."""
_READINGS_MAX: Final = 1_000


@dataclass(slots=True)
class _Reading:
    """How far a payload was read under a lease.

    Attributes:
        span_ms: how long the lease lasts.
        end: the end of what was read.
        next_ms: it is not extended again before this instant.
    """

    token: int
    span_ms: int
    end: int = 0
    next_ms: int = 0


class ReadLeases:
    """The leases under which payloads are read; the least recent are forgotten first.

    A lease that was forgotten is as one that has just begun to be read.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[int, _Reading] = OrderedDict()

    def extension_ms(self, message: Message, *, end: int, now_ms: int) -> int | None:
        """Return for how long to extend the lease of a message whose payload is read up to ``end``; None for not now.

        It is never shortened: a consumer may have extended it for longer.
        """
        reading = self._reading(message, now_ms)
        if end <= reading.end:
            return None
        reading.end = end
        left_ms = reading.span_ms - reading.span_ms // _PARTS
        if message.is_claimed or message.expires_ms - now_ms > left_ms or now_ms < reading.next_ms:
            return None
        reading.next_ms = now_ms + reading.span_ms // _PARTS
        return reading.span_ms

    def _reading(self, message: Message, now_ms: int) -> _Reading:
        known = self._known.get(message.number)
        if known is None or known.token != message.token:
            known = self._known[message.number] = _Reading(message.token, _span_ms(message, now_ms))
            if len(self._known) > _READINGS_MAX:
                self._known.popitem(last=False)
        self._known.move_to_end(message.number)
        return known


def _span_ms(message: Message, now_ms: int) -> int:
    """Return how long a lease lasts: as its consumer has said, or by the visibility timeout."""
    # From its beginning, unless it was extended since: then it is neither longer than usual nor than what is left.
    return min(message.expires_ms - message.leased_ms, max(message.visibility_ms, message.expires_ms - now_ms))
