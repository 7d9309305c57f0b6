"""What part of a queue each of its fairness keys is entitled to."""

from __future__ import annotations

from fairlane.cli.formatting import key_text
from fairlane.model.message import Key
from fairlane.model.views import QueueView

Path = tuple[str, ...]


def shares_of(view: QueueView) -> list[float]:
    """Return the share of each key that is shown, if all of them have work and nothing holds them back.

    At every level the names share by weight what is given to the one above them. Keys that are not shown are counted
    with weight 1. The weight of a name that is only above others is known from the policy; config may know better.
    """
    leaves = {_path(key.key): key.weight for key in view.keys}
    below: dict[Path, dict[Path, None]] = {}
    for path in leaves:
        for depth in range(len(path)):
            below.setdefault(path[:depth], {})[path[: depth + 1]] = None

    def weight(path: Path) -> int:
        return leaves.get(path, view.policy.weights.get(key_text(path), 1))

    def share(path: Path) -> float:
        part = 1.0
        for depth in range(len(path)):
            unseen = _unseen(view) if depth == 0 else 0
            whole = sum(weight(sibling) for sibling in below[path[:depth]]) + unseen
            part *= weight(path[: depth + 1]) / whole
        return part

    return [share(path) for path in leaves]


def _path(key: Key) -> Path:
    return (key,) if isinstance(key, str) else tuple(key)


def _unseen(view: QueueView) -> int:
    return max(0, (view.active_keys or 0) - len(view.keys))
