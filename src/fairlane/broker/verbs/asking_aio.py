"""How a verb gets to the engine, for asyncio. That for threads is made from this file by ``tools/sync_verbs.py``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar, cast

from fairlane.broker.engine.engine import Engine
from fairlane.broker.requests import Read, Reply, Request
from fairlane.broker.verbs.checking import check_author
from fairlane.core import commands

T = TypeVar("T")


class AsyncAsking(ABC):
    """What all verbs do; how a call gets to the engine and its answer back is left to the faces."""

    _engine: Engine

    @abstractmethod
    async def _ask(self, make: Callable[[Reply], Any]) -> Any:  # noqa: ANN401 - what a verb answers depends on the verb
        """Submit what is made with a reply, and return the answer to it."""

    async def _do(self, command: commands.Command, *, wait_ms: int = 0) -> Any:  # noqa: ANN401 - see _ask
        check_author(getattr(command, "by", None))
        return await self._ask(lambda reply: Request(command, reply, wait_ms))

    async def _read(self, ask: Callable[[], T]) -> T:
        return cast("T", await self._ask(lambda reply: Read(ask, reply)))
