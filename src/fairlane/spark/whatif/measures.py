"""Measures a run for each fairness key: waits, shares, holds, missed deadlines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from fairlane.model.message import key_text
from fairlane.model.waits import HOLDS
from fairlane.spark.whatif.messages import Played
from fairlane.spark.whatif.recording import Recording
from fairlane.spark.whatif.rows import NEVER

Ints: TypeAlias = NDArray[np.int64]
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
        texts = [key_text(key) for key in recording.key]
        known: dict[str, list[int]] = {}
        places = recording.queue
        self._parts: dict[tuple[int, str], Ints] = {}
        for place in range(len(recording.queues)):
            known.clear()
            for number in np.flatnonzero(counts & (np.array(places) == place)).tolist():
                known.setdefault(texts[number], []).append(number)
            self._parts[place, ALL_KEYS] = np.array(sorted(n for part in known.values() for n in part), dtype=np.int64)
            for text in sorted(known):
                self._parts[place, text] = np.array(known[text], dtype=np.int64)

    def journalled(self) -> list[KeyMeasures]:
        """Measure the journal itself. It does not tell contention, nor which messages were left at its end."""
        holds = {name: getattr(self._recording, name) for name in HOLDS}
        return list(self._measure(NEVER, self._recording.leased_ms, holds, np.zeros(0, dtype=np.int64), {}))

    def measure(self, scenario: int, played: Played) -> list[KeyMeasures]:
        """Measure a run."""
        leased_ms, contended = (np.array(each, dtype=np.int64) for each in (played.leased_ms, played.contended))
        holds = {name: _spread(getattr(played, name), self._since.size) for name in HOLDS}
        fates = dict.fromkeys(played.missed, _MISSED) | dict.fromkeys(played.removed, _REMOVED)
        return list(self._measure(scenario, leased_ms, holds, contended, fates))

    def _measure(
        self, scenario: int, leased_ms: Ints, holds: Mapping[str, Ints], contended: Ints, fates: dict[int, int]
    ) -> Iterator[KeyMeasures]:
        wait = leased_ms - self._since
        spent = np.zeros(self._since.size, dtype=np.int64)
        np.add.at(spent, contended, self._cost[contended])
        fate = _spread(fates, self._since.size)
        for (place, key), parts in self._parts.items():
            is_leased = leased_ms[parts] != NEVER
            waits = np.sort(wait[parts][is_leased])
            whole = int(spent[self._parts[place, ALL_KEYS]].sum())
            missed = int(((fate[parts] == _MISSED) & ~is_leased).sum())
            gone = int(((fate[parts] == _REMOVED) & ~is_leased).sum())
            yield KeyMeasures(
                scenario=scenario,
                queue=self._recording.queues[place],
                key=key,
                messages=parts.size,
                leased=int(waits.size),
                misses=missed,
                left=int(parts.size - waits.size) - missed - gone,
                wait_p50_ms=_at(waits, 0.5),
                wait_p99_ms=_at(waits, 0.99),
                wait_max_ms=_at(waits, 1.0),
                wait_mean_ms=float(waits.mean()) if waits.size else 0.0,
                share=int(spent[parts].sum()) / whole if whole else 0.0,
                **{name: int(held[parts].sum()) for name, held in holds.items()},
            )


def _at(waits: Ints, part: float) -> int:
    """Return the least wait that so large a part of the waits does not exceed."""
    return int(waits[max(0, -int(-waits.size * part // 1) - 1)]) if waits.size else 0


def _spread(values: dict[int, int], size: int) -> Ints:
    spread = np.zeros(size, dtype=np.int64)
    spread[list(values)] = list(values.values())
    return spread
