"""Measures a run for each fairness key: waits, shares, holds, missed deadlines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import numpy as np

from fairlane.model.message import Key, key_text
from fairlane.model.waits import HOLDS
from fairlane.spark.whatif.messages import Played
from fairlane.spark.whatif.recording import Recording
from fairlane.spark.whatif.rows import NEVER, Flags, Ints

ALL_KEYS = ""
"""The key that stands for all keys of a queue together."""
_MISSED, _REMOVED = 1, 2


class MeasuredPeriod(msgspec.Struct, frozen=True):
    """Which messages are measured: those that came from one instant up to and without another; None for no bound."""

    from_ms: int | None = None
    to_ms: int | None = None


class KeyMeasures(msgspec.Struct, frozen=True, kw_only=True):
    """One key of one queue under one scenario. A wait is from when a message came, or was due, to its first lease.

    Attributes:
        scenario: the number of the scenario; -1 for what the journal itself tells.
        key: the fairness key, a path with slashes; empty for all keys together.
        messages: how many came.
        leased: how many were leased.
        misses: how many were not, because their deadlines passed.
        left: how many still waited in the end.
        wait_p50_ms: how long half of those leased waited at most.
        wait_p99_ms: how long all but a hundredth waited at most.
        wait_max_ms: the longest wait.
        wait_mean_ms: the mean wait.
        share: which part of all cost was the key's, of what was handed out while others had to wait for a consumer.
        throttled_ms: for how long throttles held up its messages, in all.
        capped_ms: for how long caps did.
        paused_ms: for how long pauses did.
    """

    scenario: int
    queue: str
    key: str
    messages: int
    leased: int
    misses: int
    left: int
    wait_p50_ms: int
    wait_p99_ms: int
    wait_max_ms: int
    wait_mean_ms: float
    share: float
    throttled_ms: int
    capped_ms: int
    paused_ms: int


class KeyCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The p99 wait of a key in the journal, and under the original settings in the model, up to the journal's end.

    Attributes:
        leased: how many messages were leased in the journal.
    """

    queue: str
    key: str
    leased: int
    journal_p99_ms: int
    model_p99_ms: int


