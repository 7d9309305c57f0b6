"""Names of queues and ids of messages."""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Sequence

from fairlane.model.limits import QUEUE_NAME_LENGTH_MAX

DLQ_SUFFIX = ".dlq"
REDRIVE_AT = "@"
"""In a cluster, separates the id of a redrive from the name of its dead-letter queue."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(~[1-9][0-9]?)?", re.ASCII)
"""A number after a tilde, which users cannot put into a name, marks a partition of a split queue."""
_ID_LENGTH = 16
_NUMBER_BYTES = _ID_LENGTH // 2


def queue_name_fault(name: object) -> str | None:
    """Return what is wrong with the name of a queue, or None if nothing is."""
    if not isinstance(name, str) or not name:
        return f"A queue name must be a non-empty string, got {name!r}."
    if len(name) > QUEUE_NAME_LENGTH_MAX:
        return f"A queue name has at most {QUEUE_NAME_LENGTH_MAX} characters, got {len(name)}."
    if _NAME.fullmatch(name) is None:
        return f"Invalid queue name {name!r}. Use letters and digits, then also dots, dashes and underscores."
    return None


def new_queue_name_fault(name: object) -> str | None:
    """Return why no queue of this name can be created, or None if one can."""
    if (fault := queue_name_fault(name)) is not None or not isinstance(name, str):
        return fault
    if is_dlq(name):
        return f"A name that ends in {DLQ_SUFFIX} is for dead letters; it comes with its queue."
    if len(dlq_of(name)) > QUEUE_NAME_LENGTH_MAX:
        return f"A queue's name has at most {QUEUE_NAME_LENGTH_MAX - len(DLQ_SUFFIX)} characters, not {len(name)}."
    return None


def dlq_of(queue: str) -> str:
    """Return the name of the dead-letter queue of a queue."""
    return queue + DLQ_SUFFIX


def is_dlq(queue: str) -> bool:
    """Return whether a name is that of a dead-letter queue."""
    return queue.endswith(DLQ_SUFFIX)


def id_of(number: int) -> str:
    """Return the id of a message from its number: 16 hexadecimal digits, in order of enqueue."""
    return number.to_bytes(_NUMBER_BYTES).hex()


def ids_of(numbers: Collection[int]) -> list[str]:
    """Return the ids of many messages from their numbers, in a fraction of the time of ``id_of``."""
    return struct.pack(f">{len(numbers)}Q", *numbers).hex(" ", _NUMBER_BYTES).split()


def number_of(message_id: object) -> int | None:
    """Return the number of a message from its id, or None if it is not an id."""
    if type(message_id) is not str or len(message_id) != _ID_LENGTH:
        return None
    try:
        digits = bytes.fromhex(message_id)  # unlike int(), it accepts nothing but digits and spaces
    except ValueError:
        return None
    return int.from_bytes(digits) if len(digits) == _NUMBER_BYTES else None


def numbers_of(message_ids: Sequence[str]) -> Sequence[int] | None:
    """Return the numbers of many messages from their ids, or None if one is invalid; then try ``number_of`` for
    each.
    """
    for message_id in message_ids:
        if type(message_id) is not str or len(message_id) != _ID_LENGTH:
            return None
    try:
        digits = bytes.fromhex("".join(message_ids))
    except ValueError:
        return None
    count = len(message_ids)
    return struct.unpack(f">{count}Q", digits) if len(digits) == count * _NUMBER_BYTES else None
