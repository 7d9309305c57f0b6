"""Convert between requests and answers and protobuf messages, field by field.

A message has the same field names as its struct, so the conversion is generic. The differences are here: a fairness key
is a list of names, and protobuf does not distinguish an empty list or map from a missing one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from fairlane.model.message import key_of

if TYPE_CHECKING:
    import msgspec
    from google._upb._message import FieldDescriptor as FastField
    from google.protobuf.descriptor import FieldDescriptor
    from google.protobuf.message import Message

_KEYS: Final = frozenset(("fairness_key", "fairness_key_from", "key"))
_KEY: Final = "fairlane.v1.Key"
_GRANT: Final = "fairlane.v1.Grant"

# -------------------------------------------------------------------------------------------------------------- reading


def said(message: Message) -> dict[str, Any]:
    """Return the fields that are set in a message, by name."""
    return {field.name: _value(field, value) for field, value in message.ListFields()}


def _value(field: FieldDescriptor, value: Any) -> Any:  # noqa: ANN401 - depends on the field
    kind = field.message_type
    if kind is None:
        if not field.is_repeated:
            return value
        return key_of(value) if field.name in _KEYS else tuple(value)
    if kind.GetOptions().map_entry:
        return dict(value)
    return [said(each) for each in value] if field.is_repeated else said(value)


def told(message: Message) -> dict[str, Any]:
    """Return all fields of an answer by name: None for those that are not set, and empty ones as they are."""
    return {field.name: _told_field(field, message) for field in message.DESCRIPTOR.fields}


def _told_field(field: FieldDescriptor | FastField, message: Message) -> Any:  # noqa: ANN401 - depends on the field
    kind, value = field.message_type, getattr(message, field.name)
    if field.is_repeated:
        if kind is None:
            return (key_of(value) if value else None) if field.name in _KEYS else tuple(value)
        if kind.GetOptions().map_entry:
            return {name: _told_message(each) for name, each in value.items()} if _is_of_messages(kind) else dict(value)
        return [_told_message(each) for each in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return value if kind is None else _told_message(value)


def _told_message(message: Message) -> Any:  # noqa: ANN401 - depends on the message
    name = message.DESCRIPTOR.full_name
    if name == _KEY:
        return key_of(getattr(message, "names"))  # noqa: B009 - types know nothing of it
    fields = told(message)
    if name == _GRANT:
        fields["keys"] = fields["keys"] or None  # without patterns any fairness key matches
    return fields


# -------------------------------------------------------------------------------------------------------------- writing


def write(shape: msgspec.Struct, message: Message) -> None:
    """Set the fields of a message from a struct."""
    for field in message.DESCRIPTOR.fields:
        value = getattr(shape, field.name, None)
        if value is not None:
            write_field(field, value, message)


def write_field(field: FieldDescriptor | FastField, value: Any, message: Message) -> None:  # noqa: ANN401 - see _value
    """Set one field of a message."""
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        _write_map(kind, value, getattr(message, field.name))
    elif not field.is_repeated:
        if kind is None:
            setattr(message, field.name, value)
        else:
            part = getattr(message, field.name)
            part.SetInParent()
            write(value, part)
    elif kind is None:
        getattr(message, field.name).extend(names_of(value))
    else:
        for each in value:
            part = getattr(message, field.name).add()
            if kind.full_name == _KEY:
                part.names.extend(names_of(each))
            else:
                write(each, part)


def _write_map(kind: Any, value: Mapping[str, Any], target: Any) -> None:  # noqa: ANN401 - see _value
    if not _is_of_messages(kind):
        target.update(value)
        return
    for name, each in value.items():
        write(each, target[name])  # to look one up is to make it


def _is_of_messages(kind: Any) -> bool:  # noqa: ANN401 - as FastField, whose types know nothing of it
    """Return whether a map holds messages instead of numbers or texts."""
    return kind.fields_by_name["value"].message_type is not None


def names_of(value: str | Iterable[str]) -> Iterable[str]:
    """Return the names of a fairness key."""
    return (value,) if isinstance(value, str) else value
