"""Messages as handlers get them."""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import suppress
from functools import partial
from typing import Final, Literal, Protocol

from fairlane.client.message_fields import MessageFields
from fairlane.client.payload_reader import PayloadReader
from fairlane.client.payload_reader_aio import AsyncPayloadReader, AsyncPayloadSource
from fairlane.errors import FairlaneError
from fairlane.model.message import Delivery
from fairlane.verbs.methods.conversions import Held
from fairlane.verbs.uploads import PayloadRange

WAITING: Final = 0
RUNNING: Final = 1
SETTLING: Final = 2
"""The phases of a message, in order. It never goes back, so a lease is settled at most once."""

_PROGRESS_S: Final = 0.1
"""The shortest time between two progress reports of a message."""

Interruption = Literal["lost", "cancelled", "timeout", "stop"]


class StateWriter(AsyncPayloadSource, Protocol):
    """Writes the workflow state of messages, reads their payloads and reports their progress, such as a client."""

    async def set_state(self, message: Held, state: bytes | None, *, etag: str | None) -> str | None:
        """Write the state of a message."""

    async def report_progress(self, message: Held, fraction: float | None = None, *, note: str = "") -> None:
        """Report how far a message has come."""


class WorkMessage(MessageFields):
    """A leased message as an async handler gets it, with its fields and its workflow state.

    Attributes:
        is_lost: whether the handler should stop: the lease has ended, the message was cancelled, the timeout has
            passed, or the worker shuts down. The handler's result has no effect then. An async handler is cancelled,
            too.
    """

    __slots__ = (
        *("_event", "_progress", "_reporting", "_writer", "due_s", "interruption", "is_lost", "phase", "runner"),
        *("start_by_s", "traceback"),
    )

    def __init__(self, delivery: Delivery, writer: StateWriter, *, now_s: float, due_s: float) -> None:
        super().__init__(delivery)
        self._writer = writer
        self._event: threading.Event | None = None
        self.due_s = due_s
        left_ms = delivery.time_left_ms
        # Counted from the receipt, on the clock of the event loop: the broker's clock may differ.
        self.start_by_s = None if left_ms is None else now_s + left_ms / 1000
        self.is_lost = False
        self.interruption: Interruption | None = None
        self.phase = WAITING
        self.traceback = ""
        self.runner: asyncio.Task[None] | None = None
        self._progress: tuple[float | None, str] | None = None
        self._reporting: asyncio.Task[None] | None = None

    async def set_state(self, state: bytes | None) -> str | None:
        """Write the workflow state, or remove it with None. Return the etag of the new version.

        Raises:
            MessageNotFound, LeaseMismatch: the lease has ended; stop the work.
            StateMismatch: the state has changed since it was read; it was not written.
        """
        self.state_etag = await self._writer.set_state(self, state, etag=self.state_etag)
        self.state = state
        return self.state_etag

    def report_progress(self, fraction: float | None = None, *, note: str = "") -> None:
        """Report how far the handler has come: a fraction from 0 to 1, a short note, or both.

        It returns at once. Reports that follow each other quickly are merged: only the latest is sent, at most about
        ten times a second. A report that fails is dropped.
        """
        self._progress = (fraction, note)
        if self._reporting is None and self.phase == RUNNING:
            self._reporting = asyncio.get_running_loop().create_task(self._send_progress())

    async def _send_progress(self) -> None:
        with suppress(FairlaneError):
            while self._progress is not None and self.phase == RUNNING:
                (fraction, note), self._progress = self._progress, None
                await self._writer.report_progress(self, fraction, note=note)
                await asyncio.sleep(_PROGRESS_S)
        self._reporting = None

    def reader(self) -> AsyncPayloadReader:
        """Return the payload as a stream of bytes, whether it was uploaded in pieces or not."""
        return AsyncPayloadReader(self._writer, self)

    async def read(self) -> bytes:
        """Return the whole payload, read into memory if it was uploaded in pieces.

        Raises:
            MessageNotFound, LeaseMismatch: the lease has ended; stop the work.
        """
        return await self.reader().read()

    async def write_to(self, path: str | os.PathLike[str]) -> None:
        """Write the payload to a file, piece by piece. An existing file is replaced.

        Raises:
            MessageNotFound, LeaseMismatch: the lease has ended; stop the work.
        """
        await self.reader().copy_to(path)

    def wait_lost(self, timeout: float | None = None) -> bool:
        """Block a sync handler until the message is lost or the timeout passes; return whether it is lost."""
        if self._event is None:
            self._event = threading.Event()
        if self.is_lost:  # check after creating the event: interrupt() then either sees the event or was seen here
            self._event.set()
        return self._event.wait(timeout)

    def interrupt(self, why: Interruption) -> None:
        """Ask a running handler to stop; the first reason counts."""
        if self.phase != RUNNING or self.interruption is not None:
            return
        self.interruption = why
        self.is_cancelled = why == "cancelled"
        self.is_lost = True
        if self._event is not None:
            self._event.set()
        if self.runner is not None:
            self.runner.cancel()


class ThreadMessage(WorkMessage):
    """A leased message as a sync handler gets it, in a thread."""

    __slots__ = ("_loop",)

    def __init__(self, delivery: Delivery, writer: StateWriter, *, now_s: float, due_s: float) -> None:
        super().__init__(delivery, writer, now_s=now_s, due_s=due_s)
        self._loop = asyncio.get_running_loop()

    def set_state(self, state: bytes | None) -> str | None:  # type: ignore[override] # sync, for threads
        """Write the workflow state, or remove it with None; see ``WorkMessage``."""
        return asyncio.run_coroutine_threadsafe(super().set_state(state), self._loop).result()

    def report_progress(self, fraction: float | None = None, *, note: str = "") -> None:
        """Report how far the handler has come; see ``WorkMessage``."""
        self._loop.call_soon_threadsafe(partial(super().report_progress, fraction, note=note))

    def read_payload(
        self, queue: str, message_id: str, *, token: int | None = None, offset: int = 0, count: int | None = None
    ) -> PayloadRange:
        """Return some of the payload, for a reader in a thread."""
        reading = self._writer.read_payload(queue, message_id, token=token, offset=offset, count=count)
        return asyncio.run_coroutine_threadsafe(reading, self._loop).result()

    def reader(self) -> PayloadReader:  # type: ignore[override] # sync, for threads
        """Return the payload as a binary file to read from; see ``WorkMessage``."""
        return PayloadReader(self, self)

    def read(self) -> bytes:  # type: ignore[override] # sync, for threads
        """Return the whole payload; see ``WorkMessage``."""
        return self.reader().read()

    def write_to(self, path: str | os.PathLike[str]) -> None:  # type: ignore[override] # sync, for threads
        """Write the payload to a file; see ``WorkMessage``."""
        self.reader().copy_to(path)
