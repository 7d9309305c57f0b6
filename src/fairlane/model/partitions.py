"""Partitions of a queue that is too hot for one node: their names, and which of them a message belongs to.

The partitions of a queue are queues of their own, in groups of their own, so different nodes can own them. The first is
the queue as it was before it was split, so what it holds stays where it is. The others are named ``orders~1``,
``orders~2`` and so on; ``orders~0`` names the first where the plain name would mean all of them. All messages of one
top fairness key go to one partition, so order within a key, its cap, and its share within the partition are exact.

The journals of partitions count from numbers far apart, so the id of a message tells its partition, and ids and fencing
tokens of one queue never meet.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

import msgspec

from fairlane.model.limits import PARTITIONS_MAX
from fairlane.model.message import DEFAULT_KEY, Key
from fairlane.model.names import DLQ_SUFFIX, number_of

MARK: Final = "~"
NUMBER_BITS: Final = 47
"""A partition has so many bits for its numbers. With the partition before them, programs that have nothing but floating
point for numbers can still tell all of them apart."""
_PARTITION = re.compile(r"(?P<queue>[^~]+)~(?P<at>0|[1-9][0-9]?)(?P<dlq>\.dlq)?")
_MULTIPLIER: Final = 2_862_933_555_777_941_757
_MASK: Final = (1 << 64) - 1
_TOP: Final = 1 << 31


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """How a queue is split.

    Attributes:
        partitions: how many partitions take new messages, the first so many.
        made: how many there are. Those beyond take nothing new, and are emptied by and by.
        by_message: whether the fairness key that a producer gives is the one that counts, so that it can tell by itself
            where a message belongs; otherwise the policy or a hook of the queue finds the key.
    """

    partitions: int
    made: int
    by_message: bool = True


def partition_name(queue: str, at: int) -> str:
    """Return the name of one partition of a queue, or of its dead-letter queue if that is what is named."""
    plain = queue.removesuffix(DLQ_SUFFIX)
    return f"{plain}{MARK}{at}{queue[len(plain) :]}"


def place_in(name: str) -> tuple[str, int | None]:
    """Return the queue, or dead-letter queue, that a name belongs to, and which partition of it is named, if one is."""
    found = _PARTITION.fullmatch(name) if MARK in name else None
    if found is None:
        return name, None
    return found["queue"] + (found["dlq"] or ""), int(found["at"])


def queue_of(name: str) -> str:
    """Return the queue that a partition belongs to; a queue that is none belongs to itself."""
    return place_in(name)[0]


def served_name(name: str) -> str:
    """Return the name under which a broker knows a queue or partition: the first partition has the plain name."""
    if MARK not in name:
        return name
    queue, at = place_in(name)
    return queue if at == 0 else name


def first_number(name: str) -> int:
    """Return what the journal of a group counts from, by the name of the group: for most it is 0."""
    return (place_in(name)[1] or 0) << NUMBER_BITS


def partition_of_id(message_id: str) -> int:
    """Return the partition that a message is in; 0 for what can't be an id, or not one of a partition."""
    at = (number_of(message_id) or 0) >> NUMBER_BITS
    return at if at < PARTITIONS_MAX else 0


def partition_of_key(key: Key | None, count: int) -> int:
    """Return the partition that messages of a fairness key belong to, the same on every machine and in every version.

    Only the first name of a path counts. With one partition more some keys go to the new one, and none from one old
    partition to another.
    """
    if count <= 1:
        return 0
    top = (key if isinstance(key, str) else key[0] if key else "") or DEFAULT_KEY
    return _jump(int.from_bytes(hashlib.blake2b(top.encode(), digest_size=8).digest()), count)


def _jump(seed: int, count: int) -> int:
    """Choose one of some places by a pseudo-random walk that jumps to a new place at each count where the key moves."""
    place, following = 0, 0
    while following < count:
        place = following
        seed = (seed * _MULTIPLIER + 1) & _MASK
        following = (place + 1) * _TOP // ((seed >> 33) + 1)
    return place
