"""Advice: the setting that would have met targets at the least cost to other keys. An operator applies it, or not.

Every setting is tried on the journal. Of those that meet all targets, the one is proposed under which the other keys
together wait the least longer than they did, and no message is left over for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from fairlane.errors import CandidateInvalid
from fairlane.spark.whatif.comparison import Comparison, Journal, compare
from fairlane.spark.whatif.measures import ALL_KEYS, KeyMeasures, MeasuredPeriod
from fairlane.spark.whatif.scenario import ORIGINAL, SAME, SCENARIOS_MAX, Scenario, sweep
from fairlane.spark.whatif.tasks import ORIGINAL_AT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_WEIGHTS = (SAME, 2, 4, 8, 16)
_CAP_PARTS = (0.75, 0.5, 0.25)
_RATE_FACTORS = (0.5, 2.0, 4.0)


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """One setting, and what came of it.

    Attributes:
        name: what was set.
        values: of each target, what its measure was.
        is_met: whether all targets were met.
        lack: by how much they were missed, in parts of their bounds.
        left: how many messages more than under the original policy were never handed out.
        cost_ms: how much longer a message of the other keys waited, in the mean; what some gained is not counted.
        changes: how many settings it changes.
    """

    name: str
    values: list[float]
    is_met: bool
    lack: float
    left: int
    cost_ms: float
    changes: int


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """What was tried, the best first, and what is proposed: nothing if nothing meets the targets.

    Attributes:
        commands: what to call to apply the proposal.
    """

    queue: str
    targets: list[str]
    tried: list[Tried]
    proposal: Tried | None
    commands: list[str]


def advise(
    journal: Journal,
    targets: Sequence[Target],
    *,
    sweeps: Sequence[str] = (),
    span: MeasuredPeriod | None = None,
    spark: SparkSession | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Advice:
    """Look for the setting that meets targets at the least cost to the rest.

    Args:
        journal: what to try settings on; one queue of it is looked at.
        targets: what is wanted.
        sweeps: what to try, see ``sweep``; without any, weights of the keys that targets name, caps of the largest
            other keys, and rates of the throttles that are in use.
        span: which messages to measure.
        spark: where to run; None for this process.
        progress: called with how many runs are done, and how many there are.

    Raises:
        CandidateInvalid: there is no target, a key is unknown, or a sweep can't be understood.
    """
    if len(journal.queues) != 1 or not targets:
        raise CandidateInvalid("Advice needs exactly one queue and at least one target.")
    queue = journal.queues[0]
    known = compare(journal, [], span=span)
    for target in targets:
        if target.key not in known.of(ORIGINAL_AT, queue):
            raise CandidateInvalid(f"Target {target.text}: queue {queue!r} has no messages of key {target.key!r}.")
    base = Scenario(name=ORIGINAL)
    axes = list(sweeps) or levers(journal, known, targets)
    settings = [one for one in sweep(base, axes, journal.queues, journal.policies) if one.name != ORIGINAL]
    found = compare(journal, settings, span=span, spark=spark, progress=progress)
    tried = sorted(
        (judged(found, at, queue, targets) for at in range(len(found.scenarios))),
        key=lambda one: (not one.is_met, one.lack, one.left, one.cost_ms, one.changes, one.name),
    )
    best = tried[0] if tried[0].is_met else None
    by_name = {scenario.name: scenario for scenario in found.scenarios}
    return Advice(
        queue=queue,
        targets=[target.text for target in targets],
        tried=tried,
        proposal=best,
        commands=[] if best is None else commands_of(by_name[best.name]),
    )


def judged(found: Comparison, at: int, queue: str, targets: Sequence[Target]) -> Tried:
    """Return what a scenario means for targets and for the rest."""
    keys, before = found.of(at, queue), found.of(ORIGINAL_AT, queue)
    lack = sum(target.lack(keys) for target in targets)
    rest = [key for key in keys if key not in {ALL_KEYS, *(target.key for target in targets)}]
    messages = sum(keys[key].leased for key in rest)
    longer = sum(max(0.0, keys[key].wait_mean_ms - before[key].wait_mean_ms) * keys[key].leased for key in rest)
    scenario = found.scenarios[at]
    changed = len(scenario.config) + len(scenario.fields) + len(scenario.paused)
    return Tried(
        name=scenario.name,
        values=[target.value(keys) for target in targets],
        is_met=lack == 0,
        lack=lack,
        left=_lost(keys) - _lost(before),
        cost_ms=longer / messages if messages else 0.0,
        changes=changed,
    )


def _lost(keys: Mapping[str, KeyMeasures]) -> int:
    return keys[ALL_KEYS].left + keys[ALL_KEYS].misses


def levers(journal: Journal, known: Comparison, targets: Sequence[Target]) -> list[str]:
    """Return what to try for targets, as sweeps."""
    queue = journal.queues[0]
    keys = known.of(ORIGINAL_AT, queue)
    wanted = list(dict.fromkeys(target.key for target in targets if target.key != ALL_KEYS))
    others = sorted((key for key in keys if key not in {ALL_KEYS, *wanted}), key=lambda key: -keys[key].messages)
    slots = max((count for notes in known.notes for _, count in notes.slots.get(queue, [])), default=0)
    found = [f"weight:{key}={','.join(map(str, _WEIGHTS))}" for key in wanted[:2]]
    caps = sorted({max(1, int(slots * part)) for part in _CAP_PARTS}, reverse=True) if slots > 1 else []
    found += [f"cap:{key}={SAME},{','.join(map(str, caps))}" for key in others[:1] if caps]
    for name, rate in sorted(journal.rates.items())[:1]:
        rates = ",".join(f"{rate * factor:g}" for factor in _RATE_FACTORS)
        found.append(f"rate:{name}={SAME},{rates}")
    while _product(found) > SCENARIOS_MAX:
        found.pop()
    return found


def _product(sweeps: Sequence[str]) -> int:
    total = 1
    for text in sweeps:
        total *= text.count(",") + 1
    return total


def commands_of(scenario: Scenario) -> list[str]:
    """Return the commands that set what a scenario sets."""
    found = [
        f"fairlane config set {_quoted(key)} {'--unset' if value is None else _quoted(value)}"
        for key, value in sorted(scenario.config.items())
    ]
    for queue, fields in sorted(scenario.fields.items()):
        pairs = " ".join(
            f"--set {name}={msgspec.json.encode(value).decode()}" for name, value in sorted(fields.items())
        )
        found += [f"fairlane queue update {_quoted(queue)} {pairs}"] if pairs else []
    for queue, paused in sorted(scenario.paused.items()):
        for key, is_paused in sorted(paused.items()):
            verb = "pause" if is_paused else "resume"
            found.append(f"fairlane queue {verb} {_quoted(queue)} --key {_quoted(key)}")
    return found


def _quoted(text: str) -> str:
    return text if text.replace(":", "").replace("-", "").replace("_", "").replace(".", "").isalnum() else f"'{text}'"


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
_COUNTED = ("misses", "share")


class Target(msgspec.Struct, frozen=True):
    """What a measure of a key should be at most, or at least."""

    text: str
    measure: str
    key: str
    is_most: bool
    bound: float

    def value(self, keys: Mapping[str, KeyMeasures]) -> float:
        """Return what the measure is."""
        return _MEASURES[self.measure](keys[self.key])

    def lack(self, keys: Mapping[str, KeyMeasures]) -> float:
        """Return by which part of the bound it is missed; 0 if it is met."""
        value = self.value(keys)
        beyond = value - self.bound if self.is_most else self.bound - value
        return max(0.0, beyond) / (abs(self.bound) or 1)


def target_of(text: str) -> Target:
    """Return a target as it is written: a measure, a key after a colon unless all are meant, and a bound.

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
