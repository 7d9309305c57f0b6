"""Conversions between what programs pass and what requests and answers hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from fairlane.errors import (
    DeadlinePassed,
    Dropped,
    FairlaneError,
    InvalidArgument,
    MessageCancelled,
    MessageDead,
    WaitTimedOut,
)
from fairlane.model.message import Became, MessageTerms, NewMessage, Receipt
from fairlane.model.payloads import NO_VALUE, NoValue, json_payload
from fairlane.model.policy import QueuePolicy, policy_from
from fairlane.model.status import ResultView
from fairlane.verbs.columns import EnqueuedIds
from fairlane.verbs.config import BY_MESSAGE
from fairlane.verbs.errors import error_of
from fairlane.verbs.messages import EnqueueResult, Result

T = TypeVar("T")


class LeasedMessage(Protocol):
    """A leased message: a ``Delivery``, a ``Receipt`` or a message of a client."""

    @property
    def id(self) -> str:
        """The message."""

    @property
    def token(self) -> int:
        """The fencing token of the lease."""


class Held(LeasedMessage, Protocol):
    """A leased message that also knows its queue: a ``Delivery`` or a message of a client."""

    @property
    def queue(self) -> str:
        """The queue it was leased from."""


def receipt_of(leased: LeasedMessage, cost: int | None = None, result: bytes | None = None) -> Receipt:
    """Return the receipt of a leased message."""
    return Receipt(leased.id, leased.token, cost, result)


def receipts_of(
    leased: Sequence[LeasedMessage],
    costs: Sequence[int | None] | None = None,
    results: Sequence[bytes | None] | None = None,
) -> list[Receipt]:
    """Return the receipt of each leased message, with its actual cost and its result if these are given.

    Raises:
        InvalidArgument: these are not leased messages, or there are more or fewer costs or results than messages.
    """
    if not isinstance(leased, (list, tuple)):
        raise InvalidArgument(f"Expected a list or tuple of leased messages, got {type(leased).__name__}.")
    try:
        if costs is None and results is None:
            return [Receipt(each.id, each.token) for each in leased]
        costs, results = _one_each("costs", costs, len(leased)), _one_each("results", results, len(leased))
        rows = zip(leased, costs, results, strict=True)
        return [Receipt(each.id, each.token, cost, result) for each, cost, result in rows]
    except AttributeError as error:
        raise InvalidArgument(f"Expected leased messages or receipts: {error}.") from error


def _one_each(name: str, values: Sequence[Any] | None, count: int) -> Sequence[Any]:
    if values is None:
        return [None] * count
    if len(values) != count:
        raise InvalidArgument(f"Got {len(values)} {name} for {count} messages; pass one for each.")
    return values


def held(message: Held, cost: int | None = None, result: bytes | None = None) -> tuple[str, Receipt]:
    """Return the queue and the receipt of a leased message.

    Raises:
        InvalidArgument: it is not a leased message.
    """
    try:
        return message.queue, Receipt(message.id, message.token, cost, result)
    except AttributeError as error:
        cause = f"Expected one leased message as lease() returns it, got {type(message).__name__}"
        raise InvalidArgument(f"{cause}; for several messages use the method that ends in _many.") from error


def ids_of(results: Sequence[EnqueueResult]) -> list[str | FairlaneError]:
    """Return the id or the error of each message."""
    if isinstance(results, EnqueuedIds):
        return [*results.ids()]
    return [result.id if result.id is not None else _error(result) for result in results]


def enqueued_of(results: Sequence[EnqueueResult]) -> list[EnqueueResult | FairlaneError]:
    """Return the result or the error of each message."""
    return [result if result.id is not None else _error(result) for result in results]


def are_all_enqueued(results: Sequence[EnqueueResult]) -> bool:
    """Return whether no message was refused."""
    return isinstance(results, EnqueuedIds) or all(result.id for result in results)


def errors_of(results: Sequence[Result] | Sequence[EnqueueResult]) -> list[FairlaneError | None]:
    """Return None or the error of each item."""
    return [None if result.error is None else error_of(result.error) for result in results]


def ends_of(results: Sequence[Result]) -> list[int | FairlaneError]:
    """Return the end of each lease, or an error."""
    return [result.expires_ms if result.expires_ms is not None else _error(result) for result in results]


def fates_of(results: Sequence[Result]) -> list[Became | FairlaneError]:
    """Return what became of each returned message, or an error."""
    return [result.became if result.became is not None else _error(result) for result in results]


def _error(result: EnqueueResult | Result) -> FairlaneError:
    if result.error is None:
        return InvalidArgument("The server answered with neither a result nor an error.")
    return error_of(result.error)


def result_in(view: ResultView) -> bytes | None:
    """Return the result of a message that is done.

    Raises:
        FairlaneError: it is not done, and why.
    """
    if view.status == "done":
        return view.result
    why = f": {view.reason}." if view.reason else "."
    if view.status == "dead":
        last = f" Last error: {view.errors[-1].error}" if view.errors else ""
        raise MessageDead(f"Message {view.id} is dead{why}{last}")
    if view.status in ("cancelled", "purged"):
        raise MessageCancelled(f"Message {view.id} was {view.status}{why}")
    if view.status == "expired":
        raise DeadlinePassed(f"The deadline of message {view.id} has passed.")
    if view.status == "dropped":
        raise Dropped(f"Message {view.id} was dropped.")
    raise WaitTimedOut(f"Message {view.id} is still {view.status}.")


def only(results: Sequence[T | FairlaneError]) -> T:
    """Return the only result, or raise the only error."""
    result = results[0]
    if isinstance(result, FairlaneError):
        raise result
    return result


def message_of(message: NewMessage | bytes | NoValue, json: object, terms: MessageTerms) -> NewMessage:
    """Return a message, or make one from a payload, or a value for JSON, and terms.

    Raises:
        InvalidArgument: terms were given for a complete message, a term is unknown, or not exactly one of a message, a
            payload and a value was given.
    """
    if (message is NO_VALUE) == (json is NO_VALUE):
        raise InvalidArgument("Pass a NewMessage, a payload, or json=VALUE: exactly one of them.")
    if isinstance(message, NewMessage):
        if terms:
            raise InvalidArgument("Pass a NewMessage, or a payload with terms, not both.")
        return message
    payload = json_payload(json) if isinstance(message, NoValue) else message
    try:
        return NewMessage(payload=payload, **terms)
    except TypeError as error:
        raise InvalidArgument(f"Invalid term: {error}.") from error


def messages_of(messages: Sequence[NewMessage]) -> list[NewMessage]:
    """Return new messages as a list.

    Raises:
        InvalidArgument: these are not new messages.
    """
    if not isinstance(messages, (list, tuple)):
        raise InvalidArgument(f"Expected a list or tuple, got {type(messages).__name__}.")
    if not all(isinstance(message, NewMessage) for message in messages):
        raise InvalidArgument("enqueue_many() takes NewMessage instances.")
    return messages if isinstance(messages, list) else list(messages)


def given_fields(policy: QueuePolicy | Mapping[str, object] | None) -> dict[str, Any]:
    """Return the fields of a new policy that are given: those of a mapping, or those of a policy without its defaults.

    Raises:
        InvalidArgument: a field is not valid.
    """
    fields = fields_of(policy)
    try:
        complete = policy_from(fields)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(str(error)) from error
    if not isinstance(policy, QueuePolicy):
        return fields
    default = QueuePolicy()
    return {name: value for name, value in fields.items() if getattr(complete, name) != getattr(default, name)}


def fields_of(policy: QueuePolicy | Mapping[str, object] | None) -> dict[str, Any]:
    """Return the fields of a policy by name.

    Raises:
        InvalidArgument: it is not a policy.
    """
    if isinstance(policy, QueuePolicy):
        return msgspec.structs.asdict(policy)
    if policy is not None and not isinstance(policy, Mapping):
        raise InvalidArgument(f"Expected a QueuePolicy or a mapping of its fields, got {type(policy).__name__}.")
    return dict(policy or {})


def throttle_values(name: str, rate: float | None, burst: float | None, charge: str) -> dict[str, str | None]:
    """Return the config values that set a throttle, or without a rate remove it.

    Raises:
        InvalidArgument: the name is not a text.
    """
    if not isinstance(name, str):
        raise InvalidArgument(f"The name of a throttle must be a string, not {type(name).__name__}.")
    return {
        f"throttle:{name}:burst": None if burst is None or rate is None else repr(burst),
        f"throttle:{name}:charge": None if charge == BY_MESSAGE or rate is None else charge,
        f"throttle:{name}:rate": None if rate is None else repr(rate),
    }
