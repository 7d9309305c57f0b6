"""Max-min fair shares by water filling, in fractions."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction


@dataclass
class Demand:
    """The most that a key can use, None for no limit, and its weight among its siblings."""

    weight: int = 1
    most: Fraction | None = None
    children: dict[str, Demand] = field(default_factory=dict)

    def limit(self) -> Fraction | None:
        """Return the most that can be used here or below."""
        limits = [] if self.most is None else [self.most]
        below = [child.limit() for child in self.children.values()]
        if below and None not in below:
            limits.append(sum((limit for limit in below if limit is not None), Fraction(0)))
        return min(limits, default=None)


def max_min(capacity: Fraction, demands: dict[str, Demand]) -> dict[str, Fraction]:
    """Split a capacity by weight; what one key cannot use goes to the others, again by weight."""
    shares: dict[str, Fraction] = {}
    open_keys = dict(demands)
    while open_keys:
        unit = capacity / sum(demand.weight for demand in open_keys.values())
        sated = {}
        for key, demand in open_keys.items():
            limit = demand.limit()
            if limit is not None and limit <= unit * demand.weight:
                sated[key] = limit
        if not sated:
            return shares | {key: unit * demand.weight for key, demand in open_keys.items()}
        for key, limit in sated.items():
            shares[key] = limit
            capacity -= limit
            del open_keys[key]
    return shares


def leaf_shares(capacity: Fraction, demands: dict[str, Demand]) -> dict[tuple[str, ...], Fraction]:
    """Split a capacity level by level, down to the leaves."""
    leaves: dict[tuple[str, ...], Fraction] = {}
    for name, share in max_min(capacity, demands).items():
        below = demands[name].children
        if below:
            leaves |= {(name, *path): part for path, part in leaf_shares(share, below).items()}
        else:
            leaves[(name,)] = share
    return leaves
