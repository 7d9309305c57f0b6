"""Count the items of a large protobuf message before it is parsed.

An empty message takes two bytes on the wire and a hundred times as much once it is parsed, and the parser has no limit
on repeated fields. So this walks the tags of the bytes first, into those messages that contain lists or maps. Small
requests are not walked: what they can hold costs little, and their requests are checked after parsing anyway.

The walk itself takes a hundred times as long as the parser for each tag. So it also ends at a field that is given again
and again, or at more messages than one request may have in all its queues.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from fairlane.broker.handlers.checks import headers_excess
from fairlane.errors import InvalidArgument
from fairlane.model import limits
from fairlane.model.bounds import excess

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message

WALKED_FROM_BYTES: Final = 64 * 1024
_LIMITS: Final = {
    "fairlane.v1.NewMessage.headers": "HEADERS_MAX",
    "fairlane.v1.NewMessage.fairness_key": "KEY_DEPTH_MAX",
    "fairlane.v1.NewMessage.throttles": "THROTTLES_MAX",
    "fairlane.v1.ForwardRequest.messages": "FORWARD_QUEUES_MAX",
    "fairlane.v1.FanOutRequest.messages": "FORWARD_QUEUES_MAX",
    "fairlane.v1.CreateKeyRequest.grants": "GRANTS_MAX",
    "fairlane.v1.Grant.keys": "GRANT_PATTERNS_MAX",
    "fairlane.v1.Grant.throttles": "GRANT_PATTERNS_MAX",
    "fairlane.v1.Grant.sinks": "GRANT_PATTERNS_MAX",
}
"""The limits of repeated fields and maps; all others have ``BATCH_MAX``."""
_HEADERS: Final = "fairlane.v1.NewMessage.headers"
_MESSAGE: Final = "fairlane.v1.NewMessage"
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5
_MORE: Final = 0x80
"""The bit of a byte of a number that says that another byte follows."""

_SPARE: Final = 8
"""How many fields a message may have that are unknown or given twice; the parser then refuses unknown ones by name."""

_SHIFT_MAX: Final = 63
"""A number has at most ten bytes of seven bits each."""


class _Field(NamedTuple):
    """A field that is counted: its limit, and the fields of its messages that are counted in turn."""

    name: str
    limit: str | None
    most: int
    below: _Fields
    is_headers: bool
    is_message: bool


class _Fields(NamedTuple):
    """The fields of a message: those that are counted one by one, by their tags, and how many all others may be."""

    kind: str
    counted: Mapping[int, _Field]
    others_max: int


_NONE: Final = _Fields("", {}, 0)


@cache
def _fields_of(kind: Descriptor) -> _Fields:
    """Return the fields of a message."""
    fields: dict[int, _Field] = {}
    for field in kind.fields:
        inner = field.message_type
        below = _NONE if inner is None else _fields_of(inner)
        limit = _LIMITS.get(field.full_name, "BATCH_MAX") if field.is_repeated else None
        if limit is None and not below.counted:
            continue
        most = 1 if limit is None else getattr(limits, limit)
        tag = field.number << 3 | _LENGTH
        is_message = inner is not None and inner.full_name == _MESSAGE
        fields[tag] = _Field(field.name, limit, most, below, field.full_name == _HEADERS, is_message)
    return _Fields(kind.full_name, fields, len(kind.fields) - len(fields) + _SPARE)


def check_items(kind: type[Message], data: bytes, name: str) -> None:
    """Refuse a message with a list or map that is too long, before it is parsed.

    Raises:
        InvalidArgument: the message has one, or is malformed.
    """
    fields = _fields_of(kind.DESCRIPTOR)
    if len(data) <= WALKED_FROM_BYTES or not fields.counted:
        return
    walk = _Walk(data, name)
    try:
        fault = walk.fault(0, len(data), fields)
    except InvalidArgument:
        raise
    except (IndexError, ValueError):
        fault = f"Invalid {name} request: the bytes are not a {kind.DESCRIPTOR.full_name}."
    if fault is not None:
        raise InvalidArgument(fault)


class _Walk:
    """One walk over the tags of a message.

    Attributes:
        headers: how many headers all messages have together.
        messages: how many messages all queues are given together.
    """

    def __init__(self, data: bytes, name: str) -> None:
        self._data = data
        self._name = name
        self.headers = self.messages = 0

    def fault(self, at: int, end: int, fields: _Fields) -> str | None:
        """Return what is wrong with the message between two positions, or None if nothing is.

        Raises:
            InvalidArgument: too much of something is spread over the request.
            IndexError, ValueError: it is malformed.
        """
        data, counted, others_left = self._data, fields.counted, fields.others_max
        counts = dict.fromkeys(counted, 0)
        while at < end:
            tag, at = data[at], at + 1
            if tag >= _MORE:
                tag, at = self._number(at - 1)
            if tag not in counts:
                others_left -= 1
                if others_left < 0:
                    raise self._repeats(fields.kind)
            if tag & 7 != _LENGTH:
                at = self._after_number(tag & 7, at)
                continue
            size, at = data[at], at + 1
            if size >= _MORE:
                size, at = self._number(at - 1)
            if tag in counts:
                counts[tag] += 1
                found = self._fault_in(counted[tag], counts[tag], at, at + size)
                if found is not None:
                    return found
            at += size
        if at != end:
            raise ValueError("a field is longer than its message")
        return None

    def _repeats(self, kind: str) -> InvalidArgument:
        return InvalidArgument(
            f"Invalid {self._name} request: it has a {kind} that gives a field again and again. Send each field once."
        )

    def _fault_in(self, field: _Field, count: int, at: int, end: int) -> str | None:
        """Return what is wrong with one more value of a field."""
        if count > field.most:
            return f"{field.name} is given twice." if field.limit is None else excess(field.name, field.limit)
        self.headers += field.is_headers
        self.messages += field.is_message
        if self.messages > limits.BATCH_MAX + 1:  # the continuation of a fan-out is one more
            raise InvalidArgument(excess("messages", "BATCH_MAX"))
        if (many := headers_excess(self.headers)) is not None:
            raise InvalidArgument(many)
        if not field.below.counted:
            return None
        found = self.fault(at, end, field.below)
        place = f"{field.name}[{count - 1}]" if field.limit is not None else field.name
        return None if found is None else f"{place}.{found}"

    def _after_number(self, kind: int, at: int) -> int:
        """Return the position after a number of a kind that begins at a position."""
        if kind == _VARINT:
            return self._number(at)[1]
        if kind in (_FOUR_BYTES, _EIGHT_BYTES):
            return at + (4 if kind == _FOUR_BYTES else 8)
        raise ValueError("proto3 has no groups")

    def _number(self, at: int) -> tuple[int, int]:
        """Return the number that begins at a position, and the position after it."""
        value = shift = 0
        while True:
            byte, at = self._data[at], at + 1
            value |= (byte & 0x7F) << shift
            if byte < _MORE:
                return value, at
            shift += 7
            if shift > _SHIFT_MAX:
                raise ValueError("a number is too long")
