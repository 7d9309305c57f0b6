"""What the ledger knows of a schedule.

All ticks up to ``settled_ms`` are settled: each has enqueued its message or was missed, for good. A tick fires only
beyond that, and the record that says so is in one commit with its message. So no tick fires twice, whatever a clock, a
crash or a second node does. When the next tick is follows from the spec, and is never written down: a new release of
the time zone database counts from the first tick that is not settled.
"""

from __future__ import annotations

from dataclasses import dataclass

from fairlane.model.schedules import MissedReason, ScheduleSpec


@dataclass(slots=True, eq=False, kw_only=True)
class ScheduleState:
    """A schedule of a queue.

    Attributes:
        revision: the sequence of the record that set the spec.
        settled_ms: all ticks up to this instant are settled.
        is_declared: whether a program declared its spec, so that the same program may change it.
        last_ms: the latest tick that enqueued a message.
        last_number: the latest message.
        missed_ms: the latest tick that was missed, and why in ``missed_reason`` and ``error``.
        due_ms: when the engine looks at it next; None for not by itself. It belongs to the engine, not to the ledger.
        delayed_by: why the tick that is due has not been enqueued yet. It belongs to the engine, too.
    """

    queue: str
    name: str
    spec: ScheduleSpec
    revision: int
    created_ms: int
    settled_ms: int
    is_paused: bool = False
    by: str | None = None
    is_declared: bool = False
    fired: int = 0
    missed: int = 0
    last_ms: int | None = None
    last_number: int | None = None
    missed_ms: int | None = None
    missed_reason: MissedReason | None = None
    error: str | None = None
    due_ms: int | None = None
    delayed_by: str | None = None
