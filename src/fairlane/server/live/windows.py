"""What one queue was given and served by key, over windows that forget, and what held keys back of late.

Somebody who looks must cost little. So keys are put by as they come and counted by the thousand, and each key has a
place, so that a window is a list of numbers which whole lists are added to and taken from. Everything is bounded: keys
beyond so many are counted together, and old counts leave in steps of a tenth of a window.
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
_STEPS: Final = 10
_COUNT_FROM: Final = 65_536
"""Keys are counted so many at once: the more, the more often a count is still in the processor's cache."""
_EXACT_MAX: Final = 5_000
_THIN: Final = 8
_OTHERS: Final = 0
"""The place of all keys that have none of their own."""


class Window:
    """Cost by place over the last so many milliseconds, forgotten a tenth at a time."""

    __slots__ = ("_since_ms", "_steps", "span_ms", "totals")

    def __init__(self, span_ms: int, now_ms: int) -> None:
        self.span_ms = span_ms
        self.totals: list[int] = []
        self._steps: deque[tuple[int, list[int]]] = deque()
        self._since_ms = now_ms

    def add(self, costs: list[int], now_ms: int) -> None:
        """Add what has come since the last time."""
        if not self._steps or now_ms - self._steps[-1][0] >= self.span_ms // _STEPS:
            self._steps.append((now_ms, []))
        if costs:
            _put(add, self.totals, costs)
            _put(add, self._steps[-1][1], costs)
        while self._steps and now_ms - self._steps[0][0] > self.span_ms:
            _put(sub, self.totals, self._steps.popleft()[1])

    def keep(self, is_kept: list[int]) -> None:
        """Let places go, and those behind them move up."""
        self.totals = list(compress(self.totals, is_kept))
        self._steps = deque((at_ms, list(compress(step, is_kept))) for at_ms, step in self._steps)

    def covered_ms(self, now_ms: int) -> int:
        """Return how much of the window has been seen."""
        return min(self.span_ms, now_ms - self._since_ms)

    def at(self, place: int | None) -> int:
        """Return the cost of a place."""
        return self.totals[place] if place is not None and place < len(self.totals) else 0


def _put(change: Callable[[int, int], int], totals: list[int], costs: list[int]) -> None:
    """Join costs to totals, place by place."""
    totals.extend(repeat(0, len(costs) - len(totals)))
    totals[: len(costs)] = map(change, totals, costs)


class Held(msgspec.Struct, frozen=True, omit_defaults=True):
    """What held back a key beside the turns of others: ``throttle`` with its name, ``cap`` or ``pause``."""

    kind: Literal["throttle", "cap", "pause"]
    name: str | None = None


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """When a key was last seen held back, and by what."""

    at_ms: int
    by: Held


class Tally:
    """Costs by key since they were last taken.

    With ``thins`` some of very many keys are looked at, each as likely as any other, and count for all: then sums are
    right on average, and no key is preferred.
    """

    __slots__ = ("_by_key", "_chance", "_noted", "_put_by", "_size", "_thinned")

    def __init__(self, *, thins: Random | None = None) -> None:
        self._chance = thins
        self._by_key: Counter[Key] = Counter()
        self._put_by: list[list[Key]] = []
        self._thinned: list[list[Key]] = []
        self._size = 0
        self._noted = 0

    def note(self, keys: list[Key]) -> None:
        """Take in keys of messages that each cost 1. They are counted later, many at once, which is quicker."""
        self._noted += len(keys)
        if self._chance is not None and self._noted > _EXACT_MAX:
            keys = keys[int(self._chance.random() * _THIN) :: _THIN]
            self._thinned.append(keys)
        else:
            self._put_by.append(keys)
        self._size += len(keys)
        if self._size >= _COUNT_FROM:
            self._count()

    def note_costs(self, costs: Iterable[tuple[Key, int]]) -> None:
        """Take in keys and costs."""
        for key, cost in costs:
            self._by_key[key] += cost

    def take(self) -> Counter[Key]:
        """Return everything, and begin anew."""
        self._count()
        taken, self._by_key = self._by_key, Counter()
        self._noted = 0
        return taken

    def _count(self) -> None:
        self._by_key.update(chain.from_iterable(self._put_by))
        for key, count in Counter(chain.from_iterable(self._thinned)).items():
            self._by_key[key] += count * _THIN
        self._put_by, self._thinned, self._size = [], [], 0


