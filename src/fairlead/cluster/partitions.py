"""A hot queue in several parts: which part a message belongs to, and in which order consumers ask the parts.

A queue's parts are queues of their own, in groups of their own, so different nodes can own them. All messages of one
top fairness key are in one part, so that order within a key, and its caps, hold as in a single queue. Shares of keys in
different parts are only as even as consumers ask the parts. The first part has the plain name of the queue, so a queue
that is split keeps the messages it has where they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

from fairlead.errors import InvalidArgument
from fairlead.model.message import Key

PARTITIONS_MAX: Final = 64
_MARK: Final = "#"
_MULTIPLIER: Final = 2_862_933_555_777_941_757
_MASK: Final = (1 << 64) - 1


def partition_names(queue: str, count: int) -> list[str]:
    """Return the names of a queue's parts: its own for the first, and then ``orders#1``, ``orders#2`` and so on.

    Raises:
        InvalidArgument: a queue can't have so many parts, or is a part itself.
    """
    if not 1 <= count <= PARTITIONS_MAX:
        raise InvalidArgument(f"A queue has 1 to {PARTITIONS_MAX} partitions, not {count}.")
    if _MARK in queue:
        raise InvalidArgument(f"{queue!r} is a partition, and can't have partitions.")
    return [queue, *(f"{queue}{_MARK}{at}" for at in range(1, count))]


def queue_of(partition: str) -> str:
    """Return the queue that a part belongs to; a queue that is none belongs to itself."""
    return partition.partition(_MARK)[0]


def partition_of(key: Key | None, count: int) -> int:
    """Return the part that messages of a fairness key belong to, the same on every machine and in every version.

    Only the first name of a path counts. With one part more, some keys go to the new one, and none from one old part to
    another.
    """
    top = key[0] if isinstance(key, tuple) else key
    if top is None or count <= 1:
        return 0
    return _jump(int.from_bytes(hashlib.blake2b(top.encode(), digest_size=8).digest()), count)


def _jump(seed: int, count: int) -> int:
    """Choose one of some places by a pseudo-random walk that jumps to a new place at each count where the key moves."""
    place, following = 0, 0
    while following < count:
        place = following
        seed = (seed * _MULTIPLIER + 1) & _MASK
        following = int((place + 1) * (1 << 31) / ((seed >> 33) + 1))
    return place


def asking_order(partitions: Sequence[str], *, turn: int, waiting: Mapping[str, int] | None = None) -> list[str]:
    """Return in which order a consumer asks the parts of a queue.

    Parts take turns in being first, so that over as many turns as there are parts each is first once. Where it is known
    how much waits in each, those where nothing does come last.

    Args:
        partitions: the parts.
        turn: one more with each asking; consumers do well to begin at different numbers.
        waiting: how many messages wait in each part, as far as that is known.
    """
    if not partitions:
        return []
    begin = turn % len(partitions)
    turned = [*partitions[begin:], *partitions[:begin]]
    if waiting is None:
        return turned
    return sorted(turned, key=lambda name: waiting.get(name, 1) <= 0)
