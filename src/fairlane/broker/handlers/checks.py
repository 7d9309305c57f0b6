"""What a verb looks at before it asks the engine, and how it takes the answer for one item."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import msgspec

from fairlane.core.checks import key_fault, text_fault, whole_fault
from fairlane.errors import FairlaneError, InvalidArgument
from fairlane.model import limits
from fairlane.model.message import NewMessage
from fairlane.model.views import DeadLetterFilter

T = TypeVar("T")


class Leased(Protocol):
    """What has the right to act on a leased message: a ``Delivery`` or a ``Receipt``."""

    @property
    def id(self) -> str:
        """The message."""

    @property
    def token(self) -> int:
        """The fencing token of the lease."""


def only(results: Sequence[T | FairlaneError]) -> T:
    """Return the only result, or raise the only error."""
    result = results[0]
    if isinstance(result, FairlaneError):
        raise result
    return result


def require(fault: str | None) -> None:
    """Refuse a fault, if there is one.

    Raises:
        InvalidArgument: there is one.
    """
    if fault is not None:
        raise InvalidArgument(fault)


def check_author(by: str | None) -> None:
    """Refuse what can't be the name of somebody.

    Raises:
        InvalidArgument: it can't.
    """
    if by is not None:
        require(text_fault("by", by, most=limits.OWNER_LENGTH_MAX))


def check_messages(messages: Sequence[NewMessage]) -> None:
    """Refuse what are not new messages.

    Raises:
        InvalidArgument: they are not.
    """
    check_batch(messages)
    for message in messages:
        if not isinstance(message, NewMessage):
            raise InvalidArgument(f"enqueue_many() takes NewMessage instances, got {type(message).__name__}.")


def check_wait(wait_ms: int) -> None:
    """Raise if a request waits longer than any request may.

    Raises:
        InvalidArgument: it does.
    """
    require(whole_fault("wait_ms", wait_ms, least=0, most=limits.TIMESPAN_MS_MAX))


def check_delivery(delivery: object) -> None:
    """Refuse what is not one leased message.

    Raises:
        InvalidArgument: it is not.
    """
    if not all(hasattr(delivery, name) for name in ("id", "token", "queue")):
        cause = f"One leased message is wanted, as lease returns them, not {type(delivery).__name__}"
        raise InvalidArgument(f"{cause}; for several there are the verbs that end in _many.")


def check_filter(wanted: DeadLetterFilter) -> None:
    """Refuse what is no filter.

    Raises:
        InvalidArgument: it is none.
    """
    try:
        msgspec.convert(msgspec.to_builtins(wanted), DeadLetterFilter)
    except (msgspec.ValidationError, TypeError) as error:
        raise InvalidArgument(f"This is no filter of dead letters: {error}.") from error
    if wanted.fairness_key is not None:
        require(key_fault(wanted.fairness_key))
    if wanted.ids is not None and len(wanted.ids) > limits.BATCH_MAX:
        raise InvalidArgument(f"A filter names at most {limits.BATCH_MAX} ids, not {len(wanted.ids)}.")


def check_batch(items: Sequence[object]) -> None:
    """Refuse more items than one request may have.

    Raises:
        InvalidArgument: there are more.
    """
    if not isinstance(items, (list, tuple)):
        raise InvalidArgument(f"Several items are a list or a tuple of them, not {type(items).__name__}.")
    if len(items) > limits.BATCH_MAX:
        raise InvalidArgument(f"One request has at most {limits.BATCH_MAX} items, not {len(items)}.")


def check_taking(count: int, wait_ms: int, visibility_ms: int | None, owner: str | None) -> None:
    """Refuse what a consumer can't ask for.

    Raises:
        InvalidArgument: a value is out of range.
    """
    require(whole_fault("count", count, least=1, most=limits.BATCH_MAX))
    check_wait(wait_ms)
    if visibility_ms is not None:
        require(whole_fault("visibility_ms", visibility_ms, least=1, most=limits.TIMESPAN_MS_MAX))
    if owner is not None:
        require(text_fault("An owner", owner, most=limits.OWNER_LENGTH_MAX))


def check_keys_max(keys_max: int) -> None:
    """Refuse to show more keys than anybody reads.

    Raises:
        InvalidArgument: they are too many.
    """
    if type(keys_max) is not int or not 0 <= keys_max <= limits.KEYS_SHOWN_MAX:
        raise InvalidArgument(f"keys_max is a whole number from 0 to {limits.KEYS_SHOWN_MAX}, not {keys_max!r}.")
