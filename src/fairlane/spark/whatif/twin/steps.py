"""The events of a queue's messages in the order of the journal, as the array twin replays them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairlane.spark.whatif.rows import ACK, DEATH, LEASE, NEVER, REMOVAL, RETURN, START, Ints, MessageRows, Parts


class JournalSteps(NamedTuple):
    """The events of a queue's messages in the order of the journal.

    Attributes:
        sequence: of each event.
        code: what kind of event it is; see ``rows.py``.
        part: the part it is of.
        at_ms: when it was.
        record: equal for events that happened together.
        asked: how many messages were requested together.
        value: when a message that is offered is due, -1 for at once; or what an acknowledged one cost.
    """

    sequence: Ints
    code: NDArray[np.int8]
    part: NDArray[np.int32]
    at_ms: Ints
    record: Ints
    asked: NDArray[np.int32]
    value: Ints


def steps_of(rows: MessageRows, parts: Parts) -> JournalSteps | None:
    """Return the events of messages in order; None if there is one that needs the kernel.

    Messages come, are leased, and their leases end. Whatever takes out a message that waits needs the kernel, and so
    does a message from before the journal begins.
    """
    code, before = rows.code, np.concatenate([[REMOVAL], rows.code[:-1]])
    is_end = np.isin(code, (ACK, RETURN, DEATH))
    follows = np.where(is_end, before == LEASE, np.isin(before, (START, RETURN)) | (code != LEASE))
    is_elsewhere = (code == START) & (rows.queue == NEVER)
    if parts.unknown.any() or (code == REMOVAL).any() or is_elsewhere.any() or not follows.all():
        return None
    order = np.argsort(rows.sequence, kind="stable")
    due_ms = rows.ints("due_ms", NEVER)
    due_ms = np.where(due_ms == NEVER, NEVER, due_ms - rows.first_ms)
    value = np.where(code == ACK, rows.ints("cost", NEVER), due_ms)
    return JournalSteps(
        sequence=rows.sequence[order],
        code=code[order].astype(np.int8),
        part=parts.of_row[order].astype(np.int32),
        at_ms=rows.at_ms[order],
        record=rows.ints("record")[order],
        asked=rows.ints("asked", 0)[order].astype(np.int32),
        value=value[order],
    )
