"""Processes of one worker: start them, restart those that crash or run old sources, and drain them together."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from fairlane.worker.policy import Restarts

FATAL_CODE: Final = 77
"""The exit code of a child that must not be restarted, for example after a refused API key."""
_REFUSED: Final = 1
_STEADY_S: Final = 30.0
"""After this time a child counts as healthy, and earlier crashes no longer delay its restart."""
_CRASHES_LONGEST_S: Final = 300.0
"""The longest delay before a child that keeps crashing is restarted."""
_log = logging.getLogger("fairlane.worker")


class Processes:
    """Child processes that run the same command."""

    def __init__(
        self,
        command: Sequence[str],
        count: int,
        *,
        environment: Mapping[str, str],
        restarts: Restarts | None = None,
        changes: AsyncIterator[str] | None = None,
    ) -> None:
        """Create processes that are not started yet.

        Args:
            command: what each of them runs.
            count: how many there are.
            environment: their environment variables.
            restarts: the delays before one that has crashed is restarted.
            changes: yields a file whenever the sources have changed. All processes are restarted then, and one that
                has crashed is restarted only then.
        """
        self._command = command
        self._count = count
        self._environment = environment
        self._restarts = restarts or Restarts(immediate=1, longest_s=_CRASHES_LONGEST_S)
        self._changes = changes
        self._changed = asyncio.Event()
        self._alive: set[asyncio.subprocess.Process] = set()
        self._stopping = asyncio.Event()

    async def run(self) -> int:
        """Run until SIGTERM or SIGINT, or until a child ends with ``FATAL_CODE``. Return the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        reloading = asyncio.ensure_future(self._reload())
        try:
            codes = await asyncio.gather(*(self._keep(number) for number in range(self._count)))
        finally:
            reloading.cancel()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
        return _REFUSED if FATAL_CODE in codes else max(codes)

    def _stop(self) -> None:
        """Ask all children to drain; a second call ends their grace period."""
        self._stopping.set()
        self._changed.set()
        self._drain()

    def _drain(self) -> None:
        for child in self._alive:
            with suppress(ProcessLookupError):
                child.send_signal(signal.SIGTERM)

    async def _reload(self) -> None:
        """Drain all children whenever a source file changes; ``_keep`` starts them again."""
        if self._changes is None:
            return
        async for name in self._changes:
            _log.info("%s has changed; restarting.", name)
            self._changed.set()
            self._changed = asyncio.Event()
            self._drain()

    async def _keep(self, number: int) -> int:
        """Keep one child running, and return the exit code of the last one."""
        loop = asyncio.get_running_loop()
        waits_s = self._restarts.waits_s()
        while True:
            begun, changed = loop.time(), self._changed
            code = await self._live(number)
            if code == FATAL_CODE:
                self._stop()
            if self._stopping.is_set():
                return 0 if code == -signal.SIGTERM else abs(code)  # stopped before it could install its signal handler
            if self._changes is not None:
                if await self._is_changed(changed, number, code):
                    continue
                return abs(code)
            if loop.time() - begun > _STEADY_S:
                waits_s = self._restarts.waits_s()
            wait_s = next(waits_s, None)
            if wait_s is None:
                self._stop()
                return abs(code)
            _log.error("Child %d ended with exit code %d; restarting in %.2f s.", number, code, wait_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._stopping.wait()
                return 0

    async def _is_changed(self, changed: asyncio.Event, number: int, code: int) -> bool:
        """Wait for a change of the sources, and return whether there is one; False if the processes are to stop."""
        if not changed.is_set():
            _log.error("Child %d ended with exit code %d; restarting when a source file changes.", number, code)
        await changed.wait()
        return not self._stopping.is_set()

    async def _live(self, number: int) -> int:
        # A session of its own, so that an interrupt from the terminal reaches only the parent, which signals each child
        # once. The pipe closes when the parent dies, which tells the child to drain.
        child = await asyncio.create_subprocess_exec(
            *self._command, env=self._environment, start_new_session=True, stdin=asyncio.subprocess.PIPE
        )
        self._alive.add(child)
        _log.info("Started child %d as process %d.", number, child.pid)
        if self._stopping.is_set():
            child.send_signal(signal.SIGTERM)
        try:
            return await child.wait()
        finally:
            self._alive.discard(child)
