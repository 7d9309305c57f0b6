"""Extends the leases of all messages that a consumer holds, whether their handler has started or not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from fairlane.client.aio import AsyncClient
from fairlane.errors import FairlaneError, MessageCancelled
from fairlane.model.partitions import partition_of_id
from fairlane.worker.message import RUNNING, WAITING, WorkMessage
from fairlane.worker.settlement import GONE

_EXTENSIONS = 3
"""How many extensions fit into a visibility timeout, so that one or two may fail."""
_EXTEND_MAX = 5_000


class LeaseKeeper:
    """The messages that a consumer holds, in the order in which they came, and the task that extends their leases.

    When it is unsure which messages are still leased, after a lost connection, ``doubt`` checks at once; ``on_checked``
    is called when that is known. ``on_lost`` or ``on_cancelled`` is called for each message that was lost or cancelled
    before its handler started.
    """

    def __init__(
        self,
        client: AsyncClient,
        queue: str,
        *,
        visibility_ms: int,
        on_lost: Callable[[WorkMessage], None],
        on_cancelled: Callable[[WorkMessage], None],
        on_checked: Callable[[], None],
    ) -> None:
        self._client = client
        self._queue = queue
        self._visibility_ms = visibility_ms
        self._on_lost = on_lost
        self._on_cancelled = on_cancelled
        self._on_checked = on_checked
        self._loop = asyncio.get_running_loop()
        self._is_doubtful = asyncio.Event()
        self._is_needed = asyncio.Event()
        self.held: dict[WorkMessage, None] = {}

    def due_s(self) -> float:
        """Return when a lease that starts now ends, on the clock of the event loop."""
        return self._loop.time() + self._visibility_ms / 1000

    def add(self, messages: Iterable[WorkMessage]) -> None:
        """Extend the leases of these messages from now on."""
        self.held.update(dict.fromkeys(messages))
        self._is_needed.set()

    def forget(self, message: WorkMessage) -> None:
        """Stop extending the lease of a message."""
        self.held.pop(message, None)

    def doubt(self) -> None:
        """Check at once which leases are still valid; ``on_checked`` is called when that is known."""
        self._is_doubtful.set()
        self._is_needed.set()

    async def run(self) -> None:
        """Extend all leases after each third of the visibility timeout, while there are any."""
        pause_s = self._visibility_ms / 1000 / _EXTENSIONS
        while True:
            if not self.held and not self._is_doubtful.is_set():
                self._is_needed.clear()
                await self._is_needed.wait()
            try:
                async with asyncio.timeout(pause_s):
                    await self._is_doubtful.wait()
            except TimeoutError:
                pass
            try:
                async with asyncio.timeout(pause_s):
                    await self._extend()
            except (FairlaneError, TimeoutError):
                await asyncio.sleep(pause_s / 10)
            self._drop_overdue()

    async def _extend(self) -> None:
        was_doubtful = self._is_doubtful.is_set()
        self._is_doubtful.clear()
        try:
            await self._extend_all()
        except BaseException:
            if was_doubtful:
                self._is_doubtful.set()
            raise
        if was_doubtful and not self._is_doubtful.is_set():
            self._on_checked()

    async def _extend_all(self) -> None:
        """Extend the leases of each partition separately, so that an unresponsive partition does not delay others."""
        held: dict[int, list[WorkMessage]] = {}
        for message in self.held:
            held.setdefault(partition_of_id(message.id), []).append(message)
        outcomes = await asyncio.gather(*map(self._extend_these, held.values()), return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def _extend_these(self, messages: list[WorkMessage]) -> None:
        for begin in range(0, len(messages), _EXTEND_MAX):
            await self._extend_some(messages[begin : begin + _EXTEND_MAX])

    async def _extend_some(self, messages: list[WorkMessage]) -> None:
        due_s = self.due_s()
        ends = await self._client.extend_many(self._queue, messages, visibility_ms=self._visibility_ms)
        for message, end in zip(messages, ends, strict=True):
            if not isinstance(end, FairlaneError):
                message.expires_ms = end
                message.due_s = due_s
            elif isinstance(end, MessageCancelled):
                self.cancel([message])
            elif isinstance(end, GONE):
                self._lose(message)

    def _drop_overdue(self) -> None:
        now = self._loop.time()
        for message in [message for message in self.held if message.due_s <= now]:
            self._lose(message)

    def cancelled(self, ids: Sequence[str]) -> None:
        """Stop the handlers of messages that were cancelled."""
        known = frozenset(ids)
        self.cancel([message for message in self.held if message.id in known])

    def cancel(self, messages: Iterable[WorkMessage]) -> None:
        """Stop the handlers of these messages, and drop those that have none yet."""
        for message in messages:
            if message.phase == WAITING:
                self._on_cancelled(message)
            elif message.phase == RUNNING:
                message.interrupt("cancelled")

    def _lose(self, message: WorkMessage) -> None:
        if message.phase == WAITING:
            self._on_lost(message)
        elif message.phase == RUNNING:
            message.interrupt("lost")
