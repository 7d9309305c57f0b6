"""Advice: the setting that would have met targets at the least cost to other keys. An operator applies it, or not.

Every setting is tried on the journal. Of those that meet all targets, the one is proposed under which the other keys
together wait the least longer than they did, and no message is left over for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from fairlane.spark.whatif.accuracy import ModelError, require_accuracy
from fairlane.spark.whatif.comparison import Comparison, Journal, compare
from fairlane.spark.whatif.measures import ALL_KEYS, KeyMeasures, MeasuredPeriod
from fairlane.spark.whatif.scenario import Scenario
from fairlane.spark.whatif.spark_runs import Progress
from fairlane.spark.whatif.sweeps import SAME, SCENARIOS_MAX, assumed, sweep
from fairlane.spark.whatif.targets import EVERY_KEY, Target, only_queue, require_keys, worst_rise
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
        worse: by which part the other key that suffers most is worse off, see ``worst_rise``.
        worse_key: that key; None if no other key is worse off.
        config: the config values that it sets.
    """

    name: str
    values: list[float]
    is_met: bool
    lack: float
    left: int
    cost_ms: float
    changes: int
    worse: float = 0.0
    worse_key: str | None = None
    config: dict[str, str | None] = {}


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """What was tried, the best first, and what is proposed: nothing if nothing meets the targets.

    Attributes:
        assumed: the loads and settings that were assumed.
        commands: what to call to apply the proposal.
        error: how far the model is from the journal.
    """

    queue: str
    targets: list[str]
    assumed: list[str]
    tried: list[Tried]
    proposal: Tried | None
    commands: list[str]
    error: ModelError


def advise(
    journal: Journal,
    targets: Sequence[Target],
    *,
    sweeps: Sequence[str] = (),
    assume: Sequence[str] = (),
    span: MeasuredPeriod | None = None,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
    known: Comparison | None = None,
) -> Advice:
    """Look for the setting that meets targets at the least cost to the rest.

    Args:
        journal: what to try settings on; one queue of it is looked at.
        targets: what is wanted.
        sweeps: what to try, see ``sweep``; without any, weights of the keys that targets name, caps of the largest
            other keys, and rates of the throttles that are in use.
        assume: loads and settings that hold meanwhile, such as ``arrivals=x2``.
        span: which messages to measure.
        spark: where to run; None for this process.
        progress: called with how many runs are done, and how many there are.
        known: the original settings on the same journal and span, if they have been run already; not with ``assume``.

    Raises:
        CandidateInvalid: there is no target, a key is unknown, or a sweep can't be understood.
        ModelInaccurate: the model is too far from the journal.
    """
    queue = only_queue(journal, targets)
    base = assumed(assume, journal.queues, journal.policies)
    if known is None:
        known = compare(journal, [base] if assume else [], span=span, spark=spark)
    require_keys(targets, known.of(ORIGINAL_AT, queue), queue)
    require_accuracy(known.errors, known.checks, [target.key for target in targets])
    base_at = len(known.scenarios) - 1
    axes = list(sweeps) or levers(journal, known, targets)
    settings = [one for one in sweep(base, axes, journal.queues, journal.policies) if one.name != base.name]
    found = compare(journal, settings, span=span, spark=spark, progress=progress, known=known)
    tried = sorted(
        (judged(found, at, queue, targets, base_at=base_at) for at in range(base_at, len(found.scenarios))),
        key=lambda one: (not one.is_met, one.lack, one.left, one.cost_ms, one.changes, one.name),
    )
    best = tried[0] if tried[0].is_met else None
    by_name = {scenario.name: scenario for scenario in found.scenarios}
    return Advice(
        queue=queue,
        targets=[target.text for target in targets],
        assumed=list(assume),
        tried=tried,
        proposal=best,
        commands=[] if best is None else commands_of(by_name[best.name]),
        error=known.errors[0],
    )


def judged(found: Comparison, at: int, queue: str, targets: Sequence[Target], *, base_at: int = ORIGINAL_AT) -> Tried:
    """Return what a scenario means for targets and for the rest, against what it is compared with."""
    keys, before = found.of(at, queue), found.of(base_at, queue)
    lack = sum(target.lack(keys) for target in targets)
    rest = [key for key in keys if key not in {ALL_KEYS, *(target.key for target in targets)}]
    messages = sum(keys[key].leased for key in rest)
    longer = sum(max(0.0, keys[key].wait_mean_ms - before[key].wait_mean_ms) * keys[key].leased for key in rest)
    scenario = found.scenarios[at]
    worse, worse_key = worst_rise(before, keys, targets)
    return Tried(
        name=scenario.name,
        values=[target.value(keys) for target in targets],
        is_met=lack == 0,
        lack=lack,
        left=_lost(keys) - _lost(before),
        cost_ms=longer / messages if messages else 0.0,
        changes=scenario.changes - found.scenarios[base_at].changes,
        worse=worse,
        worse_key=worse_key,
        config=scenario.config,
    )


def _lost(keys: Mapping[str, KeyMeasures]) -> int:
    return keys[ALL_KEYS].left + keys[ALL_KEYS].misses


def levers(journal: Journal, known: Comparison, targets: Sequence[Target]) -> list[str]:
    """Return what to try for targets, as sweeps."""
    queue = journal.queues[0]
    keys = known.of(ORIGINAL_AT, queue)
    wanted = list(dict.fromkeys(target.key for target in targets if target.key not in (ALL_KEYS, EVERY_KEY)))
    others = sorted((key for key in keys if key not in {ALL_KEYS, *wanted}), key=lambda key: -keys[key].messages)
    slots = sum(kind.most * kind.holds for kind in known.kinds_of(queue))
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
    for queue, load in sorted(scenario.load.items()):
        found += [f"# run {load.consumers} consumers of {queue}"] if load.consumers is not None else []
    return found


def _quoted(text: str) -> str:
    return text if text.replace(":", "").replace("-", "").replace("_", "").replace(".", "").isalnum() else f"'{text}'"
