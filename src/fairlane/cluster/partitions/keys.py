"""Finds the partition of a new message, before any broker is asked."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from fairlane.cluster.entries import SplitEntry
from fairlane.core.checks import message_fault
from fairlane.core.sources import Declared
from fairlane.model.answers import EnqueueAnswer
from fairlane.model.message import Key, NewMessage
from fairlane.model.names import is_dlq
from fairlane.model.partitions import partition_of_id, partition_of_key
from fairlane.model.policy import QueuePolicy
from fairlane.ports.hooks import EnqueueQuestion, Hooks

_SCRIPT_NS_MAX: Final = 5_000_000
"""About how long a script runs before the event loop serves others."""


class PartitionKeys:
    """Finds fairness keys as brokers do: from the queue's script, its policy, or the producer.

    A slow script is asked about a few messages at a time, so that it does not block the event loop. Requests for one
    queue take turns in the order in which they arrived, so that none overtakes another.

    A script may answer differently when the broker runs it. Such a message is in an unexpected partition, and is handed
    out all the same, because consumers ask every partition.
    """

    def __init__(
        self, hooks: Hooks, *, splits: Callable[[], Mapping[str, SplitEntry]], now_ms: Callable[[], int]
    ) -> None:
        """Start without any script.

        Args:
            hooks: runs the scripts.
            splits: returns how queues are split, and where their keys come from.
            now_ms: returns the time.
        """
        self._hooks = hooks
        self._splits = splits
        self._now_ms = now_ms
        self._known: dict[str, tuple[SplitEntry, Declared]] = {}
        self._turns: dict[str, asyncio.Lock] = {}

    async def places(self, queue: str, messages: Sequence[NewMessage], partitions: int) -> list[int]:
        """Return the partition of each new message: where its payload was uploaded, or where its key belongs."""
        known: dict[Key | None, int] = {}
        places = []
        for key, message in zip(await self._keys(queue, messages), messages, strict=True):
            if message.upload is not None:
                places.append(partition_of_id(message.upload))
                continue
            at = known.get(key)
            if at is None:
                at = known[key] = partition_of_key(key, partitions)
            places.append(at)
        return places

    async def _keys(self, queue: str, messages: Sequence[NewMessage]) -> list[Key | None]:
        keys = [message.fairness_key for message in messages]
        entry = None if is_dlq(queue) else self._splits().get(queue)
        if entry is None or entry.split.by_message:
            return keys
        declared = self._declared(queue, entry)
        if declared.has_key:
            keys = [declared.key(message.headers) or key for message, key in zip(messages, keys, strict=True)]
        if entry.on_enqueue is not None:
            sound = [row for row, message in enumerate(messages) if message_fault(message, sys.maxsize) is None]
            questions = [EnqueueQuestion(messages[row].headers, len(messages[row].payload)) for row in sound]
            answers = await self._ask(queue, questions)
            for row, answer in zip(sound, answers, strict=False):  # all of them, or none if there is no script
                if answer is not None and answer.fairness_key is not None:
                    keys[row] = answer.fairness_key
        return keys

    async def _ask(self, queue: str, questions: Sequence[EnqueueQuestion]) -> list[EnqueueAnswer | None]:
        """Ask the queue's script about messages, in turn with other requests for the queue."""
        answers: list[EnqueueAnswer | None] = []
        async with self._turns.setdefault(queue, asyncio.Lock()):
            while len(answers) < len(questions):
                rest = questions[len(answers) :]
                found = self._hooks.on_enqueue(queue, rest, self._now_ms(), most_ns=_SCRIPT_NS_MAX)
                if found is None:
                    return []  # its script is gone, and the answers of another one would not help
                answers += found
                if len(answers) < len(questions):
                    await asyncio.sleep(0)
        return answers

    def _declared(self, queue: str, entry: SplitEntry) -> Declared:
        """Return what the policy declares, and load the script that is in force now."""
        known = self._known.get(queue)
        if known is not None and known[0].key_rules == entry.key_rules:
            return known[1]
        for name in self._known.keys() - self._splits().keys():
            del self._known[name]
            self._turns.pop(name, None)
            self._hooks.remove(name)
        self._hooks.set(queue, on_enqueue=entry.on_enqueue, on_failure=None, limits=entry.hook_limits)
        declared = Declared(QueuePolicy(fairness_key_from=entry.key_from))
        self._known[queue] = entry, declared
        return declared
