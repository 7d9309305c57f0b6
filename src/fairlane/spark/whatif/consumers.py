"""How many leases the consumers of a queue would hold at once, as far as a journal shows it.

Whether a consumer was idle is not in the journal. But a message that waited although nothing held it back, and was
then handed out, shows that until then none was: so as many leases as were held just then are all that the consumers
would hold. In a span without such a message there may have been more consumers than leases; they are taken to be as
many as when it last showed, or as there were leases, if those were more.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
SPAN_MS = 10_000
"""How long it is taken to be one number, in milliseconds."""


def slots_over_time(
    at_ms: Ints, steps: Ints, shows: NDArray[np.bool_], *, span_ms: int = SPAN_MS
) -> list[tuple[int, int]]:
    """Return since which instants how many leases can be held at once; the first holds from the beginning.

    Args:
        at_ms: when leases began and ended, in order.
        steps: 1 for one that began, -1 for one that ended.
        shows: which of them show that no consumer was idle.
        span_ms: for how long it is taken to be one number.
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
