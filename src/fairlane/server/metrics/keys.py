"""Fairness keys in metrics: a bounded number of labels for any number of keys.

Of each queue the keys with the most messages and those that are served most have a label of their own, and all others
share one. A key that gets a label later, or loses it, takes nothing along: what was served while it had none is counted
with the others, so that no counter ever falls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import nlargest
from itertools import zip_longest
from typing import Final

from fairlane.model.message import Key
from fairlane.model.views import KeyView, QueueView
from fairlane.server.fair_shares import Asked, fair_shares
from fairlane.server.live.snapshot import holds_of
from fairlane.server.metrics.fold import OTHERS

CONSIDERED_MAX: Final = 500
"""So many keys with the most messages, and so many that were served most, are looked at for fair shares."""
SHARES_MS: Final = 5_000
"""Shares are of at least so long; whoever asks sooner gets those from before."""
_KEPT: Final = 10
_FADING: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRow:
    """A key that has a label."""

    key: str
    served: float
    view: KeyView | None
    share: float
    fair_share: float


@dataclass(slots=True)
class KeyLabels:
    """Who has a label in one queue."""

    keys_max: int
    others: float = 0.0
    """Cost that was served to keys without a label."""
    _told: dict[Key, float] = field(default_factory=dict)
    _recent: dict[Key, float] = field(default_factory=dict)
    _shares: dict[Key, tuple[float, float]] = field(default_factory=dict)
    _fresh: Counter[Key] = field(default_factory=Counter)
    _shared_ms: int = 0

    def rows(
        self, view: QueueView, fresh: Counter[Key], others: int, weight_of: Callable[[Key], int], now_ms: int
    ) -> list[KeyRow]:
        """Return those who have a label now, given what was served since the last time, to known keys and others."""
        self._recent = {
            key: faded
            for key in self._recent.keys() | fresh.keys()
            if (faded := self._recent.get(key, 0.0) * _FADING + fresh[key]) >= 1
        }
        chosen = self._chosen(view)
        for key in chosen:
            self._told[key] = self._told.pop(key, 0.0) + fresh[key]
        self.others += others + fresh.total() - sum(fresh[key] for key in chosen)
        while len(self._told) > _KEPT * self.keys_max:
            del self._told[next(iter(self._told))]  # should it come back, it begins anew
        self._share(view, fresh, weight_of, now_ms)
        views = {each.key: each for each in view.keys}
        return [self._row(key, views.get(key)) for key in chosen]

    def _chosen(self, view: QueueView) -> list[Key]:
        fullest = [each.key for each in view.keys[: self.keys_max]]
        busiest = nlargest(self.keys_max, self._recent, key=self._recent.__getitem__)
        both = dict.fromkeys(key for pair in zip_longest(fullest, busiest) for key in pair if key is not None)
        return [key for key in both if text_of(key) != OTHERS][: self.keys_max]

    def _share(self, view: QueueView, fresh: Counter[Key], weight_of: Callable[[Key], int], now_ms: int) -> None:
        self._fresh.update(fresh)
        if now_ms - self._shared_ms < SHARES_MS:
            return
        self._shared_ms = now_ms
        served, self._fresh = self._fresh, Counter()
        held = holds_of(view.keys)
        asked = {key: Asked(cost, cost) for key, cost in served.most_common(CONSIDERED_MAX)}
        for each in view.keys:
            waiting = 0 if each.key in held else each.messages - each.leased
            asked[each.key] = Asked(served[each.key], served[each.key] + waiting)
        total = served.total() or 1
        fair = fair_shares(asked, weight_of)
        self._shares = {key: (asked[key].served / total, share / total) for key, share in fair.items()}

    def _row(self, key: Key, view: KeyView | None) -> KeyRow:
        share, fair = self._shares.get(key, (0.0, 0.0))
        return KeyRow(key=text_of(key), served=self._told[key], view=view, share=share, fair_share=fair)


def text_of(key: Key) -> str:
    """Return a key as a label: a path has slashes between its names."""
    return key if isinstance(key, str) else "/".join(key)
