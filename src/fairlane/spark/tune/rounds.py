"""What a tuner is asked to do, and what comes of each round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from fairlane.spark.tune.costs import LearnedCost
from fairlane.spark.tune.trial import State
from fairlane.spark.whatif.measures import KeyMeasures
from fairlane.spark.whatif.targets import EVERY_KEY, Target


class TuneOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted, and what is allowed.

    Attributes:
        window_ms: how much traffic a change is tried on, and for how long it is watched.
        worse_max: by which part a key that no target names may be worse off.
        keep_ms: for how long a change that holds is set; a running tuner prolongs it while the targets are met.
        sweeps: what to try, see ``fairlane.spark.whatif.sweeps``; without any, weights, caps and rates.
        is_dry_run: whether to propose without applying.
    """

    queue: str
    targets: tuple[Target, ...]
    window_ms: int
    worse_max: float = 0.1
    keep_ms: int = 24 * 3600 * 1000
    sweeps: tuple[str, ...] = ()
    is_dry_run: bool = False


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a round.

    Attributes:
        outcome: ``met`` if nothing had to be changed, otherwise the last state of the trial.
        why: the reason, in words.
        changes: the config values that were proposed or set.
        targets: the targets, as written.
        before: what their measures were in the window before; None if they could not be measured.
        forecast: what what-if said they would be.
        after: what they were in the window after.
        is_met: whether all targets are met now.
        worse: by which part the other key that suffers most is worse off.
        worse_key: that key; None if no key is.
        error: the model's error on the window before.
        costs: the costs of keys, if those that they declare do not fit their work.
    """

    number: int
    targets: list[str]
    outcome: State | Literal["met"] = "proposed"
    why: str = ""
    changes: dict[str, str | None] = {}
    before: list[float] | None = None
    forecast: list[float] | None = None
    after: list[float] | None = None
    is_met: bool = False
    worse: float = 0.0
    worse_key: str | None = None
    error: float | None = None
    costs: list[LearnedCost] = []

    def ended(self, outcome: State | Literal["met"], why: str, **fields: Any) -> Round:  # noqa: ANN401 - see above
        """Return the round with an outcome, a reason, and further fields."""
        return msgspec.structs.replace(self, outcome=outcome, why=why, **fields)


def reading(keys: Mapping[str, KeyMeasures], targets: Sequence[Target]) -> list[float] | None:
    """Return what the measures of targets are; None if a key that a target names has no messages."""
    if any(target.key not in (EVERY_KEY, *keys) for target in targets):
        return None
    return [target.value(keys) for target in targets]
