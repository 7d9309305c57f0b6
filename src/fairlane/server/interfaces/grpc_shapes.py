"""Conversions between protobuf messages and the requests and answers of verbs, for every verb.

The fields that are set in a message become the fields of the request (see ``wire.protobuf``); the request's own
defaults and checks do the rest. The exceptions are here: a protobuf map holds neither None nor lists, and events of the
journal stay JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

import msgspec
from google.protobuf.message import DecodeError, Message

from fairlane.errors import InvalidArgument
from fairlane.model.answers import EnqueueAnswer
from fairlane.model.policy import QueuePolicy
from fairlane.server.dispatch import decoded
from fairlane.server.interfaces.grpc_counting import check_items
from fairlane.verbs.table import VERBS
from fairlane.verbs.verb import Request
from fairlane.wire.protobuf import said, write

Read: TypeAlias = Callable[[str, Any], Request[Any]]
Write: TypeAlias = Callable[[Any, Any], None]


def parsed(kind: type[Message], data: bytes, name: str) -> Any:  # noqa: ANN401 - its type is only known when it runs
    """Parse a protobuf message.

    Raises:
        InvalidArgument: the bytes are not such a message, or it has unknown fields or too many items.
    """
    check_items(kind, data, name)
    message = kind()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise InvalidArgument(f"Invalid {name} request: the bytes are not a {kind.DESCRIPTOR.full_name}.") from error
    message.DiscardUnknownFields()
    if message.ByteSize() != len(data):  # a field is unknown, or the client encodes known ones differently
        _refuse_unknown(kind, data, name)
    return message


def _refuse_unknown(kind: type[Message], data: bytes, name: str) -> None:
    message = kind()
    message.ParseFromString(data)
    size = message.ByteSize()
    message.DiscardUnknownFields()
    if message.ByteSize() != size:
        raise InvalidArgument(f"Invalid {name} request: it has fields that {kind.DESCRIPTOR.full_name} does not have.")


# -------------------------------------------------------------------------------------------------------------- reading


def shaped(name: str, fields: Mapping[str, Any]) -> Request[Any]:
    """Return the request of a verb with these fields.

    Raises:
        InvalidArgument: a field is invalid; the cause names it.
    """
    shape: type[Request[Any]] = VERBS[name].request
    return decoded(lambda given: msgspec.convert(given, shape), cast("Any", fields), name)


def read(name: str, message: Message) -> Request[Any]:
    """Convert a message to the request of a verb."""
    return shaped(name, said(message))


def read_policy(name: str, message: Any) -> Request[Any]:  # noqa: ANN401 - see parsed
    """Return a request with the fields of a policy; a field to reset gets its default."""
    fields = said(message)
    fields.pop("reset", None)
    changes = said(message.policy)
    default = QueuePolicy()
    for field in message.reset:
        if field not in QueuePolicy.__struct_fields__:
            raise InvalidArgument(f"Unknown policy field {field!r:.100} in `reset`.")
        changes[field] = getattr(default, field)
    return shaped(name, fields | {"policy": changes})


def read_config(name: str, message: Any) -> Request[Any]:  # noqa: ANN401 - see parsed
    """Return the values to set, with None for those to remove."""
    fields = said(message)
    fields.pop("remove", None)
    return shaped(name, fields | {"values": dict(message.values) | dict.fromkeys(message.remove)})


# -------------------------------------------------------------------------------------------------------------- writing


def write_trial(answer: Any, message: Any) -> None:  # noqa: ANN401 - as all that write
    """Write the result of a hook trial."""
    write(answer, message)
    if answer.answer is not None:
        part = message.on_enqueue if isinstance(answer.answer, EnqueueAnswer) else message.on_failure
        part.SetInParent()
        write(answer.answer, part)


def write_events(answer: Any, message: Any) -> None:  # noqa: ANN401 - as all that write
    """Write events, each as JSON."""
    message.position = answer.position
    message.journal_id, message.since = answer.journal_id, answer.since
    message.events.extend(msgspec.json.encode(event).decode() for event in answer.events)
