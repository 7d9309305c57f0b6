"""Entitled shares: what each key should have been served, by the weights of the keys that had work at the same time.

This is the one definition. The dashboard, ``/metrics`` and the command line call it; the pipeline computes the same in
Spark (``spark/tables/fairness.py``), and tests compare entitled shares, ratios and the index on random data.

What was served is divided by *filling up*: every key gets the same amount for each unit of weight, until it has as much
as it wanted; what it leaves goes on to the others. So a quiet key is entitled to exactly what it wanted, and only a key
that wanted more can lag behind its share. Keys that are paths divide what the key above them is entitled to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from fairlane.model.message import Key


def entitlements(total: float, wanted: Mapping[Key, float], weight_of: Callable[[Key], int]) -> dict[Key, float]:
    """Return how much of a total each key is entitled to.

    Args:
        total: what all keys together were served.
        wanted: what each key would have taken: what it was served, and what it had waiting. Infinity for any amount.
        weight_of: returns the weight of a key, also of one that is only above others.
    """
    if not any(isinstance(key, tuple) for key in wanted):
        parts = [(weight_of(key), amount) for key, amount in wanted.items()]
        return dict(zip(wanted, _filled(parts, total), strict=True))
    root = _Level(None, 1)
    for key, amount in wanted.items():
        _plant(root, key, amount, weight_of)
    found: dict[Key, float] = {}
    _divide(root, min(total, root.wanted), found)
    return found


@dataclass(slots=True, eq=False)
class _Level:
    """A key with the keys below it, and what all of them together wanted."""

    key: Key | None
    weight: int
    below: dict[str | None, _Level] = field(default_factory=dict)
    wanted: float = 0.0


def _plant(root: _Level, key: Key, amount: float, weight_of: Callable[[Key], int]) -> None:
    path = (key,) if isinstance(key, str) else key
    level = root
    level.wanted += amount
    for depth, name in enumerate(path, 1):
        above: Key = path[0] if depth == 1 else path[:depth]
        found = level.below.get(name)
        if found is None:
            found = level.below[name] = _Level(above, weight_of(above))
        level = found
        level.wanted += amount
    own = level.below[None] = _Level(key, 1)  # messages of the key itself compete with the keys below it, if any
    own.wanted += amount


def _divide(level: _Level, amount: float, found: dict[Key, float]) -> None:
    below = list(level.below.values())
    if not below:
        if level.key is not None:
            found[level.key] = amount
        return
    parts = [(each.weight, each.wanted) for each in below]
    for each, share in zip(below, _filled(parts, amount), strict=True):
        _divide(each, share, found)


def _filled(parts: list[tuple[int, float]], amount: float) -> list[float]:
    """Divide an amount by weights: keys that want less than their part come first, the rest goes to the others."""
    shares = [0.0] * len(parts)
    weights = sum(weight for weight, _ in parts)
    ratios = [wanted / weight for weight, wanted in parts]
    for at in sorted(range(len(parts)), key=ratios.__getitem__):
        weight, wanted = parts[at]
        shares[at] = share = min(wanted, amount * weight / weights)
        amount -= share
        weights -= weight
    return shares


def fair_ratio(served: float, entitled: float, *, grain: float = 1.0) -> float:
    """Return served over entitled, for Jain's index; 1 if they differ by less than ``grain``, the cost of a message.

    Messages are served whole. A thousand keys that are each entitled to half a message get one or none, and that is as
    fair as it can be. The tables take the mean cost of the key's messages in the window; the live view, which keeps no
    means, takes the latest cost.
    """
    return 1.0 if abs(served - entitled) < grain else served / entitled


def jain_index(ratios: Iterable[float]) -> float | None:
    """Return Jain's index of served over entitled amounts: 1 if all are equal, 1/n if one of n has everything."""
    values = list(ratios)
    squares = sum(value * value for value in values)
    return None if not squares else sum(values) ** 2 / (len(values) * squares)
