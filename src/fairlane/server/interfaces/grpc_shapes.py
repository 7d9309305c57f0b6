"""From the messages of protobuf to the requests of verbs, and from their answers back, for every verb.

What is set in a message is what is said of the shape (see ``wire.protobuf``), and the shape's own defaults and checks
do the rest. What differs is told here: a map can't hold None or lists, and what is JSON to everybody stays JSON.
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
from fairlane.verbs.table import VERBS
from fairlane.verbs.verb import Request
from fairlane.wire.protobuf import said, write

Read: TypeAlias = Callable[[str, Any], Request[Any]]
Write: TypeAlias = Callable[[Any, Any], None]


def parsed(kind: type[Message], data: bytes, name: str) -> Any:  # noqa: ANN401 - its type is only known when it runs
    """Return the message that bytes hold.

    Raises:
        InvalidArgument: they hold none, or one with fields that nobody knows.
    """
    message = kind()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise InvalidArgument(f"The request of {name} is no {kind.DESCRIPTOR.full_name}.") from error
    message.DiscardUnknownFields()
    if message.ByteSize() != len(data):  # something was unknown, or it was only written in another way
        _refuse_unknown(kind, data, name)
    return message


def _refuse_unknown(kind: type[Message], data: bytes, name: str) -> None:
    message = kind()
    message.ParseFromString(data)
    size = message.ByteSize()
    message.DiscardUnknownFields()
    if message.ByteSize() != size:
        raise InvalidArgument(f"The request of {name} has fields that {kind.DESCRIPTOR.full_name} has not.")


# -------------------------------------------------------------------------------------------------------------- reading


def shaped(name: str, fields: Mapping[str, Any]) -> Request[Any]:
    """Return the request of a verb that has these fields.

    Raises:
        InvalidArgument: there is no such request; the cause names the field.
    """
    shape: type[Request[Any]] = VERBS[name].request
    return decoded(lambda given: msgspec.convert(given, shape), cast("Any", fields), name)


def read(name: str, message: Message) -> Request[Any]:
    """Return the request of a verb that a message holds."""
    return shaped(name, said(message))


def read_update(name: str, message: Any) -> Request[Any]:  # noqa: ANN401 - see parsed
    """Return the changes to a policy; what is to be reset has its default."""
    changes = said(message.policy)
    default = QueuePolicy()
    for field in message.reset:
        if field not in QueuePolicy.__struct_fields__:
            raise InvalidArgument(f"A policy has no field {field!r:.100}.")
        changes[field] = getattr(default, field)
    return shaped(name, {"queue": message.queue, "policy": changes})


def read_config(name: str, message: Any) -> Request[Any]:  # noqa: ANN401 - see parsed
    """Return the values to set, and None for those to remove."""
    return shaped(name, {"values": dict(message.values) | dict.fromkeys(message.remove)})


# -------------------------------------------------------------------------------------------------------------- writing


def write_trial(answer: Any, message: Any) -> None:  # noqa: ANN401 - as all that write
    """Set what came of trying a script."""
    write(answer, message)
    if answer.answer is not None:
        part = message.on_enqueue if isinstance(answer.answer, EnqueueAnswer) else message.on_failure
        part.SetInParent()
        write(answer.answer, part)


def write_events(answer: Any, message: Any) -> None:  # noqa: ANN401 - as all that write
    """Set events, each as JSON."""
    message.position = answer.position
    message.events.extend(msgspec.json.encode(event).decode() for event in answer.events)
