"""Brokers for threads and loops on stores that fail, stall or live on disk."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from fairlane.adapters.lua.hooks import LuaHooks
from fairlane.adapters.memory.store import MemoryStore
from fairlane.adapters.rocksdb.store import RocksDbStore
from fairlane.adapters.system import SystemClock, SystemEntropy
from fairlane.broker.engine.engine import Engine
from fairlane.broker.settings import Settings
from fairlane.ports.store import Commit, Store
from tests.kit.waiting import PATIENCE_S

"""So long nothing takes that will happen at all."""
T = TypeVar("T")


class MoodyStore(MemoryStore):
    """A store in memory that raises what it is told to, once, and can be held up while it syncs."""

    def __init__(self) -> None:
        super().__init__()
        self.at_write: BaseException | None = None
        self.at_sync: BaseException | None = None
        self.is_syncing = threading.Event()
        self.may_sync = threading.Event()
        self.may_sync.set()

    def write(self, commit: Commit) -> None:
        error, self.at_write = self.at_write, None
        if error is not None:
            raise error
        super().write(commit)

    def sync(self) -> None:
        self.is_syncing.set()
        assert self.may_sync.wait(PATIENCE_S)
        error, self.at_sync = self.at_sync, None
        if error is not None:
            raise error
        super().sync()


def store_of(kind: str, folder: Path) -> Store:
    return MemoryStore() if kind == "memory" else RocksDbStore(folder / "store")


def engine_on(store: Store, settings: Settings | None = None) -> Engine:
    hooks = LuaHooks(lambda _queue, _key: None)
    engine = Engine(store, hooks=hooks, clock=SystemClock(), entropy=SystemEntropy(), settings=settings)
    engine.open()
    return engine


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, or fail if it has none."""
    return asyncio.run(asyncio.wait_for(main, PATIENCE_S))


class Background:
    """A call in a thread of its own, whose result or error can be waited for."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._result: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._call()
        except BaseException as error:  # noqa: BLE001 - for whoever asks
            self._error = error

    def get(self) -> Any:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "It waits for ever."
        if self._error is not None:
            raise self._error
        return self._result
