"""How many consumers there were at each instant."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from fairlane.spark.whatif.rows import NEVER, Flags, Ints

Counts: TypeAlias = list[tuple[int, int]]
"""Pairs of an instant and how many consumers there are from then on."""
Span: TypeAlias = tuple[int, int | None]
"""From when to when a consumer was there; None for the end of the journal."""
SPAN_MS = 10_000
"""The length of the periods for which the number is estimated, in milliseconds."""
_ROUNDS = 3
_MORE = 10


def slots_over_time(at_ms: Ints, steps: Ints, shows: Flags, *, span_ms: int = SPAN_MS) -> Counts:
    """Return how many consumers there were over time, as far as is known, for consumers without a name.

    The journal does not tell whether a consumer was idle. But a message that waited although nothing held it back, and
    was then leased, shows that until then no consumer was idle: those that are busy at that instant are all there are.
    In a period without such a message there may have been more consumers than were busy; the model then keeps the last
    known number, or takes the number of busy ones if that is higher.

    Args:
        at_ms: when consumers became busy and idle, in order.
        steps: 1 for one that became busy, -1 for one that became idle.
        shows: which of these instants show that no consumer was idle.
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
    found: Counts = []
    for at, (peak, sure) in enumerate(zip(peaks.tolist(), is_sure.tolist(), strict=True)):
        current = peak if sure else max(current, peak)
        if not found or found[-1][1] != current:
            found.append((at * span_ms, current))
    return found


def presences(
    requests_of: list[Ints],
    sequence: Ints,
    at_ms: Ints,
    *,
    idle_sequence: Ints,
    idle_ms: Ints,
    ends: list[tuple[int, int]],
) -> list[list[Span]]:
    """Return for each named consumer from when to when it was there.

    Idle consumers are served in turn. So one that is there gets something before the others have been served a few
    times; one that does not is taken to be gone from its last end on, or to have come with its next request.

    Args:
        requests_of: the requests of each consumer.
        sequence: of each request, in order.
        at_ms: of each request.
        idle_sequence: since when the consumer of each request had been idle; -1 if it was not.
        idle_ms: the same as an instant.
        ends: for each consumer the sequence and the instant of its last end; the sequence is huge if it holds leases.
    """
    patience = _ROUNDS * _together(requests_of, sequence, ends) + _MORE
    passed = np.arange(sequence.size) - np.searchsorted(sequence, idle_sequence)  # requests of others meanwhile
    is_break = (idle_sequence != NEVER) & (passed > patience)
    found: list[list[Span]] = []
    for requests, (end_sequence, end_ms) in zip(requests_of, ends, strict=True):
        first = int(requests[0])
        since = 0 if first <= patience else int(at_ms[first])
        spans: list[Span] = []
        for request in requests[is_break[requests]].tolist():
            spans.append((since, int(idle_ms[request])))
            since = int(at_ms[request])
        stays = sequence.size - np.searchsorted(sequence, end_sequence) <= patience
        found.append([*spans, (since, None if stays else end_ms)])
    return found


def _together(requests_of: list[Ints], sequence: Ints, ends: list[tuple[int, int]]) -> int:
    """Return how many consumers there were at most at the same time, from their first request to their last end."""
    first = np.array([sequence[requests[0]] for requests in requests_of], dtype=np.int64)
    last = np.array([end for end, _ in ends], dtype=np.int64)
    steps = np.concatenate([np.ones(first.size, np.int64), np.full(last.size, -1, np.int64)])
    order = np.argsort(np.concatenate([first, last]), kind="stable")
    return int(np.cumsum(steps[order]).max())


def summed(spans: list[Span]) -> Counts:
    """Return how many of some spans there are at each instant."""
    steps: dict[int, int] = {0: 0}
    for since, until in spans:
        steps[since] = steps.get(since, 0) + 1
        if until is not None:
            steps[until] = steps.get(until, 0) - 1
    return _running(steps)


def total_of(all_counts: list[Counts]) -> Counts:
    """Return how many consumers of several kinds there are at each instant."""
    steps: dict[int, int] = {0: 0}
    for counts in all_counts:
        before = 0
        for at_ms, count in counts:
            steps[at_ms] = steps.get(at_ms, 0) + count - before
            before = count
    return _running(steps)


def _running(steps: dict[int, int]) -> Counts:
    found: Counts = []
    count = 0
    for at_ms, step in sorted(steps.items()):
        count += step
        if not found or found[-1][1] != count:
            found.append((at_ms, count))
    return found
