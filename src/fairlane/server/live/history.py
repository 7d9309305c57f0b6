"""What queues did in the last hour and day, in bounded memory.

Every ten seconds each queue gives one *sample*: what it counted since the last one, and how much waits. A *ring* adds
samples up in slots and forgets the oldest slot when it is full. There are two rings: an hour of slots of ten seconds,
and a day of slots of five minutes. A slot without any sample does not exist, so an outage is a gap and not a zero.

Closed slots are kept encoded: a slot takes about a hundred bytes instead of a thousand, and ``QUEUES_MAX`` queues with
different tenants in each slot about 30 MB together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from heapq import nlargest
from typing import Final, NamedTuple

import msgspec

from fairlane.model.histogram import greatest_in
from fairlane.model.message import Key
from fairlane.server.metrics.fold import WAIT_BITS

QUEUES_MAX: Final = 200
"""Queues with a history of their own; the total over all queues is kept beside them."""
SAMPLE_MS: Final = 10_000
KEYS_MAX: Final = 5
"""Keys that a slot names: those that were served most."""
_KEYS_OPEN_MAX: Final = 50
"""Keys that a slot which is still filled remembers."""


class Resolution(NamedTuple):
    """How long one ring reaches back, and how finely."""

    step_ms: int
    slots_max: int

    @property
    def span_ms(self) -> int:
        """The time from its first slot to its last."""
        return self.step_ms * self.slots_max


SPANS: Final = {"hour": Resolution(SAMPLE_MS, 360), "day": Resolution(300_000, 288)}


class Slot(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What one queue did from ``at_ms`` on.

    Attributes:
        covered_ms: how much of the time was sampled; rates are counts over this time.
        waiting: the most messages that waited at a sample.
        in_flight: the most messages in flight at a sample.
        waits: how many deliveries waited, by ascending bucket of milliseconds.
        served: the cost of all deliveries.
        keys: the cost of the keys that were served most.
    """

    at_ms: int = 0
    covered_ms: int = 0
    enqueued: int = 0
    leased: int = 0
    acked: int = 0
    failed: int = 0
    dead: int = 0
    refused: int = 0
    waiting: int = 0
    in_flight: int = 0
    waits: tuple[tuple[int, int], ...] = ()
    served: int = 0
    keys: tuple[tuple[Key, int], ...] = ()

    def wait_ms(self, part: float) -> int | None:
        """Return the wait that a part of the deliveries did not exceed, to one part in eight; None without any."""
        wanted, passed = part * sum(count for _, count in self.waits), 0
        for bucket, count in self.waits:
            passed += count
            if passed >= wanted:
                return greatest_in(bucket, WAIT_BITS)
        return None


COUNTS: Final = ("enqueued", "leased", "acked", "failed", "dead", "refused", "served")
LEVELS: Final = ("waiting", "in_flight")


def merged(slots: Sequence[Slot], *, at_ms: int, keys_max: int = _KEYS_OPEN_MAX) -> Slot:
    """Return slots added up: counts and times are summed, of levels the highest counts."""
    costs: dict[Key, int] = {}
    for key, cost in (pair for slot in slots for pair in slot.keys):
        costs[key] = costs.get(key, 0) + cost
    waits: dict[int, int] = {}
    for bucket, count in (pair for slot in slots for pair in slot.waits):
        waits[bucket] = waits.get(bucket, 0) + count
    return Slot(
        at_ms=at_ms,
        covered_ms=sum(slot.covered_ms for slot in slots),
        **{name: sum(getattr(slot, name) for slot in slots) for name in COUNTS},
        **{name: max(getattr(slot, name) for slot in slots) for name in LEVELS},
        waits=tuple(sorted(waits.items())),
        keys=largest(costs, keys_max),
    )


def largest(costs: Mapping[Key, int], keys_max: int) -> tuple[tuple[Key, int], ...]:
    """Return the keys with the largest costs, the largest first."""
    return tuple(nlargest(keys_max, costs.items(), key=lambda pair: pair[1]))


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Slot).decode


class SlotRing:
    """The latest slots of one queue at one resolution."""

    __slots__ = ("_closed", "_open", "_step_ms")

    def __init__(self, resolution: Resolution) -> None:
        self._step_ms = resolution.step_ms
        self._closed: deque[bytes] = deque(maxlen=resolution.slots_max - 1)
        self._open: Slot | None = None

    def note(self, sample: Slot) -> None:
        """Add a sample, which ends at its ``at_ms``. If the clock was set back, it goes to the latest slot."""
        at_ms = (sample.at_ms - 1) // self._step_ms * self._step_ms
        if self._open is None:
            self._open = merged([sample], at_ms=at_ms)
        elif at_ms <= self._open.at_ms:
            self._open = merged([self._open, sample], at_ms=self._open.at_ms)
        else:
            self._closed.append(_encode(msgspec.structs.replace(self._open, keys=self._open.keys[:KEYS_MAX])))
            self._open = merged([sample], at_ms=at_ms)

    def slots(self, *, since_ms: int) -> list[Slot]:
        """Return the slots that began at an instant or later, the oldest first."""
        closed = map(_decode, self._closed)
        latest = [] if self._open is None else [msgspec.structs.replace(self._open, keys=self._open.keys[:KEYS_MAX])]
        return [slot for slot in (*closed, *latest) if slot.at_ms >= since_ms]


class HistoryRings:
    """The rings of all queues, and of all of them together."""

    def __init__(self, *, queues_max: int = QUEUES_MAX) -> None:
        self._queues_max = queues_max
        self._total = _new_rings()
        self._by_queue: dict[str, dict[str, SlotRing]] = {}
        self._since_ms: dict[str, int] = {}

    @property
    def queues(self) -> frozenset[str]:
        """The queues that have a history."""
        return frozenset(self._by_queue)

    def since_ms(self, queue: str) -> int | None:
        """Return when the history of a queue began; None if it has none."""
        return self._since_ms.get(queue)

    def note(self, samples: Mapping[str, Slot], total: Slot) -> None:
        """Add a sample of each queue, and of all together. Queues without one are forgotten."""
        for queue in self._by_queue.keys() - samples.keys():
            del self._by_queue[queue], self._since_ms[queue]
        for queue, sample in samples.items():
            if queue not in self._by_queue and len(self._by_queue) < self._queues_max:
                self._by_queue[queue] = _new_rings()
                self._since_ms[queue] = sample.at_ms - sample.covered_ms
            for ring in self._by_queue.get(queue, {}).values():
                ring.note(sample)
        for ring in self._total.values():
            ring.note(total)

    def slots(self, queue: str | None, span: str, *, now_ms: int) -> list[Slot]:
        """Return the slots of a queue, or of all queues together, of the last hour or day."""
        rings = self._total if queue is None else self._by_queue.get(queue, {})
        ring = rings.get(span)
        return [] if ring is None else ring.slots(since_ms=now_ms - SPANS[span].span_ms)


def _new_rings() -> dict[str, SlotRing]:
    return {name: SlotRing(resolution) for name, resolution in SPANS.items()}
