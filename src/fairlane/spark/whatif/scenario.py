"""Scenarios: the settings that a replay changes, for the whole time. Read from a file."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from fairlane.core.decide import decide
from fairlane.core.ledger import Ledger
from fairlane.errors import CandidateInvalid, FairlaneError
from fairlane.journal.records import AnyRecord, ConfigSet, QueuePaused, QueueSet
from fairlane.model.message import key_text
from fairlane.model.policy import QueuePolicy, policy_from
from fairlane.spark.whatif.load import Load
from fairlane.verbs.config import SetConfig

ORIGINAL = "original"
REPLAYED = (
    *("weights", "caps", "key_cap", "key_rate", "key_burst", "key_charge", "in_flight_max", "key_floor"),
    *("quantum", "strict_priority", "order", "order_batch_max"),
)
"""The fields of a queue policy that can be tried on a journal."""
_FIELDS = QueuePolicy.__struct_fields__
_WHY_NOT = {
    **dict.fromkeys(
        ("on_enqueue", "fairness_key_from", "weight_from", "cost_from", "priority_from", "cap_from", "throttles_from"),
        "it depends on headers, which are not in the journal",
    ),
    **dict.fromkeys(
        ("deadline_ms", "throttle_scope"), "it sets the terms of new messages, and the journal has their final terms"
    ),
    **dict.fromkeys(
        ("waiting_max", "waiting_bytes_max", "key_waiting_max", "key_waiting_bytes_max", "backpressure"),
        "messages that a limit refused are not in the journal",
    ),
}
_ELSE = "the outcome of each attempt is taken from the journal"


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that differ from those in the journal.

    Attributes:
        name: its name in reports.
        config: config values that hold all the time; None for one that is not set.
        fields: fields of queue policies that hold all the time, by queue.
        paused: keys that are paused, or with False not paused, all the time, by queue.
        load: other consumers, arrivals and service times, by queue.
    """

    name: str
    config: dict[str, str | None] = {}
    fields: dict[str, dict[str, Any]] = {}
    paused: dict[str, dict[str, bool]] = {}
    load: dict[str, Load] = {}

    def adjusted(self, record: AnyRecord) -> AnyRecord | None:
        """Return a record as it would be under the scenario; None for one that sets what the scenario sets."""
        if isinstance(record, QueueSet):
            fields = self.fields.get(record.queue)
            policy = policy_from(dict(fields), base=record.policy) if fields else record.policy
            return QueueSet(record.sequence, record.queue, policy)
        if isinstance(record, ConfigSet) and record.key in self.config:
            return None
        if isinstance(record, QueuePaused) and record.key is not None:
            return None if key_text(record.key) in self.paused.get(record.queue, {}) else record
        return record

    def with_others(self, other: Scenario, name: str) -> Scenario:
        """Return both together; where they differ, the other wins."""
        fields = {queue: dict(told) for queue, told in self.fields.items()}
        for queue, told in other.fields.items():
            fields[queue] = fields.get(queue, {}) | told
        paused = {queue: dict(told) for queue, told in self.paused.items()}
        for queue, keys in other.paused.items():
            paused[queue] = paused.get(queue, {}) | keys
        load = dict(self.load)
        for queue, each in other.load.items():
            load[queue] = load.get(queue, Load()).with_others(each)
        return Scenario(name=name, config=self.config | other.config, fields=fields, paused=paused, load=load)

    @property
    def changes(self) -> int:
        """How many settings differ, loads included."""
        return len(self.config) + len(self.fields) + len(self.paused) + len(self.load)


def read_candidate(path: Path, queues: Sequence[str], policies: Mapping[str, QueuePolicy]) -> Scenario:
    """Read a candidate from a file, TOML or JSON.

    At its top are fields of a queue policy, for all queues that are looked at, or ``paused``, a list of keys;
    ``[queues.NAME]`` has the same for one queue, and ``[config]`` has config values by their keys. Raises
    CandidateInvalid if it can't be understood, or can't be tried.
    """
    try:
        text = path.read_text()
        told = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise CandidateInvalid(f"Could not read the candidate {path}: {error}.") from error
    if not isinstance(told, dict):
        raise CandidateInvalid(f"The candidate {path} must be a table of fields.")
    config = _table(told.pop("config", {}), "config")
    single = _table(told.pop("queues", {}), "queues")
    for name in single:
        if name not in queues:
            raise CandidateInvalid(f"The candidate names queue {name!r}, which is not replayed. Add it with --queue.")
    tables = {name: told | _table(single.get(name, {}), f"queues.{name}") for name in queues}
    scenario = Scenario(
        name="candidate",
        config={key: None if value is None else _text(value) for key, value in config.items()},
        fields={name: _fields(name, table, policies[name]) for name, table in tables.items()},
        paused={name: _paused(table) for name, table in tables.items()},
    )
    check(scenario, policies)
    return scenario


def _table(value: object, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise CandidateInvalid(f"{name} in a candidate must be a table, not {value!r:.60}.")
    return value


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _paused(table: Mapping[str, Any]) -> dict[str, bool]:
    keys = table.get("paused", [])
    if not isinstance(keys, list) or not all(isinstance(key, str) and key for key in keys):
        raise CandidateInvalid(f"paused must be a list of fairness keys, not {keys!r:.60}.")
    return dict.fromkeys(keys, True)


def _fields(queue: str, table: Mapping[str, Any], policy: QueuePolicy) -> dict[str, Any]:
    """Return the fields that can be tried; others may be there if they say what the queue's policy says."""
    found = {}
    for name, value in table.items():
        if name == "paused":
            continue
        if name not in _FIELDS:
            raise CandidateInvalid(f"A queue policy has no field {name!r}. A replay can vary {', '.join(REPLAYED)}.")
        if name in REPLAYED:
            found[name] = value
        elif _policy(policy, {name: value}) != policy:
            raise CandidateInvalid(f"A replay cannot vary {name} of queue {queue!r}: {_WHY_NOT.get(name, _ELSE)}.")
    return found


def _policy(base: QueuePolicy, fields: Mapping[str, Any]) -> QueuePolicy:
    try:
        return policy_from(dict(fields), base=base)
    except ValueError as error:
        raise CandidateInvalid(str(error)) from error


def check(scenario: Scenario, policies: Mapping[str, QueuePolicy]) -> None:
    """Check that a broker would accept the settings of a scenario. Raises CandidateInvalid if it would not."""
    for queue, fields in scenario.fields.items():
        _policy(policies[queue], fields)
    refusal = decide(Ledger(), SetConfig(values=scenario.config), 0).outcome
    if isinstance(refusal, FairlaneError):
        raise CandidateInvalid(f"{scenario.name}: {refusal.cause}")
