"""Sweeps: settings and loads, each with the values to try, in all combinations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any, Final

from fairlane.core.config_patterns import THROTTLE_SETTINGS
from fairlane.errors import CandidateInvalid
from fairlane.model.partitions import queue_of
from fairlane.model.policy import QueuePolicy
from fairlane.spark.whatif.load import ALL, Load
from fairlane.spark.whatif.scenario import ORIGINAL, Scenario, check
from fairlane.verbs.config import BY_MESSAGE

SAME: Final = "same"
SCENARIOS_MAX: Final = 4_096
CONSUMERS_MAX: Final = 10_000
FACTOR_MIN, FACTOR_MAX = 0.01, 100
_FACTOR = re.compile(r"x([0-9]+(?:\.[0-9]+)?)", re.ASCII)


def sweep(
    base: Scenario, sweeps: Iterable[str], queues: Sequence[str], policies: Mapping[str, QueuePolicy]
) -> list[Scenario]:
    """Return a candidate in all combinations of what sweeps say: each is a setting and its values.

    Such as ``weight:acme=1,2,5``, ``cap:acme=10,none``, ``rate:api=5,10``, ``burst:api=20``, ``quantum=1,4``,
    ``key_cap=5,none``, ``key_rate=10,20``, ``key_charge=cost``, ``strict_priority=true,false`` or
    ``pause:acme=true,false``; or a load, such as ``consumers=2,8``, ``consumers=x2``, ``arrivals=x2``,
    ``arrivals:acme=x3`` or ``service=x0.7``. The value ``none`` sets nothing, where something may be unset, and
    ``same`` leaves it as it was. Raises CandidateInvalid if one can't be understood, or they are too many.
    """
    axes = [_axis(text, queues) for text in sweeps]
    total = 1
    for axis in axes:
        total *= len(axis)
    if total > SCENARIOS_MAX:
        raise CandidateInvalid(f"The sweeps have {total} combinations; at most {SCENARIOS_MAX} are allowed.")
    found = []
    for combination in product(*axes):
        scenario = base
        names = [] if base.name == ORIGINAL else [base.name]
        for step in combination:
            names += [step.name] if step.name else []
            scenario = scenario.with_others(step, ", ".join(names) or base.name)
        check(scenario, policies)
        found.append(scenario)
    return found


def _axis(text: str, queues: Sequence[str]) -> list[Scenario]:
    setting, equals, values = text.partition("=")
    listed = [value.strip() for value in values.split(",")]
    if not equals or not setting or not all(listed):
        raise CandidateInvalid(
            f"Invalid sweep {text!r:.100}. Write a setting and its values, such as weight:acme=1,2,5."
        )
    return [setting_of(setting.strip(), value, queues) for value in listed]


def assumed(assumptions: Sequence[str], queues: Sequence[str], policies: Mapping[str, QueuePolicy]) -> Scenario:
    """Return the scenario of assumptions, each a setting or a load with one value; the original without any.

    Raises:
        CandidateInvalid: one can't be understood, or has several values.
    """
    for text in assumptions:
        if "," in text:
            raise CandidateInvalid(f"An assumption takes one value, not several as {text!r:.100} has.")
    return sweep(Scenario(name=ORIGINAL), assumptions, queues, policies)[0]


def setting_of(setting: str, value: str, queues: Sequence[str]) -> Scenario:
    """Return one setting, or one load, as a scenario of its own.

    Raises:
        CandidateInvalid: there is no such setting, or it can't have this value.
    """
    name = f"{setting}={value}"
    kind, _, subject = setting.partition(":")
    if value == SAME:
        setting_of(setting, _SOME.get(kind, "true"), queues)  # there must be such a setting
        return Scenario(name="")
    told = None if value == "none" else value
    if kind in ("weight", "cap") and subject:
        return Scenario(name=name, config={f"{kind}:{queue_of(queue)}:{subject}": told for queue in queues})
    if kind in THROTTLE_SETTINGS and subject:
        return Scenario(name=name, config={f"throttle:{subject}:{kind}": told})
    if kind == "pause" and subject:
        return Scenario(name=name, paused={queue: {subject: _truth(name, value)} for queue in queues})
    if setting in _FIELDS:
        return Scenario(name=name, fields={queue: {setting: _FIELDS[setting](name, value)} for queue in queues})
    if setting == "consumers" or kind in ("arrivals", "service"):
        return Scenario(name=name, load=dict.fromkeys(queues, _load(name, kind, subject, value)))
    known = "weight:KEY, cap:KEY, rate:THROTTLE, burst:THROTTLE, charge:THROTTLE, key_cap, key_rate, key_burst, "
    known += "key_charge, in_flight_max, key_floor, quantum, strict_priority and pause:KEY"
    loads = "consumers, arrivals, arrivals:KEY, service and service:KEY"
    raise CandidateInvalid(f"Unknown setting {setting!r:.100}. Settings: {known}. Loads: {loads}.")


_TENANT_FIELDS = ("key_cap", "key_rate", "key_burst", "in_flight_max", "key_floor")
_SOME = {
    "quantum": "1",
    "key_charge": BY_MESSAGE,
    **dict.fromkeys(_TENANT_FIELDS, "1"),
    "consumers": "1",
    "arrivals": "x1",
    "service": "x1",
}


def _load(name: str, kind: str, key: str, value: str) -> Load:
    if kind == "consumers":
        if value.startswith("x"):
            return Load(consumers_times=_times(name, value))
        if not 0 <= (count := _whole(name, value)) <= CONSUMERS_MAX:
            raise CandidateInvalid(f"{name}: at most {CONSUMERS_MAX} consumers are allowed.")
        return Load(consumers=count)
    factor = {key or ALL: _times(name, value)}
    return Load(arrivals=factor) if kind == "arrivals" else Load(service=factor)


def _times(name: str, value: str) -> float:
    """Return the factor that a value such as ``x1.5`` tells."""
    match = _FACTOR.fullmatch(value)
    if match is None or not FACTOR_MIN <= (factor := float(match[1])) <= FACTOR_MAX:
        raise CandidateInvalid(f"{name}: the value must be x and a factor, {FACTOR_MIN} to {FACTOR_MAX}, as in x1.5.")
    return factor


def _number(name: str, value: str) -> float | None:
    try:
        return None if value == "none" else int(value) if value.isdecimal() else float(value)
    except ValueError:
        raise CandidateInvalid(f"{name}: the value must be a number.") from None


def _truth(name: str, value: str) -> bool:
    if value not in ("true", "false"):
        raise CandidateInvalid(f"{name}: the value must be true or false.")
    return value == "true"


def _whole(name: str, value: str) -> int:
    if not value.isdecimal():
        raise CandidateInvalid(f"{name}: the value must be a whole number.")
    return int(value)


_FIELDS: Final[dict[str, Callable[[str, str], Any]]] = {
    "quantum": _whole,
    "strict_priority": _truth,
    "key_charge": lambda _name, value: BY_MESSAGE if value == "none" else value,
    **dict.fromkeys(_TENANT_FIELDS, _number),
}
"""Fields of a queue policy, each with how its value is read."""
