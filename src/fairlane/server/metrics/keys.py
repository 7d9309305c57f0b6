"""Fairness keys in metrics: a bounded number of labels for any number of keys.

In each queue the keys with the largest backlogs and the keys served most have a label of their own; all others share
one. Counters must never decrease, so a key that gains or loses its label takes nothing along: service that it received
without a label stays counted under the shared one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import nlargest
from itertools import zip_longest
from typing import Final

from fairlane.model.message import Key, key_text
from fairlane.model.shares import entitlements
from fairlane.model.views import KeyView, QueueView
from fairlane.server.live.snapshot import holds_of
from fairlane.server.metrics.families import OTHERS

CONSIDERED_MAX: Final = 500
"""Keys that entitled shares are computed over: as many with the largest backlogs, and as many served most."""
SHARES_MS: Final = 5_000
"""The shortest period that shares are computed over; a scrape that comes sooner gets the earlier shares."""
_REMEMBERED: Final = 10
"""Counters of former labels that are remembered, as a multiple of ``keys_max``."""
_DECAY: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRow:
    """A key that has a label of its own."""

    key: str
    served: float
    view: KeyView | None
    share: float
    entitled: float


@dataclass(slots=True)
class KeyLabels:
    """The keys of one queue that have a label."""

    keys_max: int
    others: float = 0.0
    """Cost of messages leased to keys without a label."""
    _counters: dict[Key, float] = field(default_factory=dict)
    _recent: dict[Key, float] = field(default_factory=dict)
    _shares: dict[Key, tuple[float, float]] = field(default_factory=dict)
    _fresh: Counter[Key] = field(default_factory=Counter)
    _shared_ms: int = 0

    def rows(
        self, view: QueueView, fresh: Counter[Key], others: int, weight_of: Callable[[Key], int], now_ms: int
    ) -> list[KeyRow]:
        """Return the keys that have a label now.

        Args:
            view: the queue, with the keys that have the largest backlogs.
            fresh: cost served since the last call, by key.
            others: cost served since the last call to keys that were not counted apart.
            weight_of: returns the weight of a key.
            now_ms: the current time.
        """
        self._recent = {
            key: decayed
            for key in self._recent.keys() | fresh.keys()
            if (decayed := self._recent.get(key, 0.0) * _DECAY + fresh[key]) >= 1
        }
        chosen = self._chosen(view)
        for key in chosen:
            self._counters[key] = self._counters.pop(key, 0.0) + fresh[key]
        self.others += others + fresh.total() - sum(fresh[key] for key in chosen)
        while len(self._counters) > _REMEMBERED * self.keys_max:
            del self._counters[next(iter(self._counters))]  # if it returns, its counter starts at 0
        self._share(view, fresh, weight_of, now_ms)
        views = {each.key: each for each in view.keys}
        return [self._row(key, views.get(key)) for key in chosen]

    def _chosen(self, view: QueueView) -> list[Key]:
        fullest = [each.key for each in view.keys[: self.keys_max]]
        busiest = nlargest(self.keys_max, self._recent, key=self._recent.__getitem__)
        both = dict.fromkeys(key for pair in zip_longest(fullest, busiest) for key in pair if key is not None)
        return [key for key in both if key_text(key) != OTHERS][: self.keys_max]

    def _share(self, view: QueueView, fresh: Counter[Key], weight_of: Callable[[Key], int], now_ms: int) -> None:
        self._fresh.update(fresh)
        if now_ms - self._shared_ms < SHARES_MS:
            return
        self._shared_ms = now_ms
        served, self._fresh = self._fresh, Counter()
        held = holds_of(view.keys)
        wanted: dict[Key, float] = dict(served.most_common(CONSIDERED_MAX))
        for each in view.keys:
            # A key that a pause, a throttle or its cap holds back wants no more than it got: it is not starved.
            waiting = 0 if each.key in held else each.messages - each.leased
            wanted[each.key] = served[each.key] + waiting
        total = served.total() or 1
        entitled = entitlements(sum(served[key] for key in wanted), wanted, weight_of)
        self._shares = {key: (served[key] / total, share / total) for key, share in entitled.items()}

    def _row(self, key: Key, view: KeyView | None) -> KeyRow:
        share, entitled = self._shares.get(key, (0.0, 0.0))
        return KeyRow(key=key_text(key), served=self._counters[key], view=view, share=share, entitled=entitled)
