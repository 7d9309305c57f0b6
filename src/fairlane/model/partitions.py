"""Partitions of a queue that is too busy for one node: their names, and which one a message belongs to.

The partitions of a queue are queues of their own, in groups of their own, so different nodes can own them. The first is
the queue as it was before it was split, so its messages stay where they are. The others are named ``orders~1``,
``orders~2`` and so on; ``orders~0`` names the first one where the plain name would mean all of them. All messages of
one top-level fairness key go to one partition, so order within a key, its cap, and its share within the partition are
exact.

The journals of partitions count from numbers far apart, so the id of a message names its partition, and ids and fencing
tokens of one queue never collide.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

import msgspec

from fairlane.model.ids import number_in
from fairlane.model.limits import PARTITIONS_MAX
from fairlane.model.message import DEFAULT_KEY, Key
from fairlane.model.names import DLQ_SUFFIX

MARK: Final = "~"
NUMBER_BITS: Final = 47
"""The bits of a number within its partition. Together with the partition it stays below 2**53, so programs whose
numbers are floating point can still represent it exactly."""
_PARTITION = re.compile(r"(?P<queue>[^~]+)~(?P<at>0|[1-9][0-9]?)(?P<dlq>\.dlq)?")
_MULTIPLIER: Final = 2_862_933_555_777_941_757
_MASK: Final = (1 << 64) - 1
_TOP: Final = 1 << 31


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """How a queue is split.

    Attributes:
        partitions: how many partitions accept new messages, counted from the first.
        made: how many partitions exist. Those beyond accept no new messages and are being emptied.
        by_message: whether the fairness key that a producer gives is the effective one, so that the producer can choose
            the partition itself; otherwise the policy or a hook of the queue decides the key.
    """

    partitions: int
    made: int
    by_message: bool = True


def partition_name(queue: str, at: int) -> str:
    """Return the name of one partition of a queue or of a dead-letter queue."""
    plain = queue.removesuffix(DLQ_SUFFIX)
    return f"{plain}{MARK}{at}{queue[len(plain) :]}"


def place_in(name: str) -> tuple[str, int | None]:
    """Return the queue or dead-letter queue that a name belongs to, and the partition it names, or None."""
    found = _PARTITION.fullmatch(name) if MARK in name else None
    if found is None:
        return name, None
    return found["queue"] + (found["dlq"] or ""), int(found["at"])


def queue_of(name: str) -> str:
    """Return the queue that a partition belongs to; for any other queue its own name."""
    return place_in(name)[0]


def served_name(name: str) -> str:
    """Return the name of a queue or partition in its broker: the first partition has the plain name."""
    if MARK not in name:
        return name
    queue, at = place_in(name)
    return queue if at == 0 else name


def first_number(name: str) -> int:
    """Return the number from which the journal of a group counts, by the name of the group; 0 for most."""
    return (place_in(name)[1] or 0) << NUMBER_BITS


def partition_of_id(message_id: str) -> int:
    """Return the partition of a message by its id; 0 for anything that is not an id of a partition."""
    at = (number_in(message_id) or 0) >> NUMBER_BITS
    return at if at < PARTITIONS_MAX else 0


def partition_of_key(key: Key | None, count: int) -> int:
    """Return the partition for a fairness key, which is the same on every machine and in every version.

    Only the first name of a path counts. When a partition is added, some keys move to the new one, and none between old
    ones.
    """
    if count <= 1:
        return 0
    top = (key if isinstance(key, str) else key[0] if key else "") or DEFAULT_KEY
    return _jump(int.from_bytes(hashlib.blake2b(top.encode(), digest_size=8).digest()), count)


def _jump(seed: int, count: int) -> int:
    """Return a bucket by jump consistent hashing (Lamping and Veach).

    The walk visits the counts at which the key would move to the newest bucket, and ends at the last one below
    ``count``.
    """
    place, following = 0, 0
    while following < count:
        place = following
        seed = (seed * _MULTIPLIER + 1) & _MASK
        following = (place + 1) * _TOP // ((seed >> 33) + 1)
    return place
