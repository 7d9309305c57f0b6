"""The judgement after the watch: whether a change made things worse.

A window after a change differs from the window before it for two reasons: the change, and the traffic. So each key is
held to the greater of two waits: the one before the change, and the one that what-if finds for the old settings on the
new window's own traffic. A key that waits longer only because more messages came is not the change's fault.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

from fairlane.spark.whatif.measures import KeyMeasures
from fairlane.spark.whatif.targets import EVERY_KEY, Target, others_of, rise

Measured: TypeAlias = Mapping[str, KeyMeasures]
"""The keys of a queue in a window."""


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a change may stay.

    Attributes:
        holds: whether it may.
        is_met: whether all targets are met.
        values: of each target, what its measure is now.
        worse: by which part the other key that suffers most is worse off.
        worse_key: that key; None if no key is.
        why: the reason in words.
    """

    holds: bool
    is_met: bool
    values: list[float]
    worse: float
    worse_key: str | None
    why: str


def judge(
    before: Measured, after: Measured, targets: Sequence[Target], *, worse_max: float, without: Measured | None = None
) -> Judgement:
    """Judge a change by the windows before and after it.

    Args:
        before: the window before the change.
        after: the window after it.
        targets: what is wanted.
        worse_max: by which part another key may be worse off.
        without: what the old settings would have given on the window after the change; None if the model can't tell.
    """
    references = [before] if without is None else [before, without]
    rises = [(_least_rise(references, after, key), key) for key in others_of(after, targets)]
    worse, worse_key = max(((by, key) for by, key in rises if by), default=(0.0, None))
    unknown = next((target for target in targets if not _knows(after, target)), None)
    missed = _worse_target(references, after, targets)
    is_met = unknown is None and not any(target.lack(after) for target in targets)
    if worse > worse_max:
        why = f"{worse_key} is {worse:.0%} worse, more than {worse_max:.0%}"
    elif unknown is not None:
        why = f"no messages to judge {unknown.text} by"
    elif missed is not None:
        why = f"{missed.text} is missed by more than before"
    else:
        why = "the targets are met" if is_met else "the targets are closer than before, or as close"
    return Judgement(
        holds=worse <= worse_max and missed is None and unknown is None,
        is_met=is_met,
        values=[target.value(after) if _knows(after, target) else 0.0 for target in targets],
        worse=worse,
        worse_key=worse_key,
        why=why,
    )


def _least_rise(references: Sequence[Measured], after: Measured, key: str) -> float:
    """Return by which part a key is worse off than in the reference that excuses it the most."""
    return min((rise(known[key], after[key]) for known in references if key in known), default=0.0)


def _worse_target(references: Sequence[Measured], after: Measured, targets: Sequence[Target]) -> Target | None:
    for target in targets:
        known = [target.lack(each) for each in references if _knows(each, target)]
        if _knows(after, target) and known and target.lack(after) > max(known):
            return target
    return None


def _knows(keys: Measured, target: Target) -> bool:
    return target.key in keys or target.key == EVERY_KEY
