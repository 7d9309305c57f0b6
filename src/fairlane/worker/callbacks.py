"""Callbacks of a worker for its start, its end, and errors."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from fairlane.worker.message import WorkMessage

F = TypeVar("F", bound=Callable[..., Any])
_log = logging.getLogger("fairlane.worker")


class Callbacks:
    """Registered functions, sync or async."""

    def __init__(self) -> None:
        self._start: list[Callable[..., Any]] = []
        self._stop: list[Callable[..., Any]] = []
        self._error: list[Callable[..., Any]] = []

    def on_start(self, function: F) -> F:
        """Register a function to call before the first message is taken; if it raises, the worker does not start."""
        self._start.append(function)
        return function

    def on_stop(self, function: F) -> F:
        """Register a function to call after the last message is settled."""
        self._stop.append(function)
        return function

    def on_error(self, function: F) -> F:
        """Register a function to call with each error and its message, or with None if a consumer failed."""
        self._error.append(function)
        return function

    async def _call_on_start(self) -> None:
        for function in self._start:
            await _called(function)

    async def _call_on_stop(self) -> None:
        for function in self._stop:
            await _called(function)

    async def _call_on_error(self, error: BaseException, message: WorkMessage | None) -> None:
        for function in self._error:
            try:
                await _called(function, error, message)
            except Exception:  # noqa: BLE001 - an error in a callback must not end the worker
                _log.exception("An on_error function failed.")


async def _called(function: Callable[..., Any], *arguments: object) -> None:
    returned = function(*arguments)
    if inspect.isawaitable(returned):
        await returned
