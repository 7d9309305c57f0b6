"""From what a program says to what the wire carries, and back: for both faces of the client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from fairlane.client.tracing import traced
from fairlane.errors import FairlaneError, InvalidArgument
from fairlane.model.message import MessageTerms, NewMessage, Receipt
from fairlane.verbs.errors import error_of
from fairlane.verbs.messages import EnqueueResult, Result

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


def receipt_of(leased: Leased, cost: int | None = None) -> Receipt:
    """Return the right to act on a leased message."""
    return Receipt(id=leased.id, token=leased.token, cost=cost)


def receipts_of(leased: Sequence[Leased]) -> list[Receipt]:
    """Return the right to act on each of some leased messages."""
    return [Receipt(id=one.id, token=one.token) for one in leased]


def ids_of(results: Sequence[EnqueueResult]) -> list[str | FairlaneError]:
    """Return the id or the error of each message."""
    return [result.id if result.id is not None else _error(result) for result in results]


def errors_of(results: Sequence[Result] | Sequence[EnqueueResult]) -> list[FairlaneError | None]:
    """Return None or the error of each item."""
    return [None if result.error is None else error_of(result.error) for result in results]


def ends_of(results: Sequence[Result]) -> list[int | FairlaneError]:
    """Return when each lease ends, or an error."""
    return [result.expires_ms if result.expires_ms is not None else _error(result) for result in results]


def _error(result: EnqueueResult | Result) -> FairlaneError:
    if result.error is None:
        return InvalidArgument("The server answered with neither a result nor an error.")
    return error_of(result.error)


def only(results: Sequence[T | FairlaneError]) -> T:
    """Return the only result, or raise the only error."""
    result = results[0]
    if isinstance(result, FairlaneError):
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
    """Return a message as it is, or make it of a payload and terms. It carries the current span on, if there is one.

    Raises:
        InvalidArgument: there are terms for what is a message already, or unknown ones.
    """
    if not isinstance(message, NewMessage):
        return traced([checked(lambda: NewMessage(payload=message, **terms))])[0]
    if terms:
        raise InvalidArgument("Say the terms in the message, or give a payload and terms, not both.")
    return traced([message])[0]
