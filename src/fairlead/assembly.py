"""Joins the broker with its adapters: a store on disk, Lua for hooks, the clock of the machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from fairlead.adapters.lua_hooks import LuaHooks
from fairlead.adapters.memory_store import MemoryStore
from fairlead.adapters.rocksdb_store import RocksDbStore
from fairlead.adapters.system_clock import SystemClock
from fairlead.adapters.system_entropy import SystemEntropy
from fairlead.broker.aio import AsyncBroker
from fairlead.broker.engine import Engine
from fairlead.broker.settings import Settings
from fairlead.broker.threads import Broker
from fairlead.errors import InvalidArgument
from fairlead.ports.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class HookLimits:
    """What a script may use, and when scripts that fail are left alone for a while."""

    timeout_ms: int = 10
    memory_bytes_max: int = 1024 * 1024
    breaker_threshold: int = 3
    breaker_cooldown_ms: int = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """How to open a broker.

    Attributes:
        path: the folder of its data, made if it is not there; None keeps everything in memory, for tests.
        durability: with ``fsync`` what was answered survives power loss; with ``os`` it survives the process, but what
            the operating system had not yet written is lost with the machine.
        settings: limits and the like.
        hooks: what scripts may use.
    """

    path: Path | str | None = None
    durability: Literal["fsync", "os"] = "fsync"
    settings: Settings = field(default_factory=Settings)
    hooks: HookLimits = field(default_factory=HookLimits)


def open_broker(config: BrokerConfig | Path | str | None = None) -> Broker:
    """Open a broker for threads, and recover what it had.

    Raises:
        InvalidArgument: the config makes no sense.
        StoreFailed, StoreCorrupt: the store can't be opened or read.
    """
    return Broker(_engine(config))


async def open_async_broker(config: BrokerConfig | Path | str | None = None) -> AsyncBroker:
    """Open a broker for the running event loop, and recover what it had.

    Raises:
        InvalidArgument: the config makes no sense.
        StoreFailed, StoreCorrupt: the store can't be opened or read.
    """
    return AsyncBroker(_engine(config))


def _engine(config: BrokerConfig | Path | str | None) -> Engine:
    config = config if isinstance(config, BrokerConfig) else BrokerConfig(path=config)
    if config.durability not in ("fsync", "os"):
        raise InvalidArgument(f"durability is fsync or os, not {config.durability!r}.")
    store: Store = (
        MemoryStore() if config.path is None else RocksDbStore(Path(config.path), durability=config.durability)
    )
    limits = config.hooks
    hooks = LuaHooks(
        lambda key: engine.ledger.config.get(key),  # noqa: PLW0108 - recovery makes a new ledger
        timeout_ms=limits.timeout_ms,
        memory_bytes_max=limits.memory_bytes_max,
        breaker_threshold=limits.breaker_threshold,
        breaker_cooldown_ms=limits.breaker_cooldown_ms,
    )
    engine = Engine(store, hooks=hooks, clock=SystemClock(), entropy=SystemEntropy(), settings=config.settings)
    engine.open()
    return engine
