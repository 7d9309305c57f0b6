"""Events that are not about messages: for each kind of record, the columns of its one event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from fairlane.journal import records
from fairlane.journal.records import AnyRecord
from fairlane.model.message import Key


def json_text(value: object) -> str:
    """Return a value as JSON."""
    return msgspec.json.encode(value).decode()


def details_text(**values: int | str | None) -> str | None:
    """Return values as JSON; nothing if none of them is known."""
    known = {name: value for name, value in values.items() if value is not None}
    return json_text(known) if known else None


def path_of(key: Key) -> tuple[str, ...]:
    """Return a fairness key as a path."""
    return (key,) if type(key) is str else tuple(key)


def _order(record: records.RedriveStarted) -> dict[str, object]:
    """Return what a redrive is to do; without what is not limited."""
    wanted = {name: value for name, value in msgspec.structs.asdict(record.wanted).items() if value is not None}
    limits = {"count": record.most, "rate": record.rate}
    return {"wanted": wanted, "total": record.total} | {
        name: value for name, value in limits.items() if value is not None
    }


OF_OTHERS: Final[dict[type[AnyRecord], Callable[[Any], dict[str, object]]]] = {
    records.RedriveStarted: lambda one: {
        "queue": one.queue,
        "position": one.sequence,
        "target": one.target,
        "value": json_text(_order(one)),
        "by": one.by,
    },
    records.RedriveEnded: lambda one: {
        "queue": one.queue,
        "position": one.number,
        "reason": one.end.status,
        "error": one.end.error,
        "value": details_text(scanned=one.end.scanned, matched=one.end.matched),
        "by": one.end.by,
    },
    records.StateSet: lambda one: {"queue": one.queue, "message_id": one.number, "size_bytes": one.size},
    records.StateRemoved: lambda one: {"queue": one.queue, "message_id": one.number},
    records.ResultsSwept: lambda one: {"expires_ms": one.through_ms},
    records.QueueSet: lambda one: {"queue": one.queue, "policy_json": json_text(one.policy), "by": one.by},
    records.QueueRemoved: lambda one: {"queue": one.queue, "by": one.by},
    records.QueuePaused: lambda one: {
        "queue": one.queue,
        "fairness_key": None if one.key is None else path_of(one.key),
        "is_paused": one.is_paused,
        "by": one.by,
    },
    records.ConfigSet: lambda one: {
        "name": one.key,
        "value": one.value,
        "by": one.by,
        "owner": one.owner,
        "reason": one.reason,
        "expires_ms": one.expires_ms,
    },
    records.ReaderSet: lambda one: {"name": one.name, "position": one.position},
    records.ConsumerSet: lambda one: {"queue": one.queue, "name": one.name, "value": details_text(idle_ms=one.idle_ms)},
    records.ConsumerRemoved: lambda one: {"queue": one.queue, "name": one.name, "by": one.by},
    records.ClaimsEnded: lambda one: {"queue": one.queue, "name": one.name, "claim": one.through},
    records.SinkSet: lambda one: {"queue": one.queue, "name": one.name, "position": one.batch},
    records.SinkRemoved: lambda one: {"queue": one.queue, "name": one.name, "by": one.by},
    records.ScheduleSet: lambda one: {
        "queue": one.queue,
        "name": one.name,
        "value": json_text(replace(one.spec, message=replace(one.spec.message, payload=b""))),
        "size_bytes": len(one.spec.message.payload),
        "by": one.by,
    },
    records.ScheduleRemoved: lambda one: {"queue": one.queue, "name": one.name, "by": one.by},
    records.SchedulePaused: lambda one: {
        "queue": one.queue,
        "name": one.name,
        "is_paused": one.is_paused,
        "by": one.by,
    },
    records.ScheduleFired: lambda one: {
        "queue": one.queue,
        "name": one.name,
        "message_id": one.number,
        "due_ms": one.tick_ms,
        "reason": "manual" if one.is_manual else None,
        "by": one.by,
    },
    records.ScheduleMissed: lambda one: {
        "queue": one.queue,
        "name": one.name,
        "due_ms": one.tick_ms,
        "reason": one.reason,
        "error": one.error,
        "value": details_text(missed=one.missed),
    },
    records.FannedOut: lambda one: {
        "queue": one.queue,
        "name": one.name,
        "message_id": one.number,
        "value": details_text(members=sum(count for runs in one.members.values() for _, count in runs)),
    },
    records.UploadBegun: lambda one: {"queue": one.queue, "position": one.sequence, "by": one.by},
    records.PieceStored: lambda one: {"queue": one.queue, "position": one.upload, "size_bytes": one.size},
    records.UploadDropped: lambda one: {"queue": one.queue, "position": one.upload, "reason": one.reason, "by": one.by},
    records.Opened: lambda one: {
        "value": details_text(built_ms=one.built_ms or None, journal_id=one.journal_id or None)
    },
    records.Sealed: lambda one: {
        "position": one.first,
        "size_bytes": one.size,
        "value": details_text(first_ms=one.first_ms, last_ms=one.last_ms),
    },
    records.Trimmed: lambda one: {"position": one.to, "value": json_text(one.passed)},
}
"""The columns of all other records: each is one event, and None leaves a column out."""
