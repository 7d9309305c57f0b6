"""Costs learned from processing time: which keys declare less than their messages take of consumers' time.

The scheduler divides cost, not messages. If the messages of one key take eight times as long as those of another and
both cost 1, the first gets eight times the consumers' time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from fairlane.model.limits import COST_MAX
from fairlane.model.message import Key, key_text
from fairlane.spark.whatif.accuracy import MESSAGES_MIN
from fairlane.spark.whatif.recording import Recording

_FACTOR: Final = 1.5
"""Costs that are off by less than this are left alone."""


class LearnedCost(msgspec.Struct, frozen=True, kw_only=True):
    """What the messages of a key cost.

    Attributes:
        messages: how many were looked at.
        work_ms: how long a consumer works on one, in the mean.
        declared: the cost that they declare, in the mean.
        cost: the cost that they should declare, if the key whose work is cheapest declares 1.
    """

    key: str
    messages: int
    work_ms: float
    declared: float
    cost: int


def works_of(recording: Recording, queue: str) -> list[tuple[Key, int, int]]:
    """Return of each message of a queue that was leased its key, its declared cost, and the work on its attempts."""
    place = recording.queues.index(queue)
    ends = [*recording.first[1:], len(recording.busy_ms)]
    return [
        (key, cost, sum(recording.busy_ms[first:end]))
        for at, key, cost, first, end in zip(
            recording.queue, recording.key, recording.cost, recording.first, ends, strict=True
        )
        if at == place and end > first
    ]


def learned_costs(works: Iterable[tuple[Key, int, int]]) -> list[LearnedCost]:
    """Return the keys whose declared costs do not fit their work, by key; empty if all costs fit.

    Keys with fewer than 50 messages are left out.
    """
    sums: dict[str, list[int]] = {}
    for key, cost, work_ms in works:
        known = sums.setdefault(key_text(key), [0, 0, 0])
        for at, value in enumerate((1, cost, work_ms)):
            known[at] += value
    known_keys = {key: told for key, told in sums.items() if told[0] >= MESSAGES_MIN and told[2]}
    if not known_keys:
        return []
    unit_ms = min(work_ms / count for count, _, work_ms in known_keys.values())
    rates = [work_ms / cost for _, cost, work_ms in known_keys.values()]
    if max(rates) < _FACTOR * min(rates):
        return []
    return [
        LearnedCost(
            key=key,
            messages=count,
            work_ms=work_ms / count,
            declared=cost / count,
            cost=min(COST_MAX, max(1, round(work_ms / count / unit_ms))),
        )
        for key, (count, cost, work_ms) in sorted(known_keys.items())
    ]
