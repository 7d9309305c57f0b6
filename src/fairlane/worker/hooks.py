"""What is called when a worker begins, ends, or meets an error."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from fairlane.worker.message import WorkMessage

F = TypeVar("F", bound=Callable[..., Any])
_log = logging.getLogger("fairlane.worker")


class Hooks:
    """Functions, sync or async, that were registered to be called."""

    def __init__(self) -> None:
        self._start: list[Callable[..., Any]] = []
        self._stop: list[Callable[..., Any]] = []
        self._error: list[Callable[..., Any]] = []

    def on_start(self, hook: F) -> F:
        """Let the decorated function be called before the first message is taken; if it raises, none is."""
        self._start.append(hook)
        return hook

    def on_stop(self, hook: F) -> F:
        """Let the decorated function be called after the last message is settled."""
        self._stop.append(hook)
        return hook

    def on_error(self, hook: F) -> F:
        """Let the decorated function be called with each error and its message, or None if a consumer failed."""
        self._error.append(hook)
        return hook

    async def _tell_start(self) -> None:
        for hook in self._start:
            await _called(hook)

    async def _tell_stop(self) -> None:
        for hook in self._stop:
            await _called(hook)

    async def _tell_error(self, error: BaseException, message: WorkMessage | None) -> None:
        for hook in self._error:
            try:
                await _called(hook, error, message)
            except Exception:  # noqa: BLE001 - one error is enough; this one is logged
                _log.exception("A hook for errors failed.")


async def _called(hook: Callable[..., Any], *arguments: object) -> None:
    answer = hook(*arguments)
    if inspect.isawaitable(answer):
        await answer
