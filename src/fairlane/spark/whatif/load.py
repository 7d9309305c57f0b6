"""Another load: more or fewer consumers, more or less traffic, faster or slower work.

A load changes a recording, not the settings of the broker:

- *consumers* are those that the journal shows, more or fewer of them. If they are of several kinds, each kind keeps its
  part.
- *arrivals*: messages are repeated or left out, those of a key evenly. A repetition comes at another time than its
  original, up to a minute later, by a shift that all repetitions of the same key have in common: so bursts stay bursts,
  the day keeps its shape, and keys are not in step.
- *service*: the work on each message takes longer or shorter by a factor. Leases that expire last as long as they did.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final
from zlib import crc32

import msgspec
import numpy as np
from numpy.typing import NDArray

from fairlane.errors import CandidateInvalid
from fairlane.model.message import key_text
from fairlane.spark.whatif.attempts import EXPIRED
from fairlane.spark.whatif.consumers import ConsumerKind
from fairlane.spark.whatif.presence import Counts
from fairlane.spark.whatif.recording import Change, Recording
from fairlane.spark.whatif.rows import NEVER, Ints, column_of

ALL: Final = ""
MESSAGES_MAX: Final = 20_000_000
_SHIFT_MS: Final = 60_000
_COLUMNS = ("queue", "key", "cost", "priority", "throttles", "weight", "cap", "order_key", "first")
_JOURNALLED = ("throttled_ms", "capped_ms", "paused_ms")


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What differs from the recorded load of a queue.

    Attributes:
        consumers: how many consumers there are all the time; None for as many as there were.
        consumers_times: how many times as many there are.
        arrivals: how many times as many messages of a key come; the key ``""`` is all others.
        service: how many times as long the work on a message of a key takes.
    """

    consumers: int | None = None
    consumers_times: float = 1.0
    arrivals: dict[str, float] = {}
    service: dict[str, float] = {}

    def with_others(self, other: Load) -> Load:
        """Return both together; where they differ, the other wins."""
        is_other = other.consumers is not None or other.consumers_times != 1.0
        consumers = other if is_other else self
        return Load(
            consumers=consumers.consumers,
            consumers_times=consumers.consumers_times,
            arrivals=self.arrivals | other.arrivals,
            service=self.service | other.service,
        )


def loaded(recording: Recording, loads: Mapping[str, Load]) -> Recording:
    """Return a recording under other loads, by queue.

    Raises:
        CandidateInvalid: it would have too many messages.
    """
    found = recording
    if any(load.service for load in loads.values()):
        found = _with_service(found, loads)
    if any(load.arrivals for load in loads.values()):
        found = _with_arrivals(found, loads)
    consumers = [
        staffed(kinds, loads.get(queue, Load()), recording.last_ms)
        for queue, kinds in zip(recording.queues, recording.consumers, strict=True)
    ]
    return replace(found, consumers=consumers)


# --------------------------------------------------------------------------------------------------------- consumers


def staffed(kinds: list[ConsumerKind], load: Load, last_ms: int) -> list[ConsumerKind]:
    """Return more or fewer consumers; ``last_ms`` is when the recording ends that they are of."""
    if load.consumers is None:
        times = load.consumers_times
        return kinds if times == 1 else [_with_counts(kind, _times(kind.counts, times)) for kind in kinds]
    means = [mean_count(kind.counts, last_ms) for kind in kinds]
    whole = sum(means)
    shares = [load.consumers * (mean / whole if whole else 1 / len(kinds)) for mean in means]
    numbers = [int(share) for share in shares]
    by_rest = sorted(range(len(kinds)), key=lambda at: (numbers[at] - shares[at], at))
    for at in by_rest[: load.consumers - sum(numbers)]:
        numbers[at] += 1
    return [_with_counts(kind, [(0, number)]) for kind, number in zip(kinds, numbers, strict=True)]


def _with_counts(kind: ConsumerKind, counts: Counts) -> ConsumerKind:
    return msgspec.structs.replace(kind, counts=counts)


def _times(counts: Counts, times: float) -> Counts:
    return [(at_ms, max(1, round(count * times)) if count else 0) for at_ms, count in counts]


def mean_count(counts: Counts, last_ms: int) -> float:
    """Return how many consumers there were in the mean."""
    instants = [min(at_ms, last_ms) for at_ms, _ in counts] + [max(last_ms, 1)]
    lasting = [later - at_ms for at_ms, later in pairwise(instants)]
    return sum(count * ms for (_, count), ms in zip(counts, lasting, strict=True)) / max(1, sum(lasting))


# ------------------------------------------------------------------------------------------------ service, arrivals


def _factors(recording: Recording, loads: Mapping[str, Load], name: str) -> NDArray[np.float64]:
    """Return the factor of each part."""
    by_queue: list[dict[str, float]] = [getattr(loads.get(queue, Load()), name) for queue in recording.queues]
    known: dict[tuple[int, Any], float] = {}
    for place, key in zip(recording.queue, recording.key, strict=True):
        if (place, key) not in known:
            told = by_queue[place]
            known[place, key] = told.get(key_text(key), told.get(ALL, 1.0))
    pairs = zip(recording.queue, recording.key, strict=True)
    return np.fromiter((known[pair] for pair in pairs), np.float64, len(recording.key))


