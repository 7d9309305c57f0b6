"""Count what a large request holds before it is decoded, where the types of the request cannot bound it.

The types bound every list and map (``fairlane.model.bounds``), and a msgpack decoder refuses one that is too long
before it creates an item. Three cases are left:

- A JSON decoder learns the length of a list when it has decoded it. Items are separated by commas, and a payload in
  base64 has none, so the commas of the body bound the items.
- A decoder takes the last value of a field that is given several times, but decodes all of them. In msgpack a map
  begins with the number of its entries, so a request, message, schedule or filter with far more entries than fields is
  refused.
- Ten thousand messages with 128 headers each are within both limits, and take a third of a second to decode. So the
  headers of all messages of a request are bounded together, by reading the lengths of their maps.

Small requests cannot exceed these limits, and pay one comparison.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, TypeAlias

import msgspec

from fairlane.broker.handlers.checks import headers_excess
from fairlane.errors import InvalidArgument, RequestTooLarge
from fairlane.model.bounds import Batch, ByQueue
from fairlane.model.limits import BATCH_HEADERS_MAX, BATCH_MAX, HEADERS_MAX, JSON_COMMAS_MAX
from fairlane.verbs.batches import Stage
from fairlane.verbs.dead_letters import Redrive
from fairlane.verbs.fan_outs import FanOut
from fairlane.verbs.leases import Forward
from fairlane.verbs.messages import Enqueue, Peek
from fairlane.verbs.schedules import EnsureSchedule, SetSchedule

JSON_FROM_BYTES: Final = JSON_COMMAS_MAX
"""A shorter request cannot have too many commas."""
MSGPACK_FROM_BYTES: Final = BATCH_MAX
"""An item takes a byte at least, so a shorter request holds no more than one list may."""
_HEADERS_FROM_BYTES: Final = 2 * BATCH_HEADERS_MAX
"""A header takes two bytes at least, so a shorter request cannot have too many."""
FIELDS_MAX: Final = 20
"""No request and no message has as many fields. It is also the most entries of a map whose head is one byte."""
_FIX_MAP, _MAP_16, _MAP_32 = 0x8, 0xDE, 0xDF
_LONG_MAPS: Final = (bytes((_MAP_16,)), bytes((_MAP_32,)))
_TOO_MANY_FIELDS: Final = re.compile(rf"Expected `object` of length <= {FIELDS_MAX} ")
_Skimmed: TypeAlias = Annotated[dict[str, msgspec.Raw], msgspec.Meta(max_length=FIELDS_MAX)]
"""A message of which only the headers are looked at; the decoder steps over everything else."""


class _SkimmedBatch(msgspec.Struct):
    messages: Batch[_Skimmed] = []


class _SkimmedForward(msgspec.Struct):
    messages: ByQueue[Batch[_Skimmed]] = {}
    then: _Skimmed = {}


class _SkimmedParts(msgspec.Struct):
    """The single parts of requests that hold lists or maps."""

    spec: _Skimmed = {}
    wanted: _Skimmed = {}


_batch, _forward = msgspec.msgpack.Decoder(_SkimmedBatch), msgspec.msgpack.Decoder(_SkimmedForward)
_parts = msgspec.msgpack.Decoder(_SkimmedParts)
_WITH_MESSAGES: Final = frozenset((Enqueue.verb.name, Stage.verb.name, Forward.verb.name, FanOut.verb.name))
_WITH_PARTS: Final = frozenset((Peek.verb.name, Redrive.verb.name, SetSchedule.verb.name, EnsureSchedule.verb.name))


def check_json(body: bytes | bytearray) -> None:
    """Refuse a JSON request of more than ``JSON_FROM_BYTES`` with more items than any request may have.

    Raises:
        RequestTooLarge: it has too many commas.
    """
    if body.count(b",") > JSON_COMMAS_MAX:
        raise RequestTooLarge(
            f"A JSON request can have at most {JSON_COMMAS_MAX} commas (JSON_COMMAS_MAX), which bound its items."
        )


def check_msgpack(name: str, body: bytes | bytearray | msgspec.Raw) -> None:
    """Refuse a msgpack request of more than ``MSGPACK_FROM_BYTES`` that holds more than its types bound.

    Raises:
        InvalidArgument: it or one of its parts has too many fields, or its messages have too many headers together.
    """
    fields = _entries(body)
    if fields > FIELDS_MAX:
        raise InvalidArgument(f"Invalid {name} request: it has {fields} fields; no request has more than {FIELDS_MAX}.")
    if name in _WITH_MESSAGES and len(body) > _HEADERS_FROM_BYTES:
        data = bytes(body) if isinstance(body, msgspec.Raw) else body  # a copy of a long body would double it
        # Without a long map, a message has few fields, and only the number of its headers is left to bound.
        if any(head in data for head in _LONG_MAPS) or data.count(b"headers") * FIELDS_MAX > BATCH_HEADERS_MAX:
            _check_messages(name, data)
    elif name in _WITH_PARTS:
        _check_parts(name, bytes(body))


def _check_parts(name: str, data: bytes) -> None:
    try:
        parts = _parts.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        if _TOO_MANY_FIELDS.match(str(error)):
            raise _too_many_fields(name, "a schedule or filter") from error
        return  # as below
    message = parts.spec.get("message")
    if message is not None and _entries(message) > FIELDS_MAX:
        raise _too_many_fields(name, "a message")


def _too_many_fields(name: str, part: str) -> InvalidArgument:
    return InvalidArgument(f"Invalid {name} request: {part} has more than {FIELDS_MAX} fields.")


def _check_messages(name: str, data: bytes | bytearray) -> None:
    try:
        if name in (Forward.verb.name, FanOut.verb.name):
            forward = _forward.decode(data)
            batches = [*forward.messages.values(), [forward.then]]
        else:
            batches = [_batch.decode(data).messages]
    except (msgspec.DecodeError, RecursionError) as error:
        if _TOO_MANY_FIELDS.match(str(error)):
            raise _too_many_fields(name, "a message") from error
        return  # the request is malformed, and its decoder says how
    found = [message["headers"] for batch in batches for message in batch if "headers" in message]
    # A single map that is too long is left to the decoder, whose error names the message.
    fault = headers_excess(sum([min(_entries(headers), HEADERS_MAX) for headers in found]))
    if fault is not None:
        raise InvalidArgument(fault)


def _entries(encoded: bytes | bytearray | msgspec.Raw) -> int:
    """Return how many entries a map has; 0 if it is no map."""
    data = memoryview(encoded)
    head = data[0]
    if head >> 4 == _FIX_MAP:
        return head & 0x0F
    return int.from_bytes(data[1:3]) if head == _MAP_16 else int.from_bytes(data[1:5]) if head == _MAP_32 else 0
