"""A leased message, for threads. Generated from its twin by ``tools/sync_verbs.py``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self

from fairlane.client.message_fields import MessageFields
from fairlane.errors import LeaseMismatch, MessageNotFound
from fairlane.model.limits import ERROR_LENGTH_MAX
from fairlane.model.message import Delivery, NewMessage
from fairlane.verbs.leases import NackIntent

_GONE = (LeaseMismatch, MessageNotFound)


class Settling(Protocol):
    """What a message needs of the client it came from."""

    def ack(
        self,
        message: Message,
        *,
        cost: int | None = None,
        forward: Mapping[str, Sequence[NewMessage]] | None = None,
    ) -> list[str]:
        """Ack it."""

    def nack(
        self, message: Message, *, error: str = "", intent: NackIntent = "failure", delay_ms: int | None = None
    ) -> None:
        """Give it back."""

    def extend(self, message: Message, *, visibility_ms: int | None = None) -> int:
        """Extend its lease."""

    def set_state(self, message: Message, state: bytes | None, *, etag: str | None) -> str | None:
        """Write its workflow state."""

    def ack_soon(self, message: Message, *, cost: int | None = None) -> None:
        """Ack it without waiting for the answer."""


class Message(MessageFields):
    """A leased message: the fields of a ``Delivery``, and what can be done with it.

    As a context manager it gives the message back as failed, with the text of the exception if there is one, unless it
    was acked, nacked, deferred or dead-lettered inside.
    """

    __slots__ = ("_client",)

    def __init__(self, delivery: Delivery, client: Settling) -> None:
        super().__init__(delivery)
        self._client = client

    def ack(self, *, cost: int | None = None, forward: Mapping[str, Sequence[NewMessage]] | None = None) -> list[str]:
        """Let it be done, at its true cost if told, and with ``forward`` enqueue others in the same commit.

        Returns the ids of those. When it returns, the ack is durable.

        Raises:
            MessageNotFound, LeaseMismatch: another has it or had it; drop it.
            QueueNotFound, InvalidArgument, PayloadTooLarge, QueueFull, KeyFull, GlobalFull: one of those to be
                forwarded was refused; it was not acked, and nothing enqueued.
        """
        try:
            ids = self._client.ack(self, cost=cost, forward=forward)
        except _GONE:
            self.is_settled = True
            raise
        self.is_settled = True
        return ids

    def ack_soon(self, *, cost: int | None = None) -> None:
        """Let it be done with the next acks that are sent, without waiting for the answer.

        If that fails the message comes again. ``flush`` of the client waits for all such acks and tells.
        """
        self._client.ack_soon(self, cost=cost)
        self.is_settled = True

    def nack(self, error: str = "", *, delay_ms: int | None = None) -> None:
        """Give it back as failed: it comes again after the delay, or the queue's backoff, or becomes a dead letter.

        Raises:
            MessageNotFound, LeaseMismatch: another has it or had it; drop it.
        """
        self._give_back("failure", error, delay_ms)

    def defer(self, delay_ms: int | None = None) -> None:
        """Give it back to come again after a delay, without counting a failure.

        Raises:
            MessageNotFound, LeaseMismatch: another has it or had it; drop it.
        """
        self._give_back("defer", "", delay_ms)

    def dead_letter(self, error: str = "") -> None:
        """Move it to the dead letters at once.

        Raises:
            MessageNotFound, LeaseMismatch: another has it or had it; drop it.
        """
        self._give_back("dead", error, None)

    def extend(self, visibility_ms: int | None = None) -> int:
        """Let its lease last so long from now, by default the queue's visibility timeout. Returns when it ends.

        Raises:
            MessageNotFound, LeaseMismatch: the lease has ended; stop working on it.
        """
        self.expires_ms = self._client.extend(self, visibility_ms=visibility_ms)
        return self.expires_ms

    def set_state(self, state: bytes | None) -> str | None:
        """Write its workflow state, or with None remove it. Returns the etag of the new version.

        Raises:
            MessageNotFound, LeaseMismatch: the lease has ended; stop working on it.
            StateMismatch: another has written since; it was not written.
        """
        self.state_etag = self._client.set_state(self, state, etag=self.state_etag)
        self.state = state
        return self.state_etag

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.is_settled:
            return
        try:
            self.nack("" if error is None else f"{type(error).__name__}: {error}"[:ERROR_LENGTH_MAX])
        except _GONE:
            if error is None:
                raise

    def _give_back(self, intent: NackIntent, error: str, delay_ms: int | None) -> None:
        try:
            self._client.nack(self, error=error, intent=intent, delay_ms=delay_ms)
        except _GONE:
            self.is_settled = True
            raise
        self.is_settled = True
