"""Enters schedules and their ticks into the books, and checks each tick against a table of minutes.

Ticks are computed here by ``naive_cron`` and by plain counting, never by the broker's calendar.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from msgspec.structs import replace

from fairlane.broker.settings import Settings
from fairlane.journal import records as r
from fairlane.model.message import NewMessage
from fairlane.model.schedules import ScheduleSpec
from tests.kit import naive_cron
from tests.kit.auditor.books import Books, QueueBook, ScheduleBook, Sent, violated

COUNTED_MAX: Final = 1_000
ON_TIME_MS: Final = 60_000
_NAME, _TICK = "fairlane-schedule", "fairlane-scheduled-at"


def ticks(spec: ScheduleSpec, after_ms: int, end_ms: int) -> list[int]:
    """Return the ticks after an instant and up to another."""
    after_ms = max(after_ms, (spec.from_ms or 0) - 1)
    end_ms = end_ms if spec.until_ms is None else min(end_ms, spec.until_ms)
    if end_ms <= after_ms:
        return []
    if spec.cron is not None:
        return naive_cron.ticks(spec.cron, spec.timezone, after_ms, end_ms)
    every_ms = spec.every_ms or 0
    first = after_ms + 1 + (spec.anchor_ms - after_ms - 1) % every_ms
    return list(range(first, end_ms + 1, every_ms))


class ScheduleRecords:
    """Enters records about schedules."""

    _books: Books
    _sent: dict[bytes, Sent]

    def _schedule_set(self, record: r.ScheduleSet, at_ms: int) -> None:
        schedules = self._books.queues[record.queue].schedules
        known = schedules.get(record.name)
        if known is None:
            own = record.by, record.is_declared
            schedules[record.name] = ScheduleBook(record.name, record.spec, record.sequence, at_ms, at_ms, *own)
            return
        if record.is_declared and not known.is_declared:
            violated(f"{record} changes a schedule that an operator has set")
        before, after = known.spec, record.spec
        if (before.cron, before.timezone, before.every_ms, before.anchor_ms) != (
            *(after.cron, after.timezone, after.every_ms, after.anchor_ms),
        ):
            known.settled_ms = max(known.settled_ms, at_ms)
        known.spec, known.revision, known.by = after, record.sequence, record.by
        known.is_declared = record.is_declared

    def _schedule_removed(self, record: r.ScheduleRemoved, _at_ms: int) -> None:
        del self._books.queues[record.queue].schedules[record.name]

    def _schedule_paused(self, record: r.SchedulePaused, _at_ms: int) -> None:
        self._books.queues[record.queue].schedules[record.name].is_paused = record.is_paused

    def _schedule_fired(self, record: r.ScheduleFired, at_ms: int) -> None:
        book = self._books.queues[record.queue]
        schedule = book.schedules[record.name]
        birth = self._books.births.get(record.number)
        if record.number != record.sequence - 1 or birth is None or record.number < self._books.commit_first:
            violated(f"the message of {record} is not in the same commit")
        said = (birth.message.headers.get(_NAME), birth.message.headers.get(_TICK))
        if said != (record.name, instant_text(record.tick_ms)):
            violated(f"the message of {record} says that it comes from {said}")
        if record.is_manual:
            schedule.last_number = record.number
            return
        between = ticks(schedule.spec, schedule.settled_ms, record.tick_ms)
        if schedule.is_paused or between != [record.tick_ms] or record.tick_ms > at_ms:
            violated(f"{record} at {at_ms}, and due since {schedule} are {between}")
        if schedule.spec.overlap == "skip" and schedule.last_number in book.entries:
            violated(f"{record} overlaps with message {schedule.last_number}")
        schedule.last_number, schedule.settled_ms, schedule.last_ms = record.number, record.tick_ms, record.tick_ms
        schedule.fired += 1

    def _schedule_missed(self, record: r.ScheduleMissed, at_ms: int) -> None:
        book = self._books.queues[record.queue]
        schedule = book.schedules[record.name]
        missed = ticks(schedule.spec, schedule.settled_ms, record.tick_ms)
        later = ticks(schedule.spec, record.tick_ms, at_ms)
        if schedule.is_paused or missed[-1:] != [record.tick_ms] or record.tick_ms > at_ms:
            violated(f"{record} at {at_ms}, and due since {schedule} are {missed[-5:]}")
        if record.missed > len(missed) or (len(missed) <= COUNTED_MAX and record.missed != len(missed)):
            violated(f"{record} counts {record.missed} instead of {len(missed)}")
        if not _may_miss(record, schedule, book, later, at_ms):
            violated(f"{record} at {at_ms}, by {schedule}, with {len(later)} ticks after it")
        schedule.settled_ms = schedule.missed_ms = record.tick_ms
        schedule.missed += record.missed

    def _sent_by_schedule(self, book: QueueBook, headers: dict[str, str]) -> Sent | None:
        """Return the message that a schedule sends, if the headers say that it comes from one."""
        schedule = book.schedules.get(headers.get(_NAME, ""))
        if schedule is None:
            return None
        own = {_NAME: schedule.name, _TICK: headers[_TICK]}
        message: NewMessage = replace(schedule.spec.message, headers={**schedule.spec.message.headers, **own})
        sent = Sent(book.name, message, schedule.revision, {None})
        self._sent[message.payload] = sent
        return sent


def _may_miss(record: r.ScheduleMissed, schedule: ScheduleBook, book: QueueBook, later: list[int], at_ms: int) -> bool:
    """Return whether the policy of a schedule allows to miss a tick, given those after it."""
    if record.reason == "refused":
        return record.error is not None
    if record.reason == "overlap":
        return schedule.spec.overlap == "skip" and schedule.last_number in book.entries
    if schedule.spec.catch_up == "skip":
        return bool(later) or at_ms - record.tick_ms > ON_TIME_MS
    return len(later) >= (1 if schedule.spec.catch_up == "last" else schedule.spec.catch_up_max)


def instant_text(at_ms: int) -> str:
    """Return an instant as a header has it."""
    moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S") + (f".{at_ms % 1000:03}" if at_ms % 1000 else "") + "Z"


def check_settled(books: Books, settings: Settings, now_ms: int) -> None:
    """Check that no tick is overdue, except where a limit or a script may hold up its message."""
    if settings.waiting_max is not None or settings.waiting_bytes_max is not None:
        return
    for book in books.queues.values():
        policy = book.policy
        limits = (policy.waiting_max, policy.waiting_bytes_max, policy.key_waiting_max, policy.key_waiting_bytes_max)
        if any(limit is not None for limit in limits) or policy.on_enqueue is not None:
            continue
        for schedule in book.schedules.values():
            if book.set_at > schedule.revision:
                continue  # there may have been a limit before, and a tick that met it is tried again within a minute
            due = [] if schedule.is_paused else ticks(schedule.spec, schedule.settled_ms, now_ms)
            if due:
                violated(f"at {now_ms} these ticks of {schedule} are due: {due[:3]}")


def pictures_of_schedules(schedules: Any) -> list[tuple[object, ...]]:
    """Return comparable pictures of schedules, of the books, the ledger or a record."""
    return sorted(
        (
            *(one.name, one.revision, one.created_ms, one.settled_ms, one.is_paused, one.fired, one.missed),
            *(one.last_ms or 0, one.last_number or 0, one.missed_ms or 0, str(one.by), repr(one.spec)),
        )
        for one in schedules
    )
