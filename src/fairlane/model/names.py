"""Names of queues."""

from __future__ import annotations

import re

from fairlane.model.limits import QUEUE_NAME_LENGTH_MAX

DLQ_SUFFIX = ".dlq"
REDRIVE_AT = "@"
"""Separates the number of a redrive from the name of its queue, in its id."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(~[1-9][0-9]?)?", re.ASCII)
"""A number after a tilde, which users cannot put into a name, marks a partition of a split queue."""


def queue_name_fault(name: object) -> str | None:
    """Return what is wrong with the name of a queue, or None if nothing is."""
    if not isinstance(name, str) or not name:
        return f"A queue name must be a non-empty string, got {name!r}."
    if len(name) > QUEUE_NAME_LENGTH_MAX:
        return f"A queue name can have at most {QUEUE_NAME_LENGTH_MAX} characters, got {len(name)}."
    if _NAME.fullmatch(name) is None:
        return f"Invalid queue name {name!r}. Use letters and digits, then also dots, dashes and underscores."
    return None


def new_queue_name_fault(name: object) -> str | None:
    """Return why no queue of this name can be created, or None if one can."""
    if (fault := queue_name_fault(name)) is not None or not isinstance(name, str):
        return fault
    if is_dlq(name):
        return f"Names that end in {DLQ_SUFFIX} are for dead-letter queues, which are created with their queues."
    if len(dlq_of(name)) > QUEUE_NAME_LENGTH_MAX:
        return f"A queue name can have at most {QUEUE_NAME_LENGTH_MAX - len(DLQ_SUFFIX)} characters, not {len(name)}."
    return None


def dlq_of(queue: str) -> str:
    """Return the name of the dead-letter queue of a queue."""
    return queue + DLQ_SUFFIX


def own_dlq(queue: str) -> str:
    """Return the own dead-letter queue of a queue; a dead-letter queue is its own."""
    return queue if is_dlq(queue) else dlq_of(queue)


def is_dlq(queue: str) -> bool:
    """Return whether a name is that of a dead-letter queue."""
    return queue.endswith(DLQ_SUFFIX)
