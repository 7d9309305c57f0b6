"""Requests about config values, throttles and the journal.

Config keys under ``PRIVATE_PREFIX`` hold secrets of the server, such as hashes of API keys. No verb shows or sets them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from fairlane.broker.handlers.checks import require
from fairlane.broker.views import queues as views
from fairlane.broker.views.journal import read_journal, reader_views
from fairlane.broker.views.stores import read_store
from fairlane.core.checks import whole_fault
from fairlane.errors import Forbidden
from fairlane.journal.events import rows
from fairlane.model.bounds import excess_of
from fairlane.verbs.config import (
    PRIVATE_PREFIX,
    ConfigValue,
    ConfigValues,
    GetConfig,
    ListConfig,
    ListThrottles,
    SetConfig,
    TemporaryValue,
    ThrottleList,
)
from fairlane.verbs.journal import EVENTS_MAX, Events, ListReaders, ReaderList, ReadJournal
from fairlane.verbs.stores import ReadStore, StoreSlice

if TYPE_CHECKING:
    from fairlane.broker.engine.engine import Engine


def _list_config(engine: Engine, request: ListConfig) -> ConfigValues:
    values = {
        key: value
        for key, value in sorted(engine.ledger.config.items())
        if key.startswith(request.prefix) and not key.startswith(PRIVATE_PREFIX)
    }
    shown = [image for image in engine.ledger.temporary.values() if image.key.startswith(request.prefix)]
    temporary = [
        TemporaryValue(
            key=image.key,
            expires_ms=image.expires_ms,
            before=image.before,
            owner=image.owner,
            reason=image.reason,
        )
        for image in sorted(shown, key=lambda image: image.key)
    ]
    return ConfigValues(values=values, temporary=temporary)


def _get_config(engine: Engine, request: GetConfig) -> ConfigValue:
    is_private = request.key.startswith(PRIVATE_PREFIX)
    return ConfigValue(value=None if is_private else engine.ledger.config.get(request.key))


def _throttles(engine: Engine, _request: ListThrottles) -> ThrottleList:
    return ThrottleList(throttles=views.throttle_views(engine.schedule, engine.now_ms()))


def _read_journal(engine: Engine, request: ReadJournal) -> Events:
    skips_trimmed = request.on_trimmed == "skip"
    found = read_journal(
        engine.store, engine.ledger, after=request.after, count=request.count, skips_trimmed=skips_trimmed
    )
    events = [event for page in found.pages for event in rows(page) if event["sequence"] > request.after]
    return Events(
        events=[without_secret(event) for event in events],
        position=found.position,
        journal_id=found.journal_id,
        since=found.since,
    )


def without_secret(event: dict[str, Any]) -> dict[str, Any]:
    """Return an event without the value of a private config key."""
    if event["kind"] == "config_set" and event["name"].startswith(PRIVATE_PREFIX):
        return {name: value for name, value in event.items() if name != "value"}
    return event


def _readers(engine: Engine, _request: ListReaders) -> ReaderList:
    return ReaderList(readers=reader_views(engine.ledger))


def _read_store(engine: Engine, request: ReadStore) -> StoreSlice:
    """Return a part of the store. A backup needs all of it, hashes of API keys included."""
    numbers = [body.number for body in request.bodies]
    return read_store(engine.store, engine.ledger, after=request.after, numbers=numbers, now_ms=engine.now_ms())


READS: Final[Mapping[type, Callable[..., Any]]] = {
    ListConfig: _list_config,
    GetConfig: _get_config,
    ListThrottles: _throttles,
    ReadJournal: _read_journal,
    ListReaders: _readers,
    ReadStore: _read_store,
}


def check_public(request: SetConfig) -> None:
    """Raise Forbidden if a request would set a private config key, InvalidArgument if it would set too many."""
    require(excess_of("values", request.values, "BATCH_MAX"))
    if any(isinstance(key, str) and key.startswith(PRIVATE_PREFIX) for key in request.values):
        raise Forbidden(f"Config keys that begin with {PRIVATE_PREFIX} belong to the server; use create_key().")


def _check_read_journal(request: ReadJournal) -> None:
    require(whole_fault("count", request.count, least=1, most=EVENTS_MAX))


CHECKS: Final[Mapping[type, Callable[[Any], None]]] = {
    SetConfig: check_public,
    ReadJournal: _check_read_journal,
}
