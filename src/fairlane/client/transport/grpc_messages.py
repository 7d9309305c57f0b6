"""Requests and answers of verbs as protobuf messages, including those whose fields differ from the verb's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from fairlane.errors import InvalidArgument
from fairlane.model.message import NewMessage
from fairlane.model.policy import QueuePolicy
from fairlane.verbs.config import SetConfig
from fairlane.verbs.fan_outs import FanOut
from fairlane.verbs.leases import Forward
from fairlane.verbs.messages import Enqueue
from fairlane.verbs.queues import CreateQueue, EnsureQueue, UpdateQueue
from fairlane.verbs.table import VERBS
from fairlane.verbs.verb import Shape
from fairlane.wire.protobuf import told, write, write_field

if TYPE_CHECKING:
    from google.protobuf.message import Message

M = TypeVar("M", bound="Message")
_DEFAULT = QueuePolicy()


def message_of(verb: str, request: Shape, message: M) -> M:
    """Write a request into the protobuf message of its method, and return the message.

    Raises:
        InvalidArgument: a value has a type or a name that the message does not have.
    """
    try:
        _write(request, message)
    except (TypeError, ValueError, AttributeError) as error:
        raise InvalidArgument(f"Invalid {verb} request: {error}.") from error
    return message


def _write(request: Shape, message: Any) -> None:  # noqa: ANN401 - message classes are created at run time
    if isinstance(request, Forward):
        message.queue = request.queue
        write(request.receipt, message.receipt)
        _write_by_queue(request.messages, message)
    elif isinstance(request, FanOut):
        message.queue, message.name, message.on_failure = request.queue, request.name, request.on_failure
        write(request.then, message.then)
        _write_by_queue(request.messages, message)
    elif isinstance(request, Enqueue):
        write(msgspec.structs.replace(request, numbers=()), message)
        for first, count in request.number_runs():
            message.numbers.add(first=first, count=count)
    elif isinstance(request, (CreateQueue, EnsureQueue, UpdateQueue)):
        message.queue = request.queue
        if not isinstance(request, UpdateQueue) and request.group is not None:
            message.group = request.group
        _write_changes(request.policy, message)
    elif isinstance(request, SetConfig):
        kept = {key: value for key, value in request.values.items() if value is not None}
        write(msgspec.structs.replace(request, values=kept), message)
        message.remove.extend([key for key, value in request.values.items() if value is None])
    else:
        write(request, message)


def _write_by_queue(messages: Mapping[str, Sequence[NewMessage]], message: Any) -> None:  # noqa: ANN401 - message classes are created at run time
    for queue, news in messages.items():
        group = message.messages[queue]
        group.SetInParent()
        for new in news:
            write(new, group.messages.add())


def _write_changes(changes: Mapping[str, Any], message: Any) -> None:  # noqa: ANN401 - message classes are created at run time
    """Write the given fields. Those that are given their default are listed by name, since protobuf has no unset."""
    fields = message.policy.DESCRIPTOR.fields_by_name
    for name, value in changes.items():
        if name not in fields:
            raise ValueError(f"unknown policy field {name!r:.100}")
        if value == getattr(_DEFAULT, name) and type(value) is type(getattr(_DEFAULT, name)):
            message.reset.append(name)
        else:
            write_field(fields[name], value, message.policy)


def answer_of(verb: str, message: Message) -> Any:  # noqa: ANN401 - depends on the verb
    """Return the answer that a protobuf message contains."""
    fields = told(message)
    if verb == "try_hook":
        fields["answer"] = _tagged("on_enqueue", fields) or _tagged("on_failure", fields)
    elif verb == "read_journal":
        fields["events"] = [msgspec.json.decode(event) for event in fields["events"]]
    elif verb == "get":
        fields = _without_body(fields)
    elif verb == "peek":
        fields["messages"] = [_without_body(view) for view in fields["messages"]]
    shape = VERBS[verb].answer
    known = {name: value for name, value in fields.items() if name in shape.__struct_fields__}
    return msgspec.convert(known, shape)


def _tagged(hook: str, fields: Mapping[str, Any]) -> dict[str, Any] | None:
    answer = fields[hook]
    return None if answer is None else {"type": hook} | answer


def _without_body(view: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a message view. Without a body its headers are unknown (None), not empty."""
    return view if view["payload"] is not None else view | {"headers": None}