def _with_service(recording: Recording, loads: Mapping[str, Load]) -> Recording:
    first = np.array(recording.first, dtype=np.int64)
    hold_ms, busy_ms, end = (np.array(each) for each in (recording.hold_ms, recording.busy_ms, recording.end))
    counts = np.diff(np.append(first, end.size))
    times = np.repeat(_factors(recording, loads, "service"), counts)
    # Rounding up and down in turn keeps the mean, also where a millisecond matters.
    busy = np.floor(busy_ms * times + np.arange(end.size) * 0.618034 % 1).astype(np.int64)
    busy = np.where(times == 1, busy_ms, busy)
    is_expired = end >= EXPIRED
    hold = np.where(is_expired, hold_ms, np.maximum(hold_ms - busy_ms, 0) + busy)
    return replace(
        recording, hold_ms=hold.tolist(), busy_ms=np.where(is_expired, np.minimum(busy, hold), busy).tolist()
    )


def _with_arrivals(recording: Recording, loads: Mapping[str, Load]) -> Recording:
    times = _factors(recording, loads, "arrivals")
    if times.sum() > MESSAGES_MAX:
        raise CandidateInvalid(f"{int(times.sum())} messages arrive under this load; the limit is {MESSAGES_MAX}.")
    source, shift_ms = _copies(recording, times)
    at_ms = np.array(recording.at_ms, dtype=np.int64)
    whole_ms = int(at_ms.max()) + 1
    new_ms = (at_ms[source] + shift_ms) % whole_ms
    order = np.lexsort((source, new_ms))
    source, new_ms = source[order], new_ms[order]
    return replace(
        recording,
        at_ms=column_of(new_ms),
        leased_ms=np.full(source.size, NEVER, dtype=np.int64),
        changes=_changes(recording, source, new_ms),
        **_columns(recording, source, new_ms - at_ms[source]),
    )


def _columns(recording: Recording, source: Ints, moved_ms: Ints) -> dict[str, Any]:
    """Return the other columns of repeated messages, each with the instants that move with it."""
    columns: dict[str, Any] = {name: np.zeros(source.size, dtype=np.int64) for name in _JOURNALLED}
    chosen, moved = source.tolist(), moved_ms.tolist()
    for name in _COLUMNS:
        old = getattr(recording, name)
        columns[name] = [old[at] for at in chosen]
    for name in ("due_ms", "deadline_ms"):
        old = getattr(recording, name)
        columns[name] = [None if old[at] is None else old[at] + by for at, by in zip(chosen, moved, strict=True)]
    return columns


def _copies(recording: Recording, times: NDArray[np.float64]) -> tuple[Ints, Ints]:
    """Return for each message under the load which part it repeats, and how much later it comes."""
    known: dict[tuple[int, Any], int] = {}
    pairs = list(zip(recording.queue, recording.key, strict=True))
    codes = np.array([known.setdefault(pair, len(known)) for pair in pairs], dtype=np.int64)
    order = np.argsort(codes, kind="stable")
    sizes = np.bincount(codes, minlength=len(known))
    rank = np.empty(codes.size, dtype=np.int64)  # the how many-th message of its key each is
    rank[order] = np.arange(codes.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    counts = (np.floor((rank + 1) * times + 1e-9) - np.floor(rank * times + 1e-9)).astype(np.int64)
    source = np.repeat(np.arange(codes.size), counts)
    number = np.arange(source.size) - np.repeat(np.cumsum(counts) - counts, counts)
    span_ms = max(1, min(_SHIFT_MS, (max(recording.at_ms, default=0) + 1) // 4))
    seeds = np.array([crc32(f"{place}/{key_text(key)}".encode()) for place, key in known], dtype=np.int64)
    shift_ms = (seeds[codes[source]] * number + number * 7_919) % span_ms
    return source, np.where(number == 0, 0, shift_ms)


def _changes(recording: Recording, source: Ints, at_ms: Ints) -> list[Change]:
    """Return the changes, with the numbers that parts have under the load."""
    by_source = np.argsort(source, kind="stable")
    ordered = source[by_source]
    found: list[Change] = []
    for change in recording.changes:
        before = int(np.searchsorted(at_ms, change.at_ms, side="left"))
        if change.record is not None:
            found.append(replace(change, before=before))
            continue
        first, last = np.searchsorted(ordered, (change.part, change.part + 1))
        # Removed is what has come by then; a repetition that comes later is not.
        parts = [int(part) for part in by_source[first:last] if at_ms[part] <= change.at_ms]
        after = int(np.searchsorted(at_ms, change.at_ms, side="right"))
        found += [replace(change, before=after, part=part) for part in parts]
    return found
