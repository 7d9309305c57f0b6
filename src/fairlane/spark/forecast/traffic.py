"""Expected traffic: the arrivals that a model expects of an hour, as messages that can be played.

Messages of a tenant repeat those that it sent at the same hour of the newest recent day that has some: at the same
offsets within the hour, with the same costs, work and failures. If more are expected than there were, messages are
repeated up to a minute later, all repetitions of a tenant by the same shift, so that bursts stay bursts; if fewer, some
are left out evenly. A tenant of which more than twice as many are expected repeats messages of all its hours, and one
that sent nothing recently borrows messages of others, under its own key.

Expected numbers are not whole. What is left of a tenant's number in one hour is carried to its next, and tenants begin
with different remainders. Thousands of small tenants then send together what is expected of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final
from zlib import crc32

import numpy as np

from fairlane.journal.records import ConfigSet, QueueSet
from fairlane.model.message import Key
from fairlane.spark.forecast.history import DAY_HOURS, HOUR_MS, Floats
from fairlane.spark.whatif.consumers import ConsumerKind
from fairlane.spark.whatif.recording import Change, Recording
from fairlane.spark.whatif.rows import NEVER, Ints, column_of

_SHIFT_MS: Final = 60_000
_COPIED = ("cost", "priority", "throttles", "weight", "cap", "order_key", "first")
_JOURNALLED = ("throttled_ms", "capped_ms", "paused_ms")


def top_key(key: Key) -> str:
    """Return the first name of a key."""
    return key if isinstance(key, str) else key[0]


def whole_numbers(expected: Floats, tenants: tuple[str, ...]) -> Ints:
    """Return whole numbers of messages whose sums are those of the expected ones; tenants in rows, hours in columns."""
    phase = np.array([crc32(tenant.encode()) % 4096 / 4096 for tenant in tenants]).reshape(-1, 1)
    sums = np.floor(np.concatenate([np.zeros_like(phase), expected.cumsum(axis=1)], axis=1) + phase + 1e-9)
    found: Ints = np.diff(sums, axis=1).astype(np.int64)
    return found


@dataclass(frozen=True, slots=True)
class ExpectedTraffic:
    """Messages of some hours in a row.

    Attributes:
        source: for each message the recorded one that it repeats.
        tenant: the number of its tenant.
        at_ms: when it comes, from the beginning of the first hour on.
        begin: for each hour, and the end, the number of its first message.
    """

    source: Ints
    tenant: Ints
    at_ms: Ints
    begin: Ints

    def hour(self, at: int) -> ExpectedTraffic:
        """Return one hour by itself."""
        first, last = (int(each) for each in self.begin[at : at + 2])
        return ExpectedTraffic(
            self.source[first:last],
            self.tenant[first:last],
            self.at_ms[first:last] - at * HOUR_MS,
            np.array([0, last - first]),
        )


class TrafficPattern:
    """The recorded messages of tenants by hour of the day, to be repeated."""

    def __init__(self, recording: Recording, tenants: tuple[str, ...]) -> None:
        self._recording = recording
        self._tenants = tenants
        at_ms = np.array(recording.at_ms, dtype=np.int64) + recording.first_ms
        self._offset_ms: Ints = at_ms % HOUR_MS
        known = {tenant: at for at, tenant in enumerate(tenants)}
        tenant = np.array([known.get(top_key(key), NEVER) for key in recording.key], dtype=np.int64)
        hour = at_ms // HOUR_MS
        self._all = np.arange(at_ms.size)
        self._of_tenant = _newest(tenant, hour * 0)
        # Of each hour of the day, the newest day's messages: several days at once would smooth their bursts away.
        self._of_hour = _newest(tenant * DAY_HOURS + hour % DAY_HOURS, hour)

    def traffic(self, numbers: Ints, first_hour: int) -> ExpectedTraffic:
        """Return messages, in the numbers of each tenant (rows) and hour (columns)."""
        parts: list[tuple[Ints, Ints, Ints]] = []
        for at in range(numbers.shape[1]):
            chosen = [self._hour(tenant, at, int(numbers[tenant, at]), first_hour) for tenant in _any(numbers[:, at])]
            source, tenant, at_ms = (np.concatenate(each) for each in zip(*chosen, strict=True)) if chosen else _EMPTY
            order = np.lexsort((source, at_ms))
            parts.append((source[order], tenant[order], at_ms[order]))
        source, tenant, at_ms = (np.concatenate(each) for each in zip(*parts, strict=True)) if parts else _EMPTY
        begin = np.concatenate([[0], np.cumsum([part[0].size for part in parts], dtype=np.int64)])
        return ExpectedTraffic(source, tenant, at_ms, begin)

    def _hour(self, tenant: int, at: int, number: int, first_hour: int) -> tuple[Ints, Ints, Ints]:
        hour = (first_hour + at) % DAY_HOURS
        known = self._of_hour.get(tenant * DAY_HOURS + hour, _NONE)
        if 2 * known.size < number:  # a few messages repeated many times would be a burst that never was
            others = self._of_tenant.get(tenant, self._all)
            known = others if others.size > known.size else known
        rank = np.arange(number)
        if number <= known.size:
            source, again = known[rank * known.size // number], rank * 0
        else:
            source, again = known[rank % known.size], rank // known.size
        seed = crc32(self._tenants[tenant].encode())
        shift_ms = np.where(again == 0, 0, (seed * again + again * 7_919) % _SHIFT_MS)
        at_ms = (self._offset_ms[source] + shift_ms) % HOUR_MS + at * HOUR_MS
        return source, np.full(number, tenant), at_ms

    def recording(self, traffic: ExpectedTraffic, consumers: list[ConsumerKind], first_hour: int) -> Recording:
        """Return traffic as a recording, with the settings in force at the end of the recorded days."""
        old, chosen = self._recording, traffic.source.tolist()
        columns: dict[str, Any] = {name: [getattr(old, name)[at] for at in chosen] for name in _COPIED}
        columns |= {name: np.zeros(len(chosen), dtype=np.int64) for name in _JOURNALLED}
        moved = (traffic.at_ms - np.array(old.at_ms, dtype=np.int64)[traffic.source]).tolist()
        for name in ("due_ms", "deadline_ms"):
            told = getattr(old, name)
            columns[name] = [None if told[at] is None else told[at] + by for at, by in zip(chosen, moved, strict=True)]
        return replace(
            old,
            first_ms=first_hour * HOUR_MS,
            last_ms=int(traffic.at_ms[-1]) if traffic.at_ms.size else 0,
            queue=[0] * len(chosen),
            key=self._keys(traffic),
            at_ms=column_of(traffic.at_ms),
            leased_ms=np.full(len(chosen), NEVER, dtype=np.int64),
            changes=_settings(old),
            consumers=[consumers],
            **columns,
        )

    def _keys(self, traffic: ExpectedTraffic) -> list[Key]:
        keys = self._recording.key
        pairs = zip(traffic.source.tolist(), traffic.tenant.tolist(), strict=True)
        return [keys[at] if top_key(keys[at]) == self._tenants[who] else self._tenants[who] for at, who in pairs]


_NONE: Ints = np.zeros(0, np.int64)
_EMPTY = (_NONE, _NONE, _NONE)


def _any(numbers: Ints) -> list[int]:
    found: list[int] = np.flatnonzero(numbers).tolist()
    return found


def _newest(group: Ints, hour: Ints) -> dict[int, Ints]:
    """Return the messages of each group, in order: those of its newest hour."""
    order = np.lexsort((np.arange(group.size), hour, group))
    group, hour = group[order], hour[order]
    starts = np.flatnonzero(np.concatenate([[True], (group[1:] != group[:-1]) | (hour[1:] != hour[:-1])]))
    ends = np.append(starts[1:], group.size)
    # Hours of a group are in order, so of several the newest one stays.
    return {int(group[first]): order[first:last] for first, last in zip(starts, ends, strict=True) if group[first] >= 0}


def _settings(recording: Recording) -> list[Change]:
    """Return the last policy and the last value of each config key, as changes before the first message.

    Pauses are not repeated: a queue that is paused now would never be served in the forecast.
    """
    last: dict[str, Change] = {}
    for change in recording.changes:
        if isinstance(change.record, QueueSet):
            last[f"queue {change.record.queue}"] = change
        elif isinstance(change.record, ConfigSet):
            last[f"config {change.record.key}"] = change
    found = sorted(last.values(), key=lambda change: change.sequence)
    return [replace(change, at_ms=0, before=0) for change in found]
