"""How many leases the consumers of a queue hold at most, as far as a journal shows it.

The journal does not tell whether a consumer was idle. But a message that waited although nothing held it back, and was
then leased, shows that until then no consumer was idle: the number of leases held at that instant is all that the
consumers hold. In a period without such a message there may have been more consumers than leases; the model then keeps
the last known number, or takes the number of leases if that is higher.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
SPAN_MS = 10_000
"""The length of the periods for which the number is estimated, in milliseconds."""


def slots_over_time(
    at_ms: Ints, steps: Ints, shows: NDArray[np.bool_], *, span_ms: int = SPAN_MS
) -> list[tuple[int, int]]:
    """Return pairs of an instant and the number of leases that can be held from then on.

    Args:
        at_ms: when leases began and ended, in order.
        steps: 1 for one that began, -1 for one that ended.
        shows: which of them show that no consumer was idle.
        span_ms: the length of the periods.
    """
    if not at_ms.size:
        return [(0, 0)]
    held = np.cumsum(steps)
    span = at_ms // span_ms
    peaks = np.zeros(int(span[-1]) + 1, dtype=np.int64)
    np.maximum.at(peaks, span, held)
    is_sure = np.zeros(peaks.size, dtype=np.bool_)
    is_sure[span[shows]] = True
    current = int(peaks[is_sure][0]) if is_sure.any() else int(peaks.max())
    found: list[tuple[int, int]] = []
    for at, (peak, sure) in enumerate(zip(peaks.tolist(), is_sure.tolist(), strict=True)):
        current = peak if sure else max(current, peak)
        if not found or found[-1][1] != current:
            found.append((at * span_ms, current))
    return found
