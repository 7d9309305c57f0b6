"""Messages as handlers get them."""

from __future__ import annotations

import asyncio
import threading
from typing import Final, Literal, Protocol

from fairlane.client.message_fields import MessageFields
from fairlane.model.message import Delivery
from fairlane.verbs.methods.conversions import Held

WAITING: Final = 0
RUNNING: Final = 1
SETTLING: Final = 2
"""The phases of a message, in order. It never goes back, so a lease is settled at most once."""

Interruption = Literal["lost", "timeout", "stop"]


class StateWriter(Protocol):
    """Writes the workflow state of messages, such as a client."""

    async def set_state(self, message: Held, state: bytes | None, *, etag: str | None) -> str | None:
        """Write the state of a message."""


class WorkMessage(MessageFields):
    """A leased message as an async handler gets it, with its fields and its workflow state.

    Attributes:
        is_lost: whether the handler should stop: the lease has ended, the timeout has passed, or the worker shuts down.
            The handler's result has no effect then. An async handler is cancelled, too.
    """

    __slots__ = ("_event", "_writer", "due_s", "interruption", "is_lost", "phase", "runner", "start_by_s")

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
        self.runner: asyncio.Task[None] | None = None

    async def set_state(self, state: bytes | None) -> str | None:
        """Write the workflow state, or remove it with None. Return the etag of the new version.

        Raises:
            MessageNotFound, LeaseMismatch: the lease has ended; stop the work.
            StateMismatch: the state has changed since it was read; it was not written.
        """
        self.state_etag = await self._writer.set_state(self, state, etag=self.state_etag)
        self.state = state
        return self.state_etag

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
