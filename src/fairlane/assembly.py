"""Opens brokers: joins the engine with a store, Lua for hooks and the clock of the machine.

A program that embeds a broker can import every name that it needs from here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack

from fairlane.adapters.copying import check_finished
from fairlane.adapters.folder_store import FolderStore, check_there, folder_store
from fairlane.adapters.lua.hooks import LuaHooks
from fairlane.adapters.memory.store import MemoryStore
from fairlane.adapters.numbered_store import NumberedStore
from fairlane.adapters.shared.ownership import HEARTBEAT_TIMEOUT_MS, OwnerProcess, Ownership
from fairlane.adapters.store_url import (
    AZURE,
    NAMESPACE,
    StoreUrl,
    group_url,
    is_place,
    is_url,
    parse_store_url,
    shown_url,
)
from fairlane.adapters.system import SystemClock, SystemDisk, SystemEntropy
from fairlane.broker.engine.engine import Engine
from fairlane.broker.frontends.aio import AsyncBroker
from fairlane.broker.frontends.threads import Broker
from fairlane.broker.handlers.internal import IdentifyJournal, ListSegments, ReadPages
from fairlane.broker.settings import Settings
from fairlane.errors import InvalidArgument
from fairlane.journal.records import SegmentImage
from fairlane.model.config_scope import read_for_hook
from fairlane.model.message import Delivery, NewMessage, Receipt
from fairlane.model.policy import QueuePolicy
from fairlane.model.spelling import did_you_mean
from fairlane.model.views import DeadLetterFilter
from fairlane.ports.board import Board
from fairlane.ports.hooks import Hooks
from fairlane.ports.store import Store, StoredPage
from fairlane.runtime import collect_rarely
from fairlane.verbs.journal import Events, OnTrimmed

if TYPE_CHECKING:
    from fairlane.adapters.s3.bucket import ObjectBucket

__all__ = [
    "AsyncBroker",
    "Broker",
    "BrokerConfig",
    "DeadLetterFilter",
    "Delivery",
    "NewMessage",
    "OwnerProcess",
    "QueuePolicy",
    "Receipt",
    "Settings",
    "SystemClock",
    "export_events",
    "export_journal",
    "group_url",
    "is_place",
    "is_url",
    "open_async_broker",
    "open_board",
    "open_broker",
    "open_group",
    "open_hooks",
    "open_store",
    "shown_url",
]

EXPORT_READER = "parquet-export"
_OBJECT_STORES = ("s3://", "az://")
_OBJECT_CYCLE_BYTES_MAX = 4 * 1024 * 1024  # a commit takes a tenth of a second there, however small it is


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """How to open a broker.

    Attributes:
        path: the folder of its data, created if it is missing, or the URL of a store, ``postgresql://``, ``s3://`` or
            ``az://``; None keeps everything in memory, for tests. ``log:FOLDER`` and ``rocksdb:FOLDER`` name the kind
            of store.
        durability: with ``fsync`` what was answered survives power loss; with ``os`` it survives the process, but what
            the operating system, or PostgreSQL, had not yet written is lost with the machine. S3 has no such choice.
        settings: limits and the like.
        owns_process: let Python collect garbage less often, and never among the messages that were recovered. With a
            million of them this saves pauses of a quarter of a second, but a library should not decide it by itself.
    """

    path: Path | str | None = None
    durability: Literal["fsync", "os"] = "fsync"
    settings: Settings = field(default_factory=Settings)
    owns_process: bool = False


class BrokerTerms(TypedDict, total=False):
    """Options of a broker besides its folder; see ``BrokerConfig``."""

    durability: Literal["fsync", "os"]
    settings: Settings
    owns_process: bool


def open_broker(config: BrokerConfig | Path | str | None = None, **terms: Unpack[BrokerTerms]) -> Broker:
    """Open a broker for threads from a config, or from a folder and terms, and recover its state.

    Raises:
        InvalidArgument: the config is not valid.
        StoreFailed, StoreCorrupt: the store can't be opened or read.
        StoreLocked: another process has it.
    """
    return Broker(_engine(_config(config, terms)))


async def open_async_broker(
    config: BrokerConfig | Path | str | None = None, **terms: Unpack[BrokerTerms]
) -> AsyncBroker:
    """Open a broker for the running event loop from a config, or from a folder and terms, and recover its state.

    Raises:
        InvalidArgument: the config is not valid.
        StoreFailed, StoreCorrupt: the store can't be opened or read.
        StoreLocked: another process has it.
    """
    return AsyncBroker(_engine(_config(config, terms)))


async def open_group(config: BrokerConfig, *, counts_from: int = 0, process: OwnerProcess | None = None) -> AsyncBroker:
    """Open a broker beside others on the running event loop: all that takes time is done in threads.

    When its store fails, or takes longer to answer than its lease, the broker is lost: open the group again.

    Args:
        config: where its store is, and its terms.
        counts_from: what the sequences of its journal begin after, always the same for the same store.
        process: what is known of this process and of others; see ``Ownership``.

    Raises:
        StoreFailed, StoreCorrupt: the store can't be opened or read.
        StoreLocked: another process has it.
    """
    engine = await asyncio.get_running_loop().run_in_executor(
        None, partial(_engine, config, is_shared=True, counts_from=counts_from, process=process)
    )
    return AsyncBroker(engine, slow_sync_s=0.0)


def _config(config: BrokerConfig | Path | str | None, terms: BrokerTerms) -> BrokerConfig:
    for name in terms:
        if name not in BrokerTerms.__annotations__:
            question = did_you_mean(name, BrokerTerms.__annotations__)
            raise InvalidArgument(f"A broker has no setting {name!r}; limits are in settings=Settings(...).{question}")
    if not isinstance(config, BrokerConfig):
        return BrokerConfig(path=config, **terms)
    if terms:
        raise InvalidArgument(f"Set {', '.join(terms)} in the config, or pass a folder and terms, not both.")
    return config


def _engine(
    config: BrokerConfig,
    *,
    is_shared: bool = False,
    counts_from: int = 0,
    process: OwnerProcess | None = None,
) -> Engine:
    if config.durability not in ("fsync", "os"):
        raise InvalidArgument(f"durability must be fsync or os, not {config.durability!r}.")
    check_there(config.path)
    store = open_store(config.path, durability=config.durability, is_bounded=is_shared, process=process)
    disk = SystemDisk(store.folder, reclaim=store.reclaim) if isinstance(store, FolderStore) else None
    if counts_from:
        store = NumberedStore(store, first=counts_from)

    def config_value(key: str) -> str | None:
        return engine.ledger.config.get(key)

    engine = Engine(
        store,
        hooks=open_hooks(config_value, config.settings),
        clock=SystemClock(),
        entropy=SystemEntropy(),
        disk=disk,
        settings=_suited(config.settings, config.path),
        reopens=not is_shared,
    )
    try:
        engine.open()
        check_finished(store)
    except BaseException:
        store.close()  # or it would be kept from others for as long as this process lives
        raise
    if config.owns_process:
        collect_rarely(freezes=not is_shared)  # beside other brokers it would hold those up
    return engine


def _suited(settings: Settings, path: Path | str | None) -> Settings:
    """Return settings with what suits the store where they leave it open."""
    if settings.cycle_bytes_max is not None or not str(path).startswith(_OBJECT_STORES):
        return settings
    return replace(settings, cycle_bytes_max=_OBJECT_CYCLE_BYTES_MAX)


def open_hooks(config_value: Callable[[str], str | None], settings: Settings | None = None) -> Hooks:
    """Return what runs scripts. They can read only the config values that are meant for scripts."""
    settings = settings if settings is not None else Settings()
    return LuaHooks(
        partial(read_for_hook, config_value),
        timeout_ms=settings.hook_timeout_ms,
        memory_bytes_max=settings.hook_memory_bytes_max,
        breaker_threshold=settings.hook_breaker_threshold,
        breaker_cooldown_ms=settings.hook_breaker_cooldown_ms,
        breaker_share_percent=settings.hook_breaker_share_percent,
        breaker_window_ms=settings.hook_breaker_window_ms,
    )


def open_store(
    path: Path | str | None,
    *,
    durability: Literal["fsync", "os"] = "fsync",
    is_bounded: bool = False,
    process: OwnerProcess | None = None,
) -> Store:
    """Return the store in a folder, at a URL, or in memory, for a broker to open.

    Args:
        path: where it is.
        durability: see ``BrokerConfig``.
        is_bounded: whether a database that takes longer to answer than the lease counts as failed.
        process: what is known of this process and of others; see ``Ownership``.

    Raises:
        InvalidArgument: there is no such kind of store, or what it needs is not installed.
    """
    if path is None:
        return MemoryStore()
    if isinstance(path, str) and is_url(path):
        url = parse_store_url(path)
        with _needing_extra(url):
            ownership = _ownership(url, process)
            if url.scheme == "postgresql":
                return _postgres_store(url, durability, ownership, is_bounded=is_bounded)
            return _s3_store(url, ownership)
    return folder_store(path, durability=durability)


def open_board(url: str) -> Board:
    """Return the board of the cluster whose stores are at a URL. This sends no request yet.

    Raises:
        InvalidArgument: there can be no cluster, or what it needs is not installed.
    """
    if not is_url(url):
        raise InvalidArgument("Nodes can share a store at postgresql://, s3:// or az://, but not a folder.")
    store = parse_store_url(url)
    with _needing_extra(store):
        return _postgres_board(store) if store.scheme == "postgresql" else _s3_board(store)


@contextmanager
def _needing_extra(url: StoreUrl) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        package, extra = ("psycopg", "postgres") if url.scheme == "postgresql" else ("obstore", "s3")
        needed = f"A store at {url.scheme}:// needs the package {package}: install fairlane[{extra}]."
        raise InvalidArgument(needed) from error


def _postgres_board(url: StoreUrl) -> Board:
    from fairlane.adapters.postgres.board import PostgresBoard

    namespace = url.options.get("namespace", NAMESPACE)
    return PostgresBoard(url.address, namespace=namespace, network_timeout_ms=_ownership(url).heartbeat_timeout_ms)


def _s3_board(url: StoreUrl) -> Board:
    from fairlane.adapters.s3.board import S3Board

    return S3Board(_bucket(url))


def _postgres_store(
    url: StoreUrl, durability: Literal["fsync", "os"], ownership: Ownership, *, is_bounded: bool
) -> Store:
    from fairlane.adapters.postgres.store import PostgresStore

    namespace = url.options.get("namespace", NAMESPACE)
    answer_ms = ownership.heartbeat_timeout_ms if is_bounded else None
    return PostgresStore(
        url.address, namespace=namespace, durability=durability, ownership=ownership, answer_ms=answer_ms
    )


def _s3_store(url: StoreUrl, ownership: Ownership) -> Store:
    from fairlane.adapters.s3.store import WINDOW_MS, S3Store

    return S3Store(_bucket(url), window_ms=url.number("window_ms", WINDOW_MS), ownership=ownership)


def _bucket(url: StoreUrl) -> ObjectBucket:
    from fairlane.adapters.s3.bucket import AzureContainer, S3Bucket

    if url.scheme == AZURE:
        return AzureContainer(url.address, account=url.options.get("account"), endpoint=url.options.get("endpoint"))
    return S3Bucket(
        url.address,
        endpoint=url.options.get("endpoint"),
        region=url.options.get("region"),
        is_anonymous=url.truth("anonymous"),
    )


def _ownership(url: StoreUrl, process: OwnerProcess | None = None) -> Ownership:
    ownership = Ownership(
        heartbeat_timeout_ms=url.number("heartbeat_timeout_ms", HEARTBEAT_TIMEOUT_MS), force=url.truth("force")
    )
    if process is not None:
        ownership = replace(ownership, process=process)
    return replace(ownership, owner=url.options["owner"]) if "owner" in url.options else ownership


def export_journal(broker: Broker, folder: Path | str) -> list[Path]:
    """Export the sealed segments of the journal that a folder does not have yet, as Parquet, and return the files.

    It may be interrupted and repeated at any time. From its first call on it is a registered reader of the journal,
    named ``parquet-export``, so what it has not exported is kept for it. Needs the extra ``fairlane[arrow]``.

    Raises:
        StoreFailed: a file could not be written.
        JournalTrimmed: a segment is gone already.
    """
    from fairlane.adapters.parquet_export import export_segment

    positions = {reader.name: reader.position for reader in broker.readers()}
    segments, journal = broker.call(ListSegments()), broker.call(IdentifyJournal())
    if EXPORT_READER not in positions:
        positions[EXPORT_READER] = segments[0].first - 1 if segments else 0
        broker.set_reader(EXPORT_READER, positions[EXPORT_READER])
    files = []
    for segment in segments:
        files.append(export_segment(segment, _pages(broker, segment), Path(folder), journal=journal).path)
        if segment.end - 1 > positions[EXPORT_READER]:
            broker.set_reader(EXPORT_READER, segment.end - 1)
    return files


def export_events(
    read: Callable[[int, OnTrimmed], Events],
    folder: Path | str,
    *,
    tell: Callable[[int], None] = lambda _position: None,
) -> list[Path]:
    """Export the events of a remote journal that a folder does not have yet, as Parquet, and return the files.

    It may be interrupted and repeated at any time, and continues after the last event of this journal that is in the
    folder. Needs the extra ``fairlane[arrow]``.

    Args:
        read: returns events after a position; the same position with no events when there are no more.
        folder: the target, created if it is missing.
        tell: called with the position that is reached.

    Raises:
        StoreFailed: a file could not be written.
        JournalTrimmed: what comes next is gone already.
    """
    from fairlane.adapters.parquet_export import export_stream

    return export_stream(read, Path(folder), tell=tell)


def _pages(broker: Broker, segment: SegmentImage) -> Iterator[StoredPage]:
    position = segment.first - 1
    while position < segment.end - 1:
        pages = broker.call(ReadPages(after=position))
        if not pages:
            return
        yield from pages
        position = pages[-1].next_sequence - 1
