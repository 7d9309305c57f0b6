"""Count what a large request holds before it is decoded, where the types of the request cannot bound it.

The types bound every list and map (``fairlane.model.bounds``), and a msgpack decoder refuses one that is too long
before it creates an item. Two cases are left:

- A JSON decoder learns the length of a list when it has decoded it. Items are separated by commas, and a payload in
  base64 has none, so the commas of the body bound the items.
- Ten thousand messages with 128 headers each are within both limits, and take a third of a second to decode. So the
  headers of all messages of a request are bounded together, by reading the lengths of their maps.

Small requests cannot exceed either limit, and pay one comparison.
"""

from __future__ import annotations

from typing import Final

import msgspec

from fairlane.broker.handlers.checks import headers_excess
from fairlane.errors import InvalidArgument, RequestTooLarge
from fairlane.model.bounds import Batch, ByQueue
from fairlane.model.limits import BATCH_HEADERS_MAX, HEADERS_MAX, JSON_COMMAS_MAX
from fairlane.verbs.batches import Stage
from fairlane.verbs.leases import Forward
from fairlane.verbs.messages import Enqueue

JSON_FROM_BYTES: Final = JSON_COMMAS_MAX
"""A shorter request cannot have too many commas."""
HEADERS_FROM_BYTES: Final = 2 * BATCH_HEADERS_MAX
"""A header takes two bytes at least, so a shorter request cannot have too many."""
_FIX_MAP, _MAP_16, _MAP_32 = 0x8, 0xDE, 0xDF


class _Skimmed(msgspec.Struct, gc=False):
    """A message of which only the headers are looked at; the decoder steps over everything else."""

    headers: msgspec.Raw = msgspec.Raw(b"\x80")


class _SkimmedBatch(msgspec.Struct):
    messages: Batch[_Skimmed] = []


class _SkimmedForward(msgspec.Struct):
    messages: ByQueue[Batch[_Skimmed]] = {}


_batch, _forward = msgspec.msgpack.Decoder(_SkimmedBatch), msgspec.msgpack.Decoder(_SkimmedForward)
_WITH_MESSAGES: Final = frozenset((Enqueue.verb.name, Stage.verb.name, Forward.verb.name))


def check_json(body: bytes) -> None:
    """Refuse a JSON request of more than ``JSON_FROM_BYTES`` with more items than any request may have.

    Raises:
        RequestTooLarge: it has too many commas.
    """
    if body.count(b",") > JSON_COMMAS_MAX:
        raise RequestTooLarge(
            f"A JSON request has at most {JSON_COMMAS_MAX} commas (JSON_COMMAS_MAX), which bound its items."
        )


def check_msgpack(name: str, body: bytes | msgspec.Raw) -> None:
    """Refuse a msgpack request of more than ``HEADERS_FROM_BYTES`` whose messages have too many headers together.

    Raises:
        InvalidArgument: they have.
    """
    if name not in _WITH_MESSAGES:
        return
    data = bytes(body)
    if data.count(b"headers") * HEADERS_MAX <= BATCH_HEADERS_MAX:  # the name of the field, as often as there are maps
        return
    try:
        if name == Forward.verb.name:
            batches = list(_forward.decode(data).messages.values())
        else:
            batches = [_batch.decode(data).messages]
    except (msgspec.DecodeError, RecursionError):
        return  # the request is malformed, and its decoder says how
    fault = headers_excess(sum([_entries(message.headers) for batch in batches for message in batch]))
    if fault is not None:
        raise InvalidArgument(fault)


def _entries(raw: msgspec.Raw) -> int:
    """Return how many entries a map has; 0 if it is no map."""
    data = memoryview(raw)
    head = data[0]
    if head >> 4 == _FIX_MAP:
        return head & 0x0F
    return int.from_bytes(data[1:3]) if head == _MAP_16 else int.from_bytes(data[1:5]) if head == _MAP_32 else 0
