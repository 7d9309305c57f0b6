"""A leased message, for asyncio. That for threads is made from this file by ``tools/sync_verbs.py``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self

from fairlane.client.message_fields import MessageFields
from fairlane.client.payload_reader_aio import AsyncPayloadReader
from fairlane.errors import LeaseMismatch, MessageCancelled, MessageNotFound
from fairlane.model.limits import ERROR_LENGTH_MAX
from fairlane.model.message import Became, Delivery, NewMessage
from fairlane.verbs.columns import DeliveryRow
from fairlane.verbs.leases import NackIntent
from fairlane.verbs.uploads import PayloadRange

_GONE = (LeaseMismatch, MessageCancelled, MessageNotFound)


class AsyncSettling(Protocol):
    """The part of a client that a message uses."""

    async def ack(
        self,
        message: AsyncMessage,
        *,
        cost: int | None = None,
        result: bytes | None = None,
        forward: Mapping[str, Sequence[NewMessage]] | None = None,
    ) -> list[str]:
        """Acknowledge a message."""

    async def nack(
        self, message: AsyncMessage, *, error: str = "", intent: NackIntent = "failure", delay_ms: int | None = None
    ) -> Became:
        """Return a message to its queue."""

    async def extend(self, message: AsyncMessage, *, visibility_ms: int | None = None) -> int:
        """Extend the lease of a message."""

    async def set_state(self, message: AsyncMessage, state: bytes | None, *, etag: str | None) -> str | None:
        """Write the workflow state of a message."""

    async def report_progress(self, message: AsyncMessage, fraction: float | None = None, *, note: str = "") -> None:
        """Report how far a message has come."""

    def ack_soon(self, message: AsyncMessage, *, cost: int | None = None, result: bytes | None = None) -> None:
        """Acknowledge a message without waiting for the answer."""

    async def read_payload(
        self, queue: str, message_id: str, *, token: int | None = None, offset: int = 0, count: int | None = None
    ) -> PayloadRange:
        """Return some of the payload of a message."""


class AsyncMessage(MessageFields):
    """A leased message, with the fields of a ``Delivery`` and methods that settle it.

    As a context manager it nacks the message at the end of the block, with the text of the exception if there is one,
    unless the block has settled it.

    Attributes:
        exit_delay_ms: how long the message waits for its retry after such a nack; by default the queue's backoff.
    """

    __slots__ = ("_client", "exit_delay_ms")

    def __init__(self, delivery: Delivery | DeliveryRow, client: AsyncSettling) -> None:
        super().__init__(delivery)
        self._client = client
        self.exit_delay_ms: int | None = None

    async def ack(
        self,
        *,
        cost: int | None = None,
        result: bytes | None = None,
        forward: Mapping[str, Sequence[NewMessage]] | None = None,
    ) -> list[str]:
        """Acknowledge the message, and with ``forward`` enqueue others in the same commit. Return their ids.

        ``cost`` is the actual cost of the message, if it differs. ``result`` is kept for the message's
        ``result_ttl_ms``. The acknowledgement is durable when this returns.

        Raises:
            MessageNotFound, LeaseMismatch, MessageCancelled: the lease is lost; drop the message.
            ResultTooLarge: nothing was acknowledged or enqueued.
            QueueNotFound, InvalidArgument, PayloadTooLarge, QueueFull, KeyFull, GlobalFull: a forwarded message was
                refused; nothing was acknowledged or enqueued.
        """
        try:
            ids = await self._client.ack(self, cost=cost, result=result, forward=forward)
        except _GONE:
            self.is_settled = True
            raise
        self.is_settled = True
        return ids

    def ack_soon(self, *, cost: int | None = None, result: bytes | None = None) -> None:
        """Acknowledge the message without waiting for the answer.

        If that fails, the message is delivered again. The client's ``flush`` waits for these acknowledgements, and
        returns the failed ones.
        """
        self._client.ack_soon(self, cost=cost, result=result)
        self.is_settled = True

    async def nack(self, error: str = "", *, delay_ms: int | None = None) -> Became:
        """Return the message as failed. It is retried after the delay or the queue's backoff, or becomes a dead letter.

        The result says which: ``waiting``, ``delayed``, ``dead``, or ``expired`` if its deadline has passed.

        Raises:
            MessageNotFound, LeaseMismatch, MessageCancelled: the lease is lost; drop the message.
        """
        return await self._return("failure", error, delay_ms)

    async def defer(self, delay_ms: int | None = None) -> Became:
        """Return the message for delivery after a delay, without a failure. Return what became of it; see ``nack``.

        Raises:
            MessageNotFound, LeaseMismatch, MessageCancelled: the lease is lost; drop the message.
        """
        return await self._return("defer", "", delay_ms)

    async def dead_letter(self, error: str = "") -> None:
        """Move the message to the dead letters at once.

        Raises:
            MessageNotFound, LeaseMismatch, MessageCancelled: the lease is lost; drop the message.
        """
        await self._return("dead", error, None)

    async def extend(self, visibility_ms: int | None = None) -> int:
        """Extend the lease to this duration from now; by default the visibility timeout. Return when it ends.

        Raises:
            MessageNotFound, LeaseMismatch, MessageCancelled: the lease has ended; stop the work.
        """
        self.expires_ms = await self._client.extend(self, visibility_ms=visibility_ms)
        return self.expires_ms

    async def set_state(self, state: bytes | None) -> str | None:
        """Write the workflow state, or remove it with None. Return the etag of the new version.

        Raises:
            MessageNotFound, LeaseMismatch, MessageCancelled: the lease has ended; stop the work.
            StateMismatch: the state has changed since it was read; it was not written.
        """
        self.state_etag = await self._client.set_state(self, state, etag=self.state_etag)
        self.state = state
        return self.state_etag

    async def report_progress(self, fraction: float | None = None, *, note: str = "") -> None:
        """Report how far the message has come: a fraction from 0 to 1, a short note, or both. It is not durable.

        Raises:
            MessageNotFound, LeaseMismatch, MessageCancelled: the lease has ended; stop the work.
        """
        await self._client.report_progress(self, fraction, note=note)

    def reader(self) -> AsyncPayloadReader:
        """Return the payload as a stream of bytes, whether it was uploaded in pieces or not."""
        return AsyncPayloadReader(self._client, self)

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

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.is_settled:
            return
        text = "" if error is None else f"{type(error).__name__}: {error}"[:ERROR_LENGTH_MAX]
        try:
            await self.nack(text, delay_ms=self.exit_delay_ms)
        except _GONE:
            if error is None:
                raise

    async def _return(self, intent: NackIntent, error: str, delay_ms: int | None) -> Became:
        try:
            became = await self._client.nack(self, error=error, intent=intent, delay_ms=delay_ms)
        except _GONE:
            self.is_settled = True
            raise
        self.is_settled = True
        return became
