"""Cost that arrived at a queue, was refused by its limits and was served from it, by key, over sliding windows.

A viewer must not slow the broker down, so the work per message is one list append. Keys are collected as they come and
counted thousands at a time. Each key has an index, and a window is a plain list of numbers by index: adding a step or
removing an old one is one ``map`` over two lists instead of a dictionary operation per key.

Everything is bounded. Keys beyond ``KEYS_MAX`` share index 0, and a window forgets in steps of a tenth of its length.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from itertools import chain, compress, repeat
from operator import add, or_, sub
from random import Random
from typing import Final, Literal

import msgspec

from fairlane.model.message import Key

WINDOWS_MS: Final = (10_000, 60_000, 300_000)
KEYS_MAX: Final = 20_000
HELD_MS: Final = 10_000
"""How long a key counts as held back after it was last seen so."""
_STEPS: Final = 10
_COUNT_FROM: Final = 65_536
"""Keys that are collected before they are counted. The more at once, the better a count stays in the CPU's cache."""
_EXACT_MAX: Final = 5_000
"""Arrivals between two samples that are all counted; beyond, one of ``_THINNING`` is."""
_THINNING: Final = 8
_OTHERS: Final = 0
"""The index of all keys that have none of their own."""


class Window:
    """Cost by index over the last ``span_ms`` milliseconds, forgotten a tenth at a time."""

    __slots__ = ("_since_ms", "_steps", "span_ms", "totals")

    def __init__(self, span_ms: int, now_ms: int) -> None:
        self.span_ms = span_ms
        self.totals: list[int] = []
        self._steps: deque[tuple[int, list[int]]] = deque()
        self._since_ms = now_ms

    def add(self, costs: list[int], now_ms: int) -> None:
        """Add the costs since the last call, and drop the steps that have left the window."""
        if not self._steps or now_ms - self._steps[-1][0] >= self.span_ms // _STEPS:
            self._steps.append((now_ms, []))
        if costs:
            _put(add, self.totals, costs)
            _put(add, self._steps[-1][1], costs)
        while self._steps and now_ms - self._steps[0][0] > self.span_ms:
            _put(sub, self.totals, self._steps.popleft()[1])

    def keep(self, is_kept: list[int]) -> None:
        """Drop the indexes whose flag is 0; later ones move up."""
        self.totals = list(compress(self.totals, is_kept))
        self._steps = deque((at_ms, list(compress(step, is_kept))) for at_ms, step in self._steps)

    def covered_ms(self, now_ms: int) -> int:
        """Return how much of the window has been observed."""
        return min(self.span_ms, now_ms - self._since_ms)

    def at(self, index: int | None) -> int:
        """Return the cost at an index."""
        return self.totals[index] if index is not None and index < len(self.totals) else 0


def _put(change: Callable[[int, int], int], totals: list[int], costs: list[int]) -> None:
    """Combine costs with totals, index by index."""
    totals.extend(repeat(0, len(costs) - len(totals)))
    totals[: len(costs)] = map(change, totals, costs)


class HeldBy(msgspec.Struct, frozen=True, omit_defaults=True):
    """What held a key back apart from the turns of other keys: a throttle, with its name, its cap or a pause."""

    kind: Literal["throttle", "cap", "pause"]
    name: str | None = None


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """When a key was last seen held back, and by what."""

    at_ms: int
    by: HeldBy


class CostCounter:
    """Costs by key since they were last taken.

    With ``thinning``, a random sample of very many keys is counted for all of them. Sums are right on average, and no
    key is preferred.
    """

    __slots__ = ("_by_key", "_collected", "_noted", "_random", "_size", "_thinned")

    def __init__(self, *, thinning: Random | None = None) -> None:
        self._random = thinning
        self._by_key: Counter[Key] = Counter()
        self._collected: list[list[Key]] = []
        self._thinned: list[list[Key]] = []
        self._size = 0
        self._noted = 0

    def note(self, keys: list[Key]) -> None:
        """Add the keys of messages that each cost 1. They are counted later, many at once, which is faster."""
        self._noted += len(keys)
        if self._random is not None and self._noted > _EXACT_MAX:
            # A random offset, not always 0: producers often send keys in the same order, and a fixed stride would
            # count the same ones each time.
            keys = keys[int(self._random.random() * _THINNING) :: _THINNING]
            self._thinned.append(keys)
        else:
            self._collected.append(keys)
        self._size += len(keys)
        if self._size >= _COUNT_FROM:
            self._count()

    def note_costs(self, costs: Iterable[tuple[Key, int]]) -> None:
        """Add keys with their costs."""
        for key, cost in costs:
            self._by_key[key] += cost

    def take(self) -> Counter[Key]:
        """Return the costs by key and start again at 0."""
        self._count()
        taken, self._by_key = self._by_key, Counter()
        self._noted = 0
        return taken

    def _count(self) -> None:
        self._by_key.update(chain.from_iterable(self._collected))
        for key, count in Counter(chain.from_iterable(self._thinned)).items():
            self._by_key[key] += count * _THINNING
        self._collected, self._thinned, self._size = [], [], 0


