"""Targets and rails: what a measure of a key should be at most, or at least, and how much worse off others may be.

A key is worse off if its messages wait longer, if more of them miss their deadlines, or if most are never leased. Keys
with few messages are judged by their mean wait, since their p99 is the wait of one message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from fairlane.errors import CandidateInvalid
from fairlane.spark.whatif.accuracy import MESSAGES_MIN, SAME_MS
from fairlane.spark.whatif.measures import ALL_KEYS, KeyMeasures

if TYPE_CHECKING:
    from fairlane.spark.whatif.comparison import Journal

EVERY_KEY: Final = "*"
"""The key of a target that every key has to meet."""
_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_FORM = re.compile(r"(\w+)(?::(.+?))?\s*(<=|>=)\s*([0-9.]+)\s*(ms|s|m|h|d|%)?", re.ASCII)
_MEASURES: dict[str, Callable[[KeyMeasures], float]] = {
    "wait_p50": lambda one: one.wait_p50_ms,
    "wait_p99": lambda one: one.wait_p99_ms,
    "wait_max": lambda one: one.wait_max_ms,
    "wait_mean": lambda one: one.wait_mean_ms,
    "throttled": lambda one: one.throttled_ms,
    "misses": lambda one: one.misses,
    "share": lambda one: one.share,
}
_STARVED = 0.5
_COUNTED = ("misses", "share")


class Target(msgspec.Struct, frozen=True):
    """What a measure of a key should be at most, or at least; of every key, if the key is ``EVERY_KEY``."""

    text: str
    measure: str
    key: str
    is_most: bool
    bound: float

    @property
    def is_wait(self) -> bool:
        """Whether it bounds how long messages wait."""
        return self.measure.startswith("wait_")

    def value(self, keys: Mapping[str, KeyMeasures]) -> float:
        """Return what the measure is; of every key, the one that is furthest from the bound."""
        measure = _MEASURES[self.measure]
        if self.key != EVERY_KEY:
            return measure(keys[self.key])
        values = [measure(one) for key, one in keys.items() if key != ALL_KEYS]
        return (max if self.is_most else min)(values, default=0.0)

    def lack(self, keys: Mapping[str, KeyMeasures]) -> float:
        """Return by which part of the bound it is missed; 0 if it is met."""
        value = self.value(keys)
        beyond = value - self.bound if self.is_most else self.bound - value
        return max(0.0, beyond) / (abs(self.bound) or 1)


def target_of(text: str) -> Target:
    """Return a target as it is written: a measure, a key after a colon unless all together are meant, and a bound.

    The key ``*`` is every key by itself.

    Raises:
        CandidateInvalid: it can't be understood.
    """
    match = _FORM.fullmatch(text.strip())
    if match is None or match[1] not in _MEASURES:
        form = f"MEASURE:KEY<=BOUND, such as wait_p99:acme<=1s, with one of {', '.join(_MEASURES)}"
        raise CandidateInvalid(f"Invalid target {text!r:.100}. Write {form}.")
    measure, unit = match[1], match[5]
    try:
        bound = float(match[4])
    except ValueError as error:
        raise CandidateInvalid(f"The bound of target {text!r:.100} is not a number.") from error
    if measure in _COUNTED:
        if unit not in (None, "%") or (unit == "%" and measure != "share"):
            raise CandidateInvalid(f"The bound of target {text!r:.100} must not have a unit of time.")
        bound = bound / 100 if unit == "%" else bound
    elif unit is None or unit == "%":
        raise CandidateInvalid(
            f"The bound of target {text!r:.100} must be a duration with a unit, such as 500ms, 1s or 2m."
        )
    else:
        bound *= _UNITS[unit]
    return Target(text.strip(), measure, match[2] or ALL_KEYS, match[3] == "<=", bound)


def require_keys(targets: Sequence[Target], keys: Mapping[str, KeyMeasures], queue: str) -> None:
    """Raise CandidateInvalid if a target names a key of which there are no messages."""
    for target in targets:
        if target.key not in (EVERY_KEY, *keys):
            raise CandidateInvalid(f"Target {target.text}: queue {queue!r} has no messages of key {target.key!r}.")


def only_queue(journal: Journal, targets: Sequence[Target]) -> str:
    """Return the one queue that is looked at. Raises CandidateInvalid if there are several, or no targets."""
    if len(journal.queues) != 1 or not targets:
        raise CandidateInvalid("This needs exactly one queue and at least one target.")
    return journal.queues[0]


# ---------------------------------------------------------------------------------------------------------------- rails


def rise(before: KeyMeasures, after: KeyMeasures) -> float:
    """Return by which part a key is worse off afterwards; 0 if it is not. Differences up to 10 ms are none."""
    is_large = min(before.leased, after.leased) >= MESSAGES_MIN
    waits = (before.wait_p99_ms, after.wait_p99_ms) if is_large else (before.wait_mean_ms, after.wait_mean_ms)
    longer = waits[1] - waits[0]
    missed = after.misses / max(after.messages, 1) - before.misses / max(before.messages, 1)
    left = after.left / max(after.messages, 1) - before.left / max(before.messages, 1)
    # At the end of a window some messages always wait. Only if most of them do, the key gets nothing.
    starved = left if left > _STARVED else 0.0
    return max(longer / max(waits[0], SAME_MS) if longer > SAME_MS else 0.0, missed, starved, 0.0)


def others_of(keys: Mapping[str, KeyMeasures], targets: Sequence[Target]) -> list[str]:
    """Return the keys that no target names. A target for every key names all of them."""
    named = {target.key for target in targets}
    return [] if EVERY_KEY in named else [key for key in keys if key not in {ALL_KEYS, *named}]


def worst_rise(
    before: Mapping[str, KeyMeasures], after: Mapping[str, KeyMeasures], targets: Sequence[Target]
) -> tuple[float, str | None]:
    """Return by which part the other key that suffers most is worse off, and which key that is; None for no key."""
    known = (key for key in others_of(after, targets) if key in before)
    worst, key = max(((rise(before[key], after[key]), key) for key in known), default=(0.0, None))
    return (worst, key) if worst else (0.0, None)
