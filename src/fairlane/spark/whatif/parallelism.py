"""How many messages a consumer works on at the same time, found from its leases and their ends.

A consumer takes up its messages in the order of their leases. If it works on ``n`` at a time, a message begins when it
is leased, or when all but ``n - 1`` of those before it have ended. For the right ``n``, the work that follows from this
does not depend on how many messages were before it. If ``n`` is too large, waiting for other messages counts as work,
and messages further behind seem to take longer. If it is too small, they seem to take less time, and some end before
they began. So the number is the one for which no message does, and work depends least on how many were before it.

A consumer may also acknowledge all messages of a batch together. Then nothing tells their work apart; either they were
worked on together, and the batch takes as long as a message, or one after the other, and it takes longer the more
messages it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapreplace

import numpy as np

from fairlane.spark.whatif.rows import Flags, Ints

TOGETHER = 0
"""Stands for a consumer that works on one message at a time and acknowledges those of a batch together."""
_OPEN = 1 << 61
_SAMPLE = 2_000
_SAMPLE_ALL = 8_000
_CHOICES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 96, 128, 192, 256, 384, 512, 1_000)
_NEAR = 0.02
_ALL_BUT = 0.1
_SELDOM = 0.005

Run = tuple[Ints, Ints, Ints, Ints]
"""Of the leases of one consumer, in order: when each began and ended, how many were before it, and its batch's size."""


def parallelism(runs: Sequence[Run]) -> int:
    """Return how many messages consumers work on at the same time; ``TOGETHER`` for one by one, settled together."""
    sample = _sample(runs)
    if not sample:
        return 1
    lease_ms, end_ms, position, size = (np.concatenate(column) for column in zip(*sample, strict=True))
    if _ends_together(lease_ms, end_ms, size):
        hold = (end_ms - lease_ms)[size > 1], size[size > 1]
        many = int(position.max()) + 1
        return TOGETHER if _dependence(hold[0] / hold[1], hold[1]) <= _dependence(hold[0], hold[1]) + _NEAR else many
    found = []
    for works in (choice for choice in _CHOICES if choice <= position.max() + 1):
        begin_ms = np.concatenate([began(run[0], run[1], run[3], works=works) for run in sample])
        work_ms = end_ms - begin_ms
        worth = np.maximum(work_ms, 0)
        found.append((works, float((work_ms < -1).mean()), _dependence(worth, position), _noise(worth, position)))
    impossible = min(share for _, share, _, _ in found) + _SELDOM
    least = min(dependence for _, share, dependence, _ in found if share <= impossible)
    # Of those between which nothing but chance decides, the smallest: all of them have the same speed.
    return next(
        works
        for works, share, dependence, noise in found
        if share <= impossible and dependence <= least * (1 + _ALL_BUT) + _NEAR + noise
    )


def began(lease_ms: Ints, end_ms: Ints, size: Ints, *, works: int) -> Ints:
    """Return when a consumer began to work on each of its messages.

    Args:
        lease_ms: when each was leased, in order.
        end_ms: when each lease ended; far in the future for one without an end in the journal.
        size: how many messages were leased together with each.
        works: how many messages it works on at the same time.
    """
    if works == TOGETHER:
        whole = np.where(end_ms < _OPEN, end_ms - lease_ms, 0)
        return np.where(end_ms < _OPEN, end_ms - whole // np.maximum(size, 1), lease_ms)
    if works == 1:
        known = np.where(end_ms < _OPEN, end_ms, 0)
        before = np.concatenate([[0], np.maximum.accumulate(known)[:-1]])
        begin_ms: Ints = np.maximum(lease_ms, before)
        return begin_ms
    free = [0] * works  # from when on each of its hands is free; a heap
    found = []
    for leased, ended in zip(lease_ms.tolist(), end_ms.tolist(), strict=True):
        begin = max(leased, free[0])
        found.append(begin)
        heapreplace(free, ended if ended < _OPEN else begin)
    return np.array(found, dtype=np.int64)


def _sample(runs: Sequence[Run]) -> list[Run]:
    """Return the beginning of runs, as far as their leases have ended: enough to tell, not all there is."""
    found, count = [], 0
    for lease_ms, end_ms, position, size in runs:
        kept = np.flatnonzero(end_ms < _OPEN)[:_SAMPLE]
        if kept.size:
            found.append((lease_ms[kept], end_ms[kept], position[kept], size[kept]))
            count += kept.size
        if count >= _SAMPLE_ALL:
            break
    return found


def _ends_together(lease_ms: Ints, end_ms: Ints, size: Ints) -> bool:
    """Return whether the messages of a batch end at the same instant. Those of a batch are next to each other."""
    is_next: Flags = (lease_ms[1:] == lease_ms[:-1]) & (size[1:] > 1) & (size[1:] == size[:-1])
    if not is_next.any():
        return False
    return bool((end_ms[1:][is_next] == end_ms[:-1][is_next]).mean() > 1 - _ALL_BUT)


def _noise(values: Ints, group: Ints) -> float:
    """Return how much the means of groups would differ by chance, in parts of the mean of all."""
    mean = float(values.mean())
    if not mean:
        return 0.0
    counts = np.bincount(group)
    within = values - (np.bincount(group, weights=values) / np.maximum(counts, 1))[group]
    return float(within.std()) / mean * float(np.sqrt(np.count_nonzero(counts) / values.size))


def _dependence(values: Ints | np.ndarray[tuple[int], np.dtype[np.float64]], group: Ints) -> float:
    """Return how much the mean of values differs between groups, in parts of the mean of all."""
    mean = float(values.mean()) if values.size else 0.0
    if not mean:
        return 0.0
    counts = np.bincount(group)
    means = np.bincount(group, weights=values) / np.maximum(counts, 1)
    return float(np.sqrt((counts * (means - mean) ** 2).sum() / counts.sum())) / mean