class _Groups:
    """Messages in groups, one after the other, so that one call measures all groups: keys can be as many as messages.

    Attributes:
        names: the queue's number and the key of each group.
        sizes: how many messages each group has.
        of_queue: the number of the group of all keys of the same queue, for each group.
    """

    def __init__(self, queues: int, place: Ints, key: Ints, texts: list[str], counts: Flags) -> None:
        """Group messages.

        Args:
            queues: how many queues there are; each has a group of all its keys, if only an empty one.
            place: the number of each message's queue.
            key: the number of each message's key.
            texts: the keys.
            counts: which messages are measured.
        """
        kept = np.flatnonzero(counts)
        rank = np.empty(len(texts), dtype=np.int64)
        rank[sorted(range(len(texts)), key=texts.__getitem__)] = np.arange(len(texts))
        # Each message is in two groups: that of its key, and that of all keys of its queue, which comes first.
        width = len(texts) + 1
        group = np.concatenate([place[kept] * width, place[kept] * width + 1 + rank[key[kept]]])
        order = np.argsort(group, kind="stable")
        self._message: Ints = np.concatenate([kept, kept])[order]
        found = np.unique(np.concatenate([group, np.arange(queues) * width]))
        self._group: Ints = np.searchsorted(found, group[order])
        self.sizes: Ints = np.bincount(self._group, minlength=found.size)
        by_rank = np.argsort(rank)
        self.names = [
            (int(at) // width, texts[by_rank[int(at) % width - 1]] if int(at) % width else ALL_KEYS) for at in found
        ]
        self.of_queue: Ints = np.searchsorted(found, found // width * width)

    def total(self, values: Ints) -> Ints:
        """Return the sum of each group; ``values`` has one for each message."""
        up_to = np.concatenate([[0], np.cumsum(values[self._message])])
        end = np.cumsum(self.sizes)
        summed: Ints = up_to[end] - up_to[end - self.sizes]
        return summed

    def sorted(self, values: Ints, kept: Flags) -> SortedGroups:
        """Return the values of each group in order, of the messages that are kept."""
        chosen = kept[self._message]
        group, value = self._group[chosen], values[self._message[chosen]]
        size = np.bincount(group, minlength=self.sizes.size)
        return SortedGroups(value[np.lexsort((value, group))], np.cumsum(size) - size, size)


class SortedGroups(NamedTuple):
    """The values of groups, sorted within each group."""

    values: Ints
    start: Ints
    size: Ints

    def at(self, part: float) -> Ints:
        """Return the least value of each group that so large a part of its values does not exceed; 0 for none."""
        if not self.values.size:
            return np.zeros(self.size.size, dtype=np.int64)
        place = np.maximum(np.ceil(self.size * part).astype(np.int64) - 1, 0)
        found: Ints = np.where(self.size > 0, self.values[np.minimum(self.start + place, self.values.size - 1)], 0)
        return found


class Yardstick:
    """Measures runs of one recording; what they have in common is computed once."""

    def __init__(self, recording: Recording, span: MeasuredPeriod) -> None:
        self._recording = recording
        at_ms = np.array(recording.at_ms, dtype=np.int64)
        due_ms = np.array([due_ms or 0 for due_ms in recording.due_ms], dtype=np.int64)
        self._since = np.maximum(at_ms, due_ms)
        self._cost = np.array(recording.cost, dtype=np.int64)
        absolute = at_ms + recording.first_ms
        counts = np.ones(at_ms.size, dtype=np.bool_)
        if span.from_ms is not None:
            counts &= absolute >= span.from_ms
        if span.to_ms is not None:
            counts &= absolute < span.to_ms
        known: dict[Key, int] = {}
        keys = np.array([known.setdefault(key, len(known)) for key in recording.key], dtype=np.int64)
        places = np.array(recording.queue, dtype=np.int64)
        self._groups = _Groups(len(recording.queues), places, keys, [key_text(key) for key in known], counts)

    def journalled(self) -> list[KeyMeasures]:
        """Measure the journal itself. It does not tell contention, nor which messages were left at its end."""
        holds = {name: getattr(self._recording, name) for name in HOLDS}
        return self._measure(NEVER, self._recording.leased_ms, holds, np.zeros(0, dtype=np.int64), {})

    def measure(self, scenario: int, played: Played) -> list[KeyMeasures]:
        """Measure a run."""
        leased_ms, contended = (np.array(each, dtype=np.int64) for each in (played.leased_ms, played.contended))
        holds = {name: _spread(getattr(played, name), self._since.size) for name in HOLDS}
        fates = dict.fromkeys(played.missed, _MISSED) | dict.fromkeys(played.removed, _REMOVED)
        return self._measure(scenario, leased_ms, holds, contended, fates)

    def check(self, played: Played) -> list[KeyCheck]:
        """Compare a run under the original settings with the journal.

        The model goes on until nothing is left, the journal ends in the middle. So what the model leases later than
        that is not compared.
        """
        modelled_ms = np.array(played.leased_ms, dtype=np.int64)
        modelled_ms[modelled_ms > self._recording.last_ms] = NEVER
        sides = [
            self._groups.sorted(leased_ms - self._since, leased_ms != NEVER)
            for leased_ms in (self._recording.leased_ms, modelled_ms)
        ]
        queues = self._recording.queues
        columns = (sides[0].size.tolist(), *(side.at(0.99).tolist() for side in sides))
        return [
            KeyCheck(queue=queues[place], key=key, leased=leased, journal_p99_ms=told, model_p99_ms=found)
            for (place, key), leased, told, found in zip(self._groups.names, *columns, strict=True)
        ]

    def _measure(
        self, scenario: int, leased_ms: Ints, holds: Mapping[str, Ints], contended: Ints, fates: dict[int, int]
    ) -> list[KeyMeasures]:
        groups, is_leased = self._groups, leased_ms != NEVER
        wait = np.where(is_leased, leased_ms - self._since, 0)
        spent = np.zeros(self._since.size, dtype=np.int64)
        np.add.at(spent, contended, self._cost[contended])
        fate = np.where(is_leased, 0, _spread(fates, self._since.size))
        waits, cost = groups.sorted(wait, is_leased), groups.total(spent)
        missed, removed = (groups.total((fate == each).astype(np.int64)) for each in (_MISSED, _REMOVED))
        columns = {
            "messages": groups.sizes,
            "leased": waits.size,
            "misses": missed,
            "left": groups.sizes - waits.size - missed - removed,
            "wait_p50_ms": waits.at(0.5),
            "wait_p99_ms": waits.at(0.99),
            "wait_max_ms": waits.at(1.0),
            "wait_mean_ms": groups.total(wait) / np.maximum(waits.size, 1),
            "share": cost / np.maximum(cost[groups.of_queue], 1),
            **{name: groups.total(held) for name, held in holds.items()},
        }
        queues, lists = self._recording.queues, [column.tolist() for column in columns.values()]
        return [
            KeyMeasures(scenario=scenario, queue=queues[place], key=key, **dict(zip(columns, row, strict=True)))
            for (place, key), *row in zip(groups.names, *lists, strict=True)
        ]


def _spread(values: dict[int, int], size: int) -> Ints:
    spread = np.zeros(size, dtype=np.int64)
    spread[list(values)] = list(values.values())
    return spread
