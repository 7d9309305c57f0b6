"""What all verbs of a client do, for asyncio. That for threads is made from this file by ``sync_client.py``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from fairlead.errors import FairleadError, InvalidArgument
from fairlead.model.message import MessageTerms, NewMessage
from fairlead.wire.errors import error_of
from fairlead.wire.verbs import EnqueueResult, Receipt, Result, Shape

T = TypeVar("T")


class Leased(Protocol):
    """What has the right to act on a leased message: a message, a ``Delivery`` or a ``Receipt``."""

    @property
    def id(self) -> str:
        """The message."""

    @property
    def token(self) -> int:
        """The fencing token of the lease."""


class Held(Leased, Protocol):
    """What also knows its queue: a message or a ``Delivery``."""

    @property
    def queue(self) -> str:
        """The queue it was leased from."""


class AsyncAsking(ABC):
    """What all verbs do; how a call gets to a broker and its answer back is left to the clients."""

    @abstractmethod
    async def _call(self, verb: str, request: Shape, *, wait_ms: int = 0) -> Any:  # noqa: ANN401 - depends on the verb
        """Return the answer to a request, which is repeated where that is safe."""

    @abstractmethod
    async def _enqueue_one(self, queue: str, message: NewMessage, wait_ms: int) -> str:
        """Enqueue a message together with others that are enqueued now."""

    @abstractmethod
    async def _ack_one(self, queue: str, receipt: Receipt) -> None:
        """Ack a message together with others that are acked now."""

    @abstractmethod
    def ack_soon(self, message: Held, *, cost: int | None = None) -> None:
        """Ack a leased message with the next acks that are sent, without waiting for the answer.

        If that fails, the message comes again. ``flush`` waits for all such acks and tells which failed.
        """

    @abstractmethod
    def _stamped(self, messages: Sequence[NewMessage]) -> list[NewMessage]:
        """Return messages with the dedup ids that make it safe to repeat their enqueue."""


def receipt_of(leased: Leased, cost: int | None = None) -> Receipt:
    """Return the right to act on a leased message."""
    return Receipt(id=leased.id, token=leased.token, cost=cost)


def receipts_of(leased: Sequence[Leased]) -> list[Receipt]:
    """Return the right to act on each of some leased messages."""
    return [Receipt(id=one.id, token=one.token) for one in leased]


def ids_of(results: Sequence[EnqueueResult]) -> list[str | FairleadError]:
    """Return the id or the error of each message."""
    return [result.id if result.id is not None else _error(result) for result in results]


def errors_of(results: Sequence[Result]) -> list[FairleadError | None]:
    """Return None or the error of each item."""
    return [None if result.error is None else error_of(result.error) for result in results]


def ends_of(results: Sequence[Result]) -> list[int | FairleadError]:
    """Return when each lease ends, or an error."""
    return [result.expires_ms if result.expires_ms is not None else _error(result) for result in results]


def _error(result: EnqueueResult | Result) -> FairleadError:
    if result.error is None:
        return InvalidArgument("The server answered with neither a result nor an error.")
    return error_of(result.error)


def only(results: Sequence[T | FairleadError]) -> T:
    """Return the only result, or raise the only error."""
    result = results[0]
    if isinstance(result, FairleadError):
        raise result
    return result


def checked(make: Callable[[], T]) -> T:
    """Return what is made, or refuse it.

    Raises:
        InvalidArgument: it can't be made.
    """
    try:
        return make()
    except (TypeError, ValueError) as error:
        raise InvalidArgument(str(error)) from error


def message_of(message: NewMessage | bytes, terms: MessageTerms) -> NewMessage:
    """Return a message as it is, or make it of a payload and terms.

    Raises:
        InvalidArgument: there are terms for what is a message already, or unknown ones.
    """
    if isinstance(message, NewMessage):
        if terms:
            raise InvalidArgument("Say the terms in the message, or give a payload and terms, not both.")
        return message
    return checked(lambda: NewMessage(payload=message, **terms))
