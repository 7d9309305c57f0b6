"""The search for a proposal: the smallest change that meets the targets in what-if and keeps within the rails.

One setting alone is tried first, and combinations only if no single one passes: a small change is easier to
understand, and easier to undo.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from fairlane.spark.whatif.accuracy import ModelError, require_accuracy
from fairlane.spark.whatif.advice import Tried, advise, levers
from fairlane.spark.whatif.comparison import Comparison, Journal
from fairlane.spark.whatif.measures import MeasuredPeriod
from fairlane.spark.whatif.spark_runs import Progress
from fairlane.spark.whatif.targets import Target, require_keys
from fairlane.spark.whatif.tasks import ORIGINAL_AT

MARGIN_MIN: Final = 0.05
"""A forecast that just meets a target misses it half of the time, so it should be better by this part, or by the
model's error if that is more."""


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """What was tried, and what is proposed.

    Attributes:
        proposal: None if nothing passes.
        tried: every setting that was tried, the best first.
        error: how far the model is from the window.
        why: why nothing passes; empty if something does.
    """

    proposal: Tried | None
    tried: list[Tried]
    error: ModelError
    why: str = ""


def search(
    journal: Journal,
    known: Comparison,
    targets: Sequence[Target],
    *,
    worse_max: float,
    current: Mapping[str, str],
    avoid: Callable[[Mapping[str, str | None]], bool] = lambda _values: False,
    sweeps: Sequence[str] = (),
    span: MeasuredPeriod | None = None,
    progress: Progress | None = None,
) -> Search:
    """Look for the smallest change that meets targets, with no other key worse off by more than ``worse_max``.

    Args:
        journal: the window to try settings on.
        known: the original settings on it.
        targets: what is wanted.
        worse_max: by which part another key may be worse off.
        current: the config values in force; what sets nothing else is no change.
        avoid: returns whether config values should not be tried.
        sweeps: what to try, see ``sweep``; without any, weights, caps and rates.
        span: which messages to measure.
        progress: called with how many runs of a step are done, and how many it has.

    Raises:
        CandidateInvalid: a target's key has no messages, or a sweep can't be understood.
        ModelInaccurate: the model is too far from the window.
    """
    queue = journal.queues[0]
    require_keys(targets, known.of(ORIGINAL_AT, queue), queue)
    require_accuracy(known.errors, known.checks, [target.key for target in targets])
    axes = list(sweeps) or levers(journal, known, targets)
    tried: list[Tried] = []
    error = known.errors[0]
    for step in [*([axis] for axis in axes), *([axes] if len(axes) > 1 else [])]:
        if len(step) > 1 and (proposal := choose(tried, targets, worse_max=worse_max, margin=error.error)):
            return Search(proposal=proposal, tried=tried, error=error)
        found = advise(journal, targets, sweeps=step, span=span, progress=progress, known=known)
        tried += [one for one in found.tried if _is_change(one.config, current) and not avoid(one.config)]
    proposal = choose(tried, targets, worse_max=worse_max, margin=error.error)
    why = "" if proposal is not None else why_not(tried, worse_max=worse_max)
    return Search(proposal=proposal, tried=tried, error=error, why=why)


def _is_change(values: Mapping[str, str | None], current: Mapping[str, str]) -> bool:
    return any(current.get(key) != value for key, value in values.items())


def choose(tried: Sequence[Tried], targets: Sequence[Target], *, worse_max: float, margin: float) -> Tried | None:
    """Return the best setting that passes: those that meet the targets with a margin first, then the least cost."""
    passing = [one for one in tried if one.is_met and one.worse <= worse_max]
    needed = max(margin, MARGIN_MIN)
    return min(
        passing,
        key=lambda one: (not _has_margin(one, targets, needed), one.changes, one.cost_ms, one.name),
        default=None,
    )


def _has_margin(one: Tried, targets: Sequence[Target], margin: float) -> bool:
    return all(
        value <= target.bound * (1 - margin) if target.is_most else value >= target.bound * (1 + margin)
        for value, target in zip(one.values, targets, strict=True)
    )


def why_not(tried: Sequence[Tried], *, worse_max: float) -> str:
    """Return why no setting passes."""
    met = [one for one in tried if one.is_met]
    if not met:
        return f"none of {len(tried)} settings meets the targets"
    best = min(met, key=lambda one: one.worse)
    return (
        f"{best.name} meets the targets and harms others the least, and would make {best.worse_key} "
        f"{best.worse:.0%} worse, more than {worse_max:.0%}"
    )
