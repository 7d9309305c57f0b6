"""Weights and caps of the keys of one queue: config first, then the queue's policy, then what messages say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fairlane.core.ledger import Queue, ScheduledItem
from fairlane.model.message import Key
from fairlane.model.partitions import queue_of
from fairlane.scheduler.policy import KeyPolicy

_TOLD_MAX = 65_536


class KeyPolicies:
    """Knows what each key of a queue is entitled to.

    Attributes:
        told: weight and cap of keys, as the latest message that had one said.
    """

    __slots__ = ("_config", "_known", "_name", "_queue", "told")

    def __init__(self, queue: Queue, config: Mapping[str, str]) -> None:
        self._queue = queue
        self._name = queue_of(queue.name)
        self._config = config
        self._known: dict[tuple[int, int | None], KeyPolicy] = {}
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
        alive = {message.key for message in self._queue.messages.values()}
        self.told = {key: says for key, says in self.told.items() if key in alive and says != (1, None)}

    def of(self, key: Key) -> KeyPolicy | None:
        """Return the policy of a key, None for the default."""
        weight, cap = self.told.get(key, (1, None))
        name = key if isinstance(key, str) else "/".join(key)
        queue, policy, config = self._name, self._queue.policy, self._config
        weight = policy.weights.get(name, weight)
        cap = policy.caps.get(name, cap)
        if config:
            weight = int(config.get(f"weight:{queue}:{name}", weight))
            said = config.get(f"cap:{queue}:{name}")
            cap = cap if said is None else int(said)
        if weight == 1 and cap is None:
            return None
        known = self._known.get((weight, cap))
        if known is None:
            known = self._known[weight, cap] = KeyPolicy(weight=weight, cap=cap)
        return known