class KeyWindows:
    """Cost that arrived, was refused and was served in one queue, by key, over each of the windows."""

    def __init__(self, now_ms: int, *, keys_max: int = KEYS_MAX, random: Random | None = None) -> None:
        self.arrived = [Window(span_ms, now_ms) for span_ms in WINDOWS_MS]
        self.served = [Window(span_ms, now_ms) for span_ms in WINDOWS_MS]
        self.refused = [Window(span_ms, now_ms) for span_ms in WINDOWS_MS]
        self._arriving = CostCounter(thinning=random if random is not None else Random())  # noqa: S311 - sampling, no secrets
        self._serving = CostCounter()
        self._refusing = CostCounter()
        self.names: list[Key | None] = [None]
        """Keys by index; index 0 is shared by all keys that have none of their own."""
        self.indexes: dict[Key, int] = {}
        self.costs: dict[Key, int] = {}
        """The cost of a key's latest message, where it is not 1."""
        self.held: dict[Key, Hold] = {}
        """What held keys back recently."""
        self._ready_ms: dict[Key, int] = {}
        self._keys_max = keys_max
        self._swept_ms = now_ms

    def arrive(self, keys: list[Key], costs: list[int] | None) -> None:
        """Count messages that arrived."""
        self._count(self._arriving, keys, costs)

    def serve(self, keys: list[Key], costs: list[int]) -> None:
        """Count messages that were leased."""
        self._count(self._serving, keys, costs)

    def refuse(self, costs: Iterable[tuple[Key | None, int]]) -> None:
        """Count messages that a limit kept out; those without a known key are left out."""
        self._refusing.note_costs((key, cost) for key, cost in costs if key is not None)

    def _count(self, counter: CostCounter, keys: list[Key], costs: list[int] | None) -> None:
        """Add costs by key. Usually all are 1, which is the fast path."""
        if costs is None or costs.count(1) == len(costs):
            counter.note(keys)
            return
        counter.note_costs(zip(keys, costs, strict=True))
        for key, cost in zip(keys, costs, strict=True):
            if cost != 1 and (key in self.costs or len(self.costs) < self._keys_max):
                self.costs[key] = cost

    def hold(self, holds: Mapping[Key, HeldBy], now_ms: int) -> None:
        """Record what holds keys back now.

        A hold counts for ``HELD_MS``: a throttle opens and closes with each token, so an instant says little.
        """
        self.held = {key: hold for key, hold in self.held.items() if now_ms - hold.at_ms < HELD_MS}
        self.held |= {key: Hold(at_ms=now_ms, by=by) for key, by in holds.items()}

    def note_ready(self, keys: Iterable[Key], now_ms: int) -> None:
        """Record which keys have work that only waits for its turn; those that were not ready before begin now."""
        self._ready_ms = {key: self._ready_ms.get(key, now_ms) for key in keys if key not in self.held}

    def ready_ms(self, key: Key, now_ms: int) -> int:
        """Return for how long a key had such work, as far as it was observed."""
        return now_ms - self._ready_ms.get(key, now_ms)

    def roll(self, now_ms: int) -> None:
        """Move everything counted since the last call into the windows."""
        pairs = ((self.arrived, self._arriving), (self.served, self._serving), (self.refused, self._refusing))
        for windows, counter in pairs:
            costs = self._indexed(counter.take(), now_ms)
            for window in windows:
                window.add(costs, now_ms)

    def of(self, window: Window, key: Key) -> int:
        """Return the cost of a key in a window."""
        return window.at(self.indexes.get(key))

    def busiest(self, window: Window, most: int, *, wanted: Callable[[Key], bool] | None = None) -> list[Key]:
        """Return up to ``most`` keys that have a cost in a window, of all or of those wanted, the largest first."""
        totals, names = window.totals, self.names
        indexes: Iterable[int] = range(1, len(totals))
        if wanted is not None:
            indexes = [index for index in indexes if (name := names[index]) is not None and wanted(name)]
        ranked = sorted(indexes, key=totals.__getitem__, reverse=True)[:most]
        return [name for index in ranked if totals[index] and (name := names[index]) is not None]

    def _indexed(self, fresh: Counter[Key], now_ms: int) -> list[int]:
        """Return costs by index, and give an index to each new key while there are any left."""
        if not fresh:
            return []
        newcomers = fresh.keys() - self.indexes.keys()
        others = 0
        if newcomers:
            if len(self.indexes) + len(newcomers) > self._keys_max:
                self._sweep(now_ms)
            for key in sorted(newcomers, key=fresh.__getitem__, reverse=True):
                if len(self.indexes) < self._keys_max:
                    self.indexes[key] = len(self.names)
                    self.names.append(key)
                else:
                    others += fresh[key]
        get: Callable[[Key | None, int], int] = fresh.get  # type: ignore[assignment] # None finds nothing: no key is None
        costs = list(map(get, self.names, repeat(0)))
        costs[_OTHERS] = others
        return costs

    def _sweep(self, now_ms: int) -> None:
        """Free the indexes of keys that no window has any more.

        This walks all windows, so it runs at most once per shortest window.
        """
        if now_ms - self._swept_ms < WINDOWS_MS[0]:
            return
        self._swept_ms = now_ms
        is_kept = [0] * len(self.names)
        for window in (*self.arrived, *self.served, *self.refused):
            _put(or_, is_kept, window.totals)
        is_kept[_OTHERS] = 1
        for window in (*self.arrived, *self.served, *self.refused):
            window.keep(is_kept)
        self.names = list(compress(self.names, is_kept))
        self.indexes = {name: index for index, name in enumerate(self.names) if name is not None}