class KeyWindows:
    """What one queue was given and served by key, over each of the windows."""

    def __init__(self, now_ms: int, *, keys_max: int = KEYS_MAX, chance: Random | None = None) -> None:
        self.arrived = [Window(span_ms, now_ms) for span_ms in WINDOWS_MS]
        self.served = [Window(span_ms, now_ms) for span_ms in WINDOWS_MS]
        self._arriving = Tally(thins=chance if chance is not None else Random())  # noqa: S311 - nothing secret
        self._serving = Tally()
        self.names: list[Key | None] = [None]
        """Keys by place; the first place is that of all who have none."""
        self.places: dict[Key, int] = {}
        self.costs: dict[Key, int] = {}
        """What the latest message of a key costs, where that is not 1."""
        self.held: dict[Key, Hold] = {}
        """What held back keys of late."""
        self._keys_max = keys_max
        self._swept_ms = now_ms

    def arrive(self, keys: list[Key], costs: list[int] | None) -> None:
        """Count messages that have come."""
        self._count(self._arriving, keys, costs)

    def serve(self, keys: list[Key], costs: list[int]) -> None:
        """Count messages that were handed out."""
        self._count(self._serving, keys, costs)

    def _count(self, tally: Tally, keys: list[Key], costs: list[int] | None) -> None:
        """Add costs by key. Mostly they are all 1, and counting is quick."""
        if costs is None or costs.count(1) == len(costs):
            tally.note(keys)
            return
        tally.note_costs(zip(keys, costs, strict=True))
        for key, cost in zip(keys, costs, strict=True):
            if cost != 1 and (key in self.costs or len(self.costs) < self._keys_max):
                self.costs[key] = cost

    def hold(self, holds: Mapping[Key, Held], now_ms: int) -> None:
        """Note what holds back keys now; it counts for a while, since a throttle opens and shuts by the token."""
        self.held = {key: hold for key, hold in self.held.items() if now_ms - hold.at_ms < HELD_MS}
        self.held |= {key: Hold(at_ms=now_ms, by=by) for key, by in holds.items()}

    def roll(self, now_ms: int) -> None:
        """Let what was noted since the last time be in the windows."""
        for windows, tally in ((self.arrived, self._arriving), (self.served, self._serving)):
            costs = self._placed(tally.take(), now_ms)
            for window in windows:
                window.add(costs, now_ms)

    def of(self, window: Window, key: Key) -> int:
        """Return the cost of a key in a window."""
        return window.at(self.places.get(key))

    def busiest(self, window: Window, most: int, *, wanted: Callable[[Key], bool] | None = None) -> list[Key]:
        """Return up to so many keys that have a cost in a window, of all or of those wanted, the largest first."""
        totals, names = window.totals, self.names
        places: Iterable[int] = range(1, len(totals))
        if wanted is not None:
            places = [place for place in places if (name := names[place]) is not None and wanted(name)]
        ranked = sorted(places, key=totals.__getitem__, reverse=True)[:most]
        return [name for place in ranked if totals[place] and (name := names[place]) is not None]

    def _placed(self, fresh: Counter[Key], now_ms: int) -> list[int]:
        """Return costs by place, and give places to keys that have none as long as there are any."""
        if not fresh:
            return []
        newcomers = fresh.keys() - self.places.keys()
        others = 0
        if newcomers:
            if len(self.places) + len(newcomers) > self._keys_max:
                self._sweep(now_ms)
            for key in sorted(newcomers, key=fresh.__getitem__, reverse=True):
                if len(self.places) < self._keys_max:
                    self.places[key] = len(self.names)
                    self.names.append(key)
                else:
                    others += fresh[key]
        get: Callable[[Key | None, int], int] = fresh.get  # type: ignore[assignment] # nobody's key is None
        costs = list(map(get, self.names, repeat(0)))
        costs[_OTHERS] = others
        return costs

    def _sweep(self, now_ms: int) -> None:
        """Take the places of those that no window knows any more; not too often, since it takes a while."""
        if now_ms - self._swept_ms < WINDOWS_MS[0]:
            return
        self._swept_ms = now_ms
        is_kept = [0] * len(self.names)
        for window in (*self.arrived, *self.served):
            _put(or_, is_kept, window.totals)
        is_kept[_OTHERS] = 1
        for window in (*self.arrived, *self.served):
            window.keep(is_kept)
        self.names = list(compress(self.names, is_kept))
        self.places = {name: place for place, name in enumerate(self.names) if name is not None}
