"""The entitled share of each fairness key of a queue, as ``queue show`` prints it."""

from __future__ import annotations

from math import inf

from fairlane.model.message import Key, key_text
from fairlane.model.shares import entitlements
from fairlane.model.views import QueueView

_UNSEEN: Key = ""
"""Stands for all active keys that the view does not list; no fairness key is empty."""


def shares_of(view: QueueView) -> list[float]:
    """Return the share of each listed key, if all active keys have work and nothing holds them back.

    Keys that are not listed count with weight 1. The weight of a name that is only above others is taken from the
    policy; config may set another one.
    """
    weights = {key.key: key.weight for key in view.keys}
    unseen = max(0, (view.active_keys or 0) - len(view.keys))

    def weight_of(key: Key) -> int:
        return unseen if key == _UNSEEN else weights.get(key, view.policy.weights.get(key_text(key), 1))

    wanted = dict.fromkeys(weights, inf) | ({_UNSEEN: inf} if unseen else {})
    shares = entitlements(1.0, wanted, weight_of)
    return [shares[key] for key in weights]
