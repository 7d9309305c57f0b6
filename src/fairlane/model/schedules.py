"""Schedules: which messages are enqueued repeatedly, and when."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from fairlane.model.message import NewMessage

CatchUp = Literal["skip", "last", "all"]
"""What becomes of ticks that the broker comes to late: skip them, fire the latest one, or fire all up to a bound."""
CATCH_UPS: Final[tuple[CatchUp, ...]] = ("skip", "last", "all")
Overlap = Literal["allow", "skip"]
"""Whether a tick is skipped while the message of an earlier tick of the schedule still waits or is leased."""
OVERLAPS: Final[tuple[Overlap, ...]] = ("allow", "skip")
MissedReason = Literal["late", "overlap", "refused"]
"""Why a tick enqueued nothing: the broker came to it too late, an earlier message was still there, or the enqueue was
refused for good.
"""
SCHEDULE_HEADER: Final = "fairlane-schedule"
"""The header of a tick's message that has the name of its schedule."""
SCHEDULED_AT_HEADER: Final = "fairlane-scheduled-at"
"""The header of a tick's message that has the instant of the tick, such as ``2026-11-18T07:00:00Z``."""


class ScheduleSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a schedule enqueues, and when. It has either ``cron`` or ``every_ms``.

    Attributes:
        cron: five fields (minute, hour, day of month, month, day of week), or six with seconds first.
        timezone: for ``cron``, the IANA name of the time zone, such as ``Europe/Berlin``.
        every_ms: the interval between ticks in milliseconds, at least 1000.
        anchor_ms: for ``every_ms``, an instant in Unix milliseconds that ticks are counted from; the epoch by default,
            so that an hourly schedule fires on the full hour in UTC.
        message: what each tick enqueues. It can't have a dedup id.
        catch_up: what becomes of ticks that were due while the broker was down, the schedule was paused or the queue
            was full: ``skip``, ``last`` or ``all``.
        catch_up_max: for ``all``, how many of the latest ticks are fired at most.
        overlap: ``skip`` skips a tick while the message of an earlier tick still waits or is leased.
        from_ms: the first instant in Unix milliseconds at which it may fire.
        until_ms: the last instant in Unix milliseconds at which it may fire.
        jitter_ms: spread messages: each is delayed by a time from 0 to this one, determined by name and tick.
    """

    cron: str | None = None
    timezone: str = "UTC"
    every_ms: int | None = None
    anchor_ms: int = 0
    message: NewMessage = NewMessage()
    catch_up: CatchUp = "last"
    catch_up_max: int = 100
    overlap: Overlap = "allow"
    from_ms: int | None = None
    until_ms: int | None = None
    jitter_ms: int = 0

    @property
    def recurrence(self) -> tuple[str | None, str, int | None, int]:
        """What determines its ticks, apart from their limits."""
        return self.cron, self.timezone, self.every_ms, self.anchor_ms


class ScheduleView(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as an observer sees it.

    Attributes:
        spec: what it enqueues, and when.
        by: the caller who set it, if known.
        is_declared: whether a program declared its spec (``ensure_schedule``), rather than an operator set it.
        next_ms: the tick that fires next; null if it is paused or has ended.
        upcoming_ms: the next ticks, as many as requested, whether or not it is paused.
        last_ms: the latest tick that enqueued a message.
        last_id: the id of the latest message, by a tick or ``run_schedule``.
        fired: how many ticks have enqueued a message.
        missed: how many ticks have enqueued none. A gap counts for at most 1,000.
        missed_ms: the latest tick that was missed.
        missed_reason: why: ``late``, ``overlap`` or ``refused``.
        error: why the tick that is due has not been enqueued yet, or why the latest one was refused.
    """

    queue: str
    name: str
    spec: ScheduleSpec
    is_paused: bool
    created_ms: int
    by: str | None = None
    is_declared: bool = False
    next_ms: int | None = None
    upcoming_ms: tuple[int, ...] = ()
    last_ms: int | None = None
    last_id: str | None = None
    fired: int = 0
    missed: int = 0
    missed_ms: int | None = None
    missed_reason: MissedReason | None = None
    error: str | None = None
