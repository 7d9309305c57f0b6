"""Checks of requests before they are submitted. Those of hot verbs test the usual case first, in one expression."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import msgspec

from fairlane.core.checks import key_fault, text_fault, whole_fault
from fairlane.errors import InvalidArgument
from fairlane.model import limits
from fairlane.model.bounds import excess, excess_of
from fairlane.model.message import NewMessage
from fairlane.model.views import DeadLetterFilter
from fairlane.verbs.columns import MessageColumns, ReceiptColumns
from fairlane.verbs.messages import Enqueue

_MAY_EXCEED_HEADERS: Final = limits.BATCH_HEADERS_MAX // limits.HEADERS_MAX
"""A request with no more messages than this cannot have too many headers in all."""


def require(fault: str | None) -> None:
    """Raise InvalidArgument if there is a fault."""
    if fault is not None:
        raise InvalidArgument(fault)


def check_author(by: str) -> None:
    """Raise InvalidArgument if the name of a caller is not valid."""
    require(text_fault("by", by, most=limits.OWNER_LENGTH_MAX))


def check_wait(wait_ms: int) -> None:
    """Raise InvalidArgument if a wait is no whole number of at least 0. A wait beyond a year is a year."""
    if type(wait_ms) is not int or wait_ms < 0:
        require(whole_fault("wait_ms", wait_ms, least=0, most=limits.TIMESPAN_MS_MAX))


def check_messages(messages: Sequence[NewMessage]) -> None:
    """Raise InvalidArgument if these are not new messages, or too many."""
    if type(messages) is MessageColumns:
        return  # a decoder has bounded them
    if not isinstance(messages, list) or len(messages) > limits.BATCH_MAX:
        check_batch("messages", messages)
    for message in messages:
        if not isinstance(message, NewMessage):
            raise InvalidArgument(f"Expected NewMessage instances, got {type(message).__name__}.")
    if len(messages) > _MAY_EXCEED_HEADERS:
        require(headers_excess(sum([len(message.headers) for message in messages])))


def check_numbers(request: Enqueue) -> None:
    """Raise InvalidArgument if the messages of a request are not numbered as a producer numbers them."""
    require(text_fault("producer", request.producer, most=limits.PRODUCER_LENGTH_MAX))
    numbers = request.numbers
    if not isinstance(numbers, tuple | list):
        raise InvalidArgument(f"Expected a list or tuple of numbers, got {type(numbers).__name__}.")
    request.numbers_of(())  # there are as many as there should be
    for number in numbers:
        if type(number) is not int or not 0 <= number <= limits.PRODUCER_NUMBER_MAX:
            require(whole_fault("The number of a message", number, least=0, most=limits.PRODUCER_NUMBER_MAX))
    for before, after in pairwise(numbers):
        if before >= after:
            raise InvalidArgument(f"The numbers of messages must ascend, and {after} comes after {before}.")
    if numbers and numbers[-1] - numbers[0] >= limits.BATCH_MAX:
        raise InvalidArgument(
            f"The numbers of messages go from {numbers[0]} to {numbers[-1]}; "
            f"those of one request are less than BATCH_MAX ({limits.BATCH_MAX}) apart."
        )


def headers_excess(count: int) -> str | None:
    """Return what is wrong with a request whose messages have this many headers together, or None if nothing is."""
    return None if count <= limits.BATCH_HEADERS_MAX else excess("headers of all messages", "BATCH_HEADERS_MAX")


def check_batch(name: str, items: Sequence[object]) -> None:
    """Raise InvalidArgument if a request has too many items."""
    if not isinstance(items, (list, tuple, ReceiptColumns)):
        raise InvalidArgument(f"Expected a list or tuple, got {type(items).__name__}.")
    if len(items) > limits.BATCH_MAX:
        raise InvalidArgument(excess(name, "BATCH_MAX"))


def check_filter(wanted: DeadLetterFilter) -> None:
    """Raise InvalidArgument if a filter of dead letters is not valid."""
    try:
        msgspec.convert(msgspec.to_builtins(wanted), DeadLetterFilter)
    except (msgspec.ValidationError, TypeError) as error:
        raise InvalidArgument(f"Invalid filter of dead letters: {error}.") from error
    if wanted.fairness_key is not None:
        require(key_fault(wanted.fairness_key))
    if wanted.ids is not None:
        require(excess_of("wanted.ids", wanted.ids, "BATCH_MAX"))


def check_taking(count: int, wait_ms: int, visibility_ms: int | None, owner: str | None) -> None:
    """Raise InvalidArgument if a consumer asks for something out of range."""
    if type(count) is not int or not 1 <= count <= limits.BATCH_MAX:
        require(whole_fault("count", count, least=1, most=limits.BATCH_MAX))
    check_wait(wait_ms)
    if visibility_ms is not None:
        require(whole_fault("visibility_ms", visibility_ms, least=1, most=limits.TIMESPAN_MS_MAX))
    if owner is not None:
        require(text_fault("An owner", owner, most=limits.OWNER_LENGTH_MAX))


def check_handlers(handlers: int | None, *, least: int = 1) -> None:
    """Raise InvalidArgument if a number of handlers is out of range."""
    if handlers is not None:
        require(whole_fault("handlers", handlers, least=least, most=limits.BATCH_MAX))


def check_keys_max(keys_max: int) -> None:
    """Raise InvalidArgument if more fairness keys are asked for than an answer may have."""
    if type(keys_max) is not int or not 0 <= keys_max <= limits.KEYS_SHOWN_MAX:
        raise InvalidArgument(f"keys_max must be a whole number from 0 to {limits.KEYS_SHOWN_MAX}, not {keys_max!r}.")
