"""Who is entitled to what: weights against what was asked for, level by level. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from fairlane.model.message import Key


class Asked(NamedTuple):
    """What a key was served, and what it would have taken, which is at least that."""

    served: float
    wanted: float


class _Node:
    """A level of keys, with what all below it were served and wanted."""

    __slots__ = ("children", "key", "served", "wanted", "weight")

    def __init__(self, key: Key | None, weight: int) -> None:
        self.key = key
        self.weight = weight
        self.children: dict[str | None, _Node] = {}
        self.served = 0.0
        self.wanted = 0.0

    def add(self, asked: Asked) -> None:
        self.served += asked.served
        self.wanted += asked.wanted


def fair_shares(asked: Mapping[Key, Asked], weight_of: Callable[[Key], int]) -> dict[Key, float]:
    """Return what each key would have been served of the same total if shares followed the weights.

    Nobody is given more than it wanted, and what one leaves is shared by those who want more. Keys that are paths
    share what the key above them has.
    """
    if not any(isinstance(key, tuple) for key in asked):
        parts = [(weight_of(key), each.wanted) for key, each in asked.items()]
        return dict(zip(asked, _split(parts, sum(each.served for each in asked.values())), strict=True))
    root = _Node(None, 1)
    for key, each in asked.items():
        _plant(root, key, each, weight_of)
    shares: dict[Key, float] = {}
    _pour(root, root.served, shares)
    return shares


def _plant(root: _Node, key: Key, asked: Asked, weight_of: Callable[[Key], int]) -> None:
    path = (key,) if isinstance(key, str) else key
    node = root
    node.add(asked)
    for depth, name in enumerate(path, 1):
        above: Key = path[0] if depth == 1 else path[:depth]
        found = node.children.get(name)
        if found is None:
            found = node.children[name] = _Node(above, weight_of(above))
        node = found
        node.add(asked)
    own = node.children[None] = _Node(key, 1)  # beside the keys below it, if there are any
    own.add(asked)


def _pour(node: _Node, amount: float, shares: dict[Key, float]) -> None:
    children = list(node.children.values())
    if not children:
        if node.key is not None:
            shares[node.key] = amount
        return
    parts = [(child.weight, child.wanted) for child in children]
    for child, share in zip(children, _split(parts, amount), strict=True):
        _pour(child, share, shares)


def _split(parts: list[tuple[int, float]], amount: float) -> list[float]:
    """Split an amount by weights: those who want less than their part first, the rest among the others."""
    shares = [0.0] * len(parts)
    weights = sum(weight for weight, _ in parts)
    ratios = [wanted / weight for weight, wanted in parts]
    for at in sorted(range(len(parts)), key=ratios.__getitem__):
        weight, wanted = parts[at]
        shares[at] = share = min(wanted, amount * weight / weights)
        amount -= share
        weights -= weight
    return shares


def jain_index(ratios: Iterable[float]) -> float | None:
    """Return Jain's index of what each was served against its fair share: 1 for even, 1/n for all to one of n."""
    values = list(ratios)
    squares = sum(value * value for value in values)
    return None if not squares else sum(values) ** 2 / (len(values) * squares)
