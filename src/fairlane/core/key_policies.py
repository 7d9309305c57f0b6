"""Weights, caps, floors and rates of the keys of one queue.

For each of them the first that has a value counts: config for this key, the queue's policy for this key, patterns in
config (the most specific one first), what messages say, and last the queue's policy for every tenant (``key_cap``,
``key_floor``, ``key_rate``, ``key_burst`` and ``key_charge``). So names take precedence over patterns, and operators
over messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from fairlane.core.config_patterns import ConfigPatterns
from fairlane.core.ledger import Queue, ScheduledItem
from fairlane.model.message import Key, key_text
from fairlane.model.partitions import queue_of
from fairlane.scheduler.policy import KeyPolicy
from fairlane.verbs.config import BY_COST, BY_MESSAGE

_TOLD_MAX = 65_536
T = TypeVar("T")


class KeyPolicies:
    """Knows what each key of a queue is entitled to.

    Attributes:
        told: weight and cap of keys, as the latest message that had one said.
    """

    __slots__ = ("_config", "_known", "_name", "_patterns", "_queue", "told")

    def __init__(self, queue: Queue, config: Mapping[str, str], patterns: ConfigPatterns) -> None:
        self._queue = queue
        self._name = queue_of(queue.name)
        self._config = config
        self._patterns = patterns
        self._known: dict[tuple[int, int | None, int, float | None, float | None, bool], KeyPolicy] = {}
        self.told: dict[Key, tuple[int, int | None]] = {}

    def learn(self, messages: Iterable[ScheduledItem]) -> list[Key]:
        """Take note of the weights and caps that messages came with, and return the keys for which that is news."""
        told = self.told
        changed: dict[Key, None] = {}
        for message in messages:
            cap = message.after.cap if message.after is not None else None
            if not message.weight and cap is None:
                continue
            before = told.get(message.key, (1, None))
            says = (message.weight or before[0], before[1] if cap is None else cap)
            if before != says:
                told[message.key] = says
                changed[message.key] = None
        if len(told) > _TOLD_MAX:
            self._forget()
        return list(changed)

    def _forget(self) -> None:
        """Forget the keys that no message is here of any more."""
        messages = self._queue.messages
        alive = {message.key for message in messages.objects.values()}
        alive.update(key for run in messages.runs() for key in run.keys)
        self.told = {key: says for key, says in self.told.items() if key in alive and says != (1, None)}

    def of(self, key: Key) -> KeyPolicy | None:
        """Return the policy of a key, None for the default."""
        policy, is_tenant = self._queue.policy, isinstance(key, str)
        weight, cap = self.told.get(key, (1, None))
        if cap is None and is_tenant:
            cap = policy.key_cap
        weight = int(self._setting("weight", key, policy.weights, weight))
        cap = _whole(self._setting("cap", key, policy.caps, cap))
        floor = int(self._setting("floor", key, {}, policy.key_floor)) if is_tenant else 0
        rate = _number(self._setting("rate", key, {}, policy.key_rate if is_tenant else None))
        burst, by_cost = None, False
        if rate is not None:
            burst = _number(self._setting("burst", key, {}, policy.key_burst if is_tenant else None))
            by_cost = self._setting("charge", key, {}, policy.key_charge if is_tenant else BY_MESSAGE) == BY_COST
        if weight == 1 and cap is None and rate is None and not floor:
            return None
        found = (weight, cap, floor, rate, burst, by_cost)
        known = self._known.get(found)
        if known is None:
            known = self._known[found] = KeyPolicy(
                weight=weight, cap=cap, floor=floor, rate=rate, burst=burst, charges_cost=by_cost
            )
        return known

    def _setting(self, setting: str, key: Key, named: Mapping[str, T], otherwise: T) -> str | T:
        """Return what counts: config for this key, the policy for this key, patterns in config, then the rest."""
        name = key_text(key)
        said = self._config.get(f"{setting}:{self._name}:{name}") if self._config else None
        if said is not None:
            return said
        if name in named:
            return named[name]
        said = self._patterns.of_key(setting, self._name, key) if self._config else None
        return otherwise if said is None else said


def _whole(value: str | int | None) -> int | None:
    return None if value is None else int(value)


def _number(value: str | float | None) -> float | None:
    return None if value is None else float(value)
