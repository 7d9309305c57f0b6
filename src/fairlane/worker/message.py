"""A message in the hands of a worker."""

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
"""The phases of a message: it goes from each to the next only, so that no lease has two effects."""

Interruption = Literal["lost", "timeout", "stop"]


class StateWriter(Protocol):
    """Where the workflow state of messages is written, such as a client."""

    async def set_state(self, message: Held, state: bytes | None, *, etag: str | None) -> str | None:
        """Write the state of a message."""


class WorkMessage(MessageFields):
    """A leased message as a handler gets it: its fields, its workflow state, and whether it is still ours.

    Attributes:
        is_lost: whether to stop working on it: its lease has ended, its time is over, or the worker goes down. What
            the handler answers then has no effect. An async handler is cancelled besides.
    """

    __slots__ = ("_event", "_writer", "due_s", "interruption", "is_lost", "phase", "runner")

    def __init__(self, delivery: Delivery, writer: StateWriter, due_s: float) -> None:
        super().__init__(delivery)
        self._writer = writer
        self._event: threading.Event | None = None
        self.due_s = due_s
        self.is_lost = False
        self.interruption: Interruption | None = None
        self.phase = WAITING
        self.runner: asyncio.Task[None] | None = None

    async def set_state(self, state: bytes | None) -> str | None:
        """Write its workflow state, or with None remove it. Returns the etag of the new version.

        Raises:
            MessageNotFound, LeaseMismatch: the lease has ended; stop working on it.
            StateMismatch: another has written since; it was not written.
        """
        self.state_etag = await self._writer.set_state(self, state, etag=self.state_etag)
        self.state = state
        return self.state_etag

    def wait_lost(self, timeout: float | None = None) -> bool:
        """Block the thread of a sync handler until it is lost, or as long as told. Returns whether it is lost."""
        if self._event is None:
            self._event = threading.Event()
        if self.is_lost:  # asked after the event is there, so that whoever loses it either sees or sets it
            self._event.set()
        return self._event.wait(timeout)

    def interrupt(self, why: Interruption) -> None:
        """Tell a handler that is running to stop; the first reason counts."""
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

    def __init__(self, delivery: Delivery, writer: StateWriter, due_s: float) -> None:
        super().__init__(delivery, writer, due_s)
        self._loop = asyncio.get_running_loop()

    def set_state(self, state: bytes | None) -> str | None:  # type: ignore[override] # the same, for threads
        """Write its workflow state, or with None remove it. See ``WorkMessage``."""
        return asyncio.run_coroutine_threadsafe(super().set_state(state), self._loop).result()
